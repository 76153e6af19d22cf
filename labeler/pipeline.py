"""The only joiner: seeds, sources, model and journal become a run over a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from labeler import __version__, accelerator, frames, runs, workers
from labeler import seeds as seed_files
from labeler.bundle import Bundle
from labeler.clip_plan import ClipPlan, plan_clips
from labeler.clips import ClipLabeler, ClipOptions, ClipTask
from labeler.errors import UsageError
from labeler.images import UNREADABLE, ImageLabeler, ImageOptions, ImageTask, content_identity
from labeler.journal import Header, Journal, JournalReader
from labeler.model import ModelSpec, Task, roles
from labeler.plan import ImagePlan, plan_images
from labeler.provenance import provenance
from labeler.runs import Job, Progress, RunOptions
from labeler.seeds import SeedFile
from labeler.track import memory_layout
from labeler.types import WHOLE_CLIP, Record, Seed

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
    machine = _Machine.share("images", bundle, plan.tasks, run, device, progress)
    labeler = ImageLabeler(machine.spec, options)
    job = _job(labeler, plan, machine, seed_file, frame=0)
    return _execute(job, out, plan, machine, run, progress)


def label_clips(
    root: Path,
    seeds: Path | None,
    out: Path,
    *,
    bundle: Bundle,
    options: ClipOptions,
    run: RunOptions,
    device: accelerator.Wanted,
    progress: Progress,
) -> Counter[str]:
    """Label the clips below `root` into the folder `out`; running it again resumes, inside a clip too.

    `seeds`: one file, or None for those that lie beside the clips. Returns counts and raises as `label_pictures`.
    """
    runs.check_folders(root, out)
    if options.frames_out is not None:
        runs.check_folders(root, options.frames_out)
    memory_layout(bundle, memory=options.memory)  # a bundle that cannot track is told before clips are read
    plan = plan_clips(root, seeds, out, bundle=bundle, options=options)
    if options.frames_out is not None:
        frames.check(options.frames_out, plan.items)
    machine = _Machine.share("videos", bundle, plan.tasks, run, device, progress)
    labeler = ClipLabeler(machine.spec, options)
    job = replace(
        _job(labeler, plan, machine, plan.seeds, frame=WHOLE_CLIP),
        steps=lambda task: task.visits,
        prepare=labeler.drop_stray_snapshot,
        afterwards=lambda reader: _write_frames(reader, plan, options),
    )
    return _execute(job, out, plan, machine, run, progress)


def _job(
    labeler: ImageLabeler | ClipLabeler, plan: ImagePlan | ClipPlan, machine: _Machine, seeds: SeedFile, *, frame: int
) -> Job[Any]:
    """What there is to do for a plan. `frame`: that of the record which ends an item."""
    options, fingerprint = labeler.options.decisive(), cast(Callable[..., str], labeler.fingerprint)
    return Job(
        header=machine.header(options),
        tasks=plan.tasks,
        stream=labeler.stream,
        settled=_Settled(fingerprint, frame),
        lost=lambda task, why: Record(task.item.key, frame, fingerprint(task), "failed", error=why),
        keys=frozenset(task.item.key for task in plan.tasks),
        failures=tuple({"key": key, "error": why} for key, why in plan.unreadable),
        provenance=machine.provenance(options, plan, seeds),
    )


def _write_frames(reader: JournalReader, plan: ClipPlan, options: ClipOptions) -> Iterable[Mapping[str, Any]]:
    if options.frames_out is None:
        return ()
    return frames.write(options.frames_out, reader, plan.items, exif=options.exif, max_pixels=options.max_pixels)


@dataclass(frozen=True, slots=True)
class _Machine:
    """How the machine is used for a task."""

    spec: ModelSpec
    plan: workers.Plan
    chosen: accelerator.Chosen

    @classmethod
    def share(
        cls,
        task: Task,
        bundle: Bundle,
        tasks: Sequence[object],
        run: RunOptions,
        device: accelerator.Wanted,
        progress: Progress,
    ) -> _Machine:
        plan = workers.plan(
            workers=run.workers, threads=run.threads, items=len(tasks), worker_bytes=worker_bytes(bundle, task)
        )
        chosen = accelerator.choose(bundle, roles(bundle, task), wanted=device, threads=plan.threads)
        if chosen.summary:
            progress.note(chosen.summary)
        return cls(ModelSpec(bundle, plan.threads, task, chosen.devices), plan, chosen)

    def header(self, options: Mapping[str, Any]) -> Header:
        """Masks made on the GPU may differ from the CPU's in the last digits, so it matters which graphs ran there."""
        on_gpu = sorted(role for role, device in self.chosen.devices.items() if device == "gpu")
        return Header(self.spec.task, __version__, self.spec.bundle.digest, {**options, "gpu": on_gpu})

    def provenance(self, options: Mapping[str, Any], plan: ImagePlan | ClipPlan, seeds: SeedFile) -> dict[str, Any]:
        document = provenance(self.spec.bundle, self.spec.task, options, self.chosen, seeds.path, seeds.sha256)
        return document | {"unmatched": [name for name, _ in plan.unmatched], "unseeded": len(plan.unseeded)}


@dataclass(frozen=True, slots=True)
class _Settled:
    """Whether an item's record is in the journal already. Its bytes are hashed only if there is one at all."""

    fingerprint: Callable[..., str]
    frame: int

    def __call__(self, task: ImageTask | ClipTask, journal: Journal, retry_failed: bool) -> bool:
        place = journal.places.get((task.item.key, self.frame))
        if place is None or (retry_failed and place.status == "failed"):
            return False
        content = content_identity(task.item.path)
        if content == UNREADABLE and place.status == "done":
            return True  # what cannot be read now keeps its labels
        return place.fingerprint == self.fingerprint(task, content)


def _execute(
    job: Job[Any], out: Path, plan: ImagePlan | ClipPlan, machine: _Machine, run: RunOptions, progress: Progress
) -> Counter[str]:
    check_categories([seed for task in plan.tasks for seed in task.seeds], run.categories)
    _tell(plan, progress, things="pictures" if isinstance(plan, ImagePlan) else "clips")
    counts = runs.execute(job, out, plan=machine.plan, options=run, progress=progress)
    counts.update(unmatched=len(plan.unmatched), unseeded=len(plan.unseeded))
    return counts


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


def _tell(plan: ImagePlan | ClipPlan, progress: Progress, *, things: str) -> None:
    for line in _unmatched_lines(plan.unmatched, things):
        progress.note(line)
    if plan.unseeded:
        progress.note(
            f"{len(plan.unseeded)} {things} have no seeds and are left out, the first is {plan.unseeded[0]!r}"
        )
    for key, why in plan.unreadable:
        progress.note(f"{key}: {why}")


def _unmatched_lines(unmatched: Sequence[tuple[str, str | None]], things: str) -> Iterator[str]:
    if unmatched:
        yield f"{len(unmatched)} entries of the seeds file name none of the {things}:"
    for name, nearest in unmatched[:NAMED]:
        yield f"  {name!r}" + (f", did you mean {nearest!r}?" if nearest else "")
    if len(unmatched) > NAMED:
        yield f"  ... and {len(unmatched) - NAMED} more, all in run.json"
