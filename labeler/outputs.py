"""The final files of a run, made from its journal."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from labeler.errors import UsageError
from labeler.export import coco
from labeler.files import replacing
from labeler.journal import NAME as JOURNAL
from labeler.journal import Journal, JournalReader
from labeler.types import WHOLE_CLIP

ANNOTATIONS, FAILURES, RUN = "annotations.json", "failures.jsonl", "run.json"


def write_annotations(
    folder: Path, journal: Journal, reader: JournalReader, *, categories: Mapping[str, int] | None
) -> Path | None:
    """Write annotations.json whole. A version that no run wrote (edited by hand) is moved aside and returned."""
    path = folder / ANNOTATIONS
    moved: list[Path] = []

    def announce(written: Path) -> None:
        sha256 = _sha256(written)
        if path.exists() and _sha256(path) not in {sha256, *journal.outputs}:
            moved.append(_set_aside(path))
        journal.announce(ANNOTATIONS, sha256)

    with replacing(path, before=announce) as stream:
        coco.write(reader, stream, categories=categories)
    return moved[0] if moved else None


def write_failures(
    folder: Path, reader: JournalReader, keys: Collection[str], more: Iterable[Mapping[str, Any]]
) -> int:
    """Write failures.jsonl for the items of a run, or remove an earlier one if nothing failed. Returns their number.

    `more`: what failed without becoming an item, each with key and error.
    """
    failures = [
        {"key": record["key"], "error": record["error"]}
        for record in reader.records(status="failed")
        if record["key"] in keys
    ]
    failures += [dict(failure) for failure in more]
    if failures:
        with replacing(folder / FAILURES) as stream:
            stream.writelines(json.dumps(failure, sort_keys=True, ensure_ascii=False) + "\n" for failure in failures)
    else:
        (folder / FAILURES).unlink(missing_ok=True)
    return len(failures)


def count(reader: JournalReader, keys: Collection[str]) -> Counter[str]:
    """What the journal holds: `done` items of a run (clips: those labelled to their end) and `frames` of clips, their
    `annotations`, `empty_masks`, and absences (`absent`); `kept`: done records of other items."""
    counts = Counter(dict.fromkeys(("done", "frames", "annotations", "empty_masks", "absent", "kept"), 0))
    clips = reader.header.kind == "videos"
    for record in reader.records(status="done"):
        if record["key"] not in keys:
            counts["kept"] += 1
            continue
        counts["frames" if clips and record["frame"] != WHOLE_CLIP else "done"] += 1
        counts.update(_count_annotations(record["annotations"], clips))
    return counts


def _count_annotations(annotations: Iterable[Mapping[str, Any]], clips: bool) -> Counter[str]:
    counts = Counter[str]()
    for annotation in annotations:
        absent = clips and not annotation["visible"]
        counts["absent" if absent else "annotations" if annotation["area"] else "empty_masks"] += 1
    return counts


def write_run(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write run.json: where the labels come from."""
    with replacing(folder / RUN) as stream:
        json.dump(manifest, stream, indent=1, sort_keys=True, ensure_ascii=False)
        stream.write("\n")


def restart(folder: Path) -> Path | None:
    """Move the files of earlier runs into a new subfolder, so that a run begins anew. Nothing is deleted."""
    files = [folder / name for name in (JOURNAL, ANNOTATIONS, FAILURES, RUN) if (folder / name).exists()]
    if not files:
        return None
    number = next(n for n in range(1, 1_000_000) if not (folder / f"before-restart-{n}").exists())
    aside = folder / f"before-restart-{number}"
    aside.mkdir()
    for path in files:
        path.rename(aside / path.name)
    return aside


def refuse_foreign(folder: Path) -> None:
    """Raise UsageError if files with our names lie in a folder without our journal: they are not ours."""
    if (folder / JOURNAL).exists():
        return
    if foreign := [name for name in (ANNOTATIONS, FAILURES, RUN) if (folder / name).exists()]:
        raise UsageError(
            f"{folder / foreign[0]}: is there already, and no journal beside it; choose another folder with -o"
        )


def _set_aside(path: Path) -> Path:
    number = next(n for n in range(1, 1_000_000) if not path.with_suffix(f".edited-{n}.json").exists())
    aside = path.with_suffix(f".edited-{number}.json")
    path.rename(aside)
    return aside


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
