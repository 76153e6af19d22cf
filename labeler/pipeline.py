"""The only joiner: seeds, sources, model and journal become a run over a folder."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from labeler import __version__, accelerator, runs, workers
from labeler import seeds as seed_files
from labeler.bundle import Bundle
from labeler.errors import UsageError
from labeler.images import UNREADABLE, ImageLabeler, ImageOptions, ImageTask, picture_identity
from labeler.journal import Header, Journal
from labeler.model import ModelSpec, Task, roles
from labeler.plan import ImagePlan, plan_images
from labeler.runs import Job, Progress, RunOptions
from labeler.types import Record, Seed

LIBRARIES = ("ai-edge-litert", "av", "numpy", "pillow", "pycocotools")
NAMED = 10
"""How many unmatched names are told one by one; run.json holds all."""


def label_pictures(
    root: Path,
    seeds: Path,
    out: Path,
    *,
    bundle: Bundle,
    options: ImageOptions,
    run: RunOptions,
    device: accelerator.Wanted,
    progress: Progress,
) -> Counter[str]:
    """Label the pictures below `root` into the folder `out`; running it again resumes.

    Returns counts (see `runs.execute`, plus unmatched and unseeded). Raises UsageError before anything runs,
    OutputError if the disk is full.
    """
    runs.check_folders(root, out)
    seed_file = seed_files.load(seeds)
    plan = plan_images(root, seed_file, bundle=bundle, options=options)
    check_categories([seed for task in plan.tasks for seed in task.seeds], run.categories)
    _tell(plan, progress)
    share = workers.plan(
        workers=run.workers, threads=run.threads, items=len(plan.tasks), worker_bytes=worker_bytes(bundle, "images")
    )
    chosen = accelerator.choose(bundle, roles(bundle, "images"), wanted=device, threads=share.threads)
    if device != "cpu":
        progress.note(chosen.summary)
    labeler = ImageLabeler(ModelSpec(bundle, share.threads, "images", chosen.devices), options)
    job = Job(
        header=Header("images", __version__, bundle.digest, options.decisive() | {"devices": _gpu(chosen.devices)}),
        tasks=plan.tasks,
        stream=labeler.stream,
        settled=_Settled(labeler),
        lost=lambda task, why: Record(task.item.key, 0, labeler.fingerprint(task), "failed", error=why),
        keys=frozenset(task.item.key for task in plan.tasks),
        failures=tuple({"key": key, "frame": 0, "error": why} for key, why in plan.unreadable),
        provenance=provenance(bundle, "images", options.decisive(), chosen, seeds, seed_file.sha256)
        | {"unmatched": [name for name, _ in plan.unmatched], "unseeded": len(plan.unseeded)},
    )
    counts = runs.execute(job, out, plan=share, options=run, progress=progress)
    return counts + Counter(unmatched=len(plan.unmatched), unseeded=len(plan.unseeded))


class _Settled:
    """Whether a picture's record is in the journal already. Its bytes are hashed only if there is one at all."""

    def __init__(self, labeler: ImageLabeler) -> None:
        self._labeler = labeler

    def __call__(self, task: ImageTask, journal: Journal, retry_failed: bool) -> bool:
        place = journal.places.get((task.item.key, 0))
        if place is None or (retry_failed and place.status == "failed"):
            return False
        content = picture_identity(task.item.path)
        if content == UNREADABLE and place.status == "done":
            return True  # what cannot be read now keeps its labels
        return place.fingerprint == self._labeler.fingerprint(task, content)


def provenance(
    bundle: Bundle,
    task: Task,
    options: Mapping[str, Any],
    chosen: accelerator.Chosen,
    seeds: Path | None,
    sha256: str | None,
) -> dict[str, Any]:
    """What run.json says about where the labels come from."""
    used = {role: bundle.graphs[role] for role in roles(bundle, task)}
    return {
        "program": f"sam2label {__version__}",
        "kind": task,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
        "bundle": {
            "name": bundle.name,
            "version": bundle.version,
            "folder": str(bundle.folder),
            "digest": bundle.digest,
            "graphs": {role: {"file": spec.file, "sha256": spec.sha256} for role, spec in used.items()},
        },
        "accelerator": {role: chosen.devices.get(role, "cpu") for role in used},
        "options": dict(options),
        "seeds": {"path": None if seeds is None else str(seeds), "sha256": sha256},
    }


def worker_bytes(bundle: Bundle, task: Task) -> int:
    """Resident memory of one worker: a base, the weights unpacked to float32, and working memory in proportion.

    Measured with full-size graphs: 0.7 GB for pictures, 1.6 GB for clips.
    """
    files = {spec.file: spec.nbytes or 0 for spec in (bundle.graphs[role] for role in roles(bundle, task))}
    return 250_000_000 + sum(files.values()) * (4 if task == "images" else 9)


def check_categories(seeds: Sequence[Seed], categories: Mapping[str, int] | None) -> None:
    """Raise UsageError if a seed's category is not in the given list."""
    if categories is None:
        return
    if missing := sorted({seed.category for seed in seeds} - categories.keys()):
        raise UsageError(
            f"--categories: lacks {', '.join(map(repr, missing))}, which the seeds use; add them to the file"
        )


def _gpu(devices: Mapping[str, str]) -> list[str]:
    """The graphs that run on the GPU, whose masks may differ from the CPU's in the last digits."""
    return sorted(role for role, device in devices.items() if device == "gpu")


def _tell(plan: ImagePlan, progress: Progress) -> None:
    for line in _unmatched_lines(plan.unmatched):
        progress.note(line)
    if plan.unseeded:
        progress.note(
            f"{len(plan.unseeded)} pictures have no seeds and are left out, the first is {plan.unseeded[0]!r}"
        )
    for key, why in plan.unreadable:
        progress.note(f"{key}: {why}")


def _unmatched_lines(unmatched: Sequence[tuple[str, str | None]]) -> Iterator[str]:
    if unmatched:
        yield f"{len(unmatched)} entries of the seeds file name no picture:"
    for name, nearest in unmatched[:NAMED]:
        yield f"  {name!r}" + (f", did you mean {nearest!r}?" if nearest else "")
    if len(unmatched) > NAMED:
        yield f"  ... and {len(unmatched) - NAMED} more, all in run.json"
