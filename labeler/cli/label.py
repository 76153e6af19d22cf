"""`sam2label images` and `sam2label videos`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from labeler import hub, pipeline
from labeler.bundle import Bundle
from labeler.cli.errors import FAILED_ITEMS, say
from labeler.cli.options import (
    Accelerator,
    Categories,
    ExifOption,
    MaxPixels,
    Model,
    ModelsDir,
    Out,
    Restart,
    RetryFailed,
    Threads,
    Workers,
)
from labeler.cli.progress import Bar
from labeler.clips import ClipOptions
from labeler.errors import UsageError
from labeler.images import ImageOptions
from labeler.runs import RunOptions
from labeler.sources.pictures import MAX_PIXELS
from labeler.sources.span import parse_place


def images(
    path: Annotated[Path, typer.Argument(help="Folder of pictures (searched recursively), or one picture.")],
    points: Annotated[Path, typer.Option("--points", help="Seeds file, .json or .jsonl.")],
    out: Out = None,
    model: Model = None,
    models_dir: ModelsDir = None,
    candidates: Annotated[
        Literal["best", "all"], typer.Option("--candidates", help="Keep the chosen mask per object, or all candidates.")
    ] = "best",
    exif: ExifOption = "apply",
    max_pixels: MaxPixels = MAX_PIXELS,
    categories: Categories = None,
    workers: Workers = None,
    threads: Threads = None,
    accelerator: Accelerator = "cpu",
    retry_failed: RetryFailed = False,
    restart: Restart = False,
) -> None:
    """Label pictures: a mask for every object of the seeds file. Running the same command again resumes."""
    out = out or default_out(path)
    with progress("pictures", step="pictures") as bar:
        counts = pipeline.label_pictures(
            path,
            points,
            out,
            bundle=find_bundle(model, models_dir),
            options=ImageOptions(exif=exif, keep=candidates, max_pixels=max_pixels),
            run=RunOptions(workers, threads, retry_failed, restart, read_categories(categories)),
            device=accelerator,
            progress=bar,
        )
    finish(counts, out, unit="pictures")


def videos(
    path: Annotated[Path, typer.Argument(help="Folder of clips (searched recursively), or one clip.")],
    points: Annotated[
        Path | None,
        typer.Option("--points", help="Seeds file.  [default: seeds.json in PATH, <clip>.seeds.json beside a clip]"),
    ] = None,
    out: Out = None,
    model: Model = None,
    models_dir: ModelsDir = None,
    direction: Annotated[
        Literal["forward", "backward", "both"], typer.Option("--direction", help="From each object's seed.")
    ] = "forward",
    memory: Annotated[
        int | None, typer.Option("--memory", help="Slots of the largest memory graph to use, e.g. 7 or 2.")
    ] = None,
    start: Annotated[str | None, typer.Option("--start", help='First frame ("12") or time ("3.5s").')] = None,
    end: Annotated[str | None, typer.Option("--end", help="Frame or time to stop before.")] = None,
    stride: Annotated[int, typer.Option("--stride", min=1, help="Take each N-th frame.")] = 1,
    frames_out: Annotated[
        Path | None,
        typer.Option("--frames-out", help="Write the frames there that annotations.json names."),
    ] = None,
    exif: ExifOption = "apply",
    max_pixels: MaxPixels = MAX_PIXELS,
    categories: Categories = None,
    workers: Workers = None,
    threads: Threads = None,
    accelerator: Accelerator = "cpu",
    retry_failed: RetryFailed = False,
    restart: Restart = False,
) -> None:
    """Label clips: every object's mask on every frame. Running the same command again resumes, inside a clip too."""
    out = out or default_out(path)
    options = ClipOptions(
        exif=exif,
        max_pixels=max_pixels,
        direction=direction,
        memory=memory,
        start=None if start is None else parse_place(start, option="--start"),
        end=None if end is None else parse_place(end, option="--end"),
        stride=stride,
        frames_out=frames_out,
    )
    with progress("clips", step="frames") as bar:
        counts = pipeline.label_clips(
            path,
            points,
            out,
            bundle=find_bundle(model, models_dir),
            options=options,
            run=RunOptions(workers, threads, retry_failed, restart, read_categories(categories)),
            device=accelerator,
            progress=bar,
        )
    say(f"{counts['frames']} frames, {counts['absent']} absences of an object")
    finish(counts, out, unit="clips")


def default_out(path: Path) -> Path:
    """PATH-labels beside PATH."""
    whole = path.resolve()
    return whole.with_name(whole.name + "-labels")


def find_bundle(model: str | None, models_dir: Path | None) -> Bundle:
    """The bundle to use; what it is is said once."""
    found = hub.resolve(model, models_dir=models_dir or hub.default_models_dir())
    say(found.notice or f"model: {found.bundle.name} {found.bundle.version}")
    return found.bundle


@contextmanager
def progress(unit: str, *, step: str) -> Iterator[Bar]:
    """A bar that is closed before anything else is said."""
    bar = Bar(unit, step=step)
    try:
        yield bar
    finally:
        bar.close()


def finish(counts: Mapping[str, int], out: Path, *, unit: str) -> None:
    """Say how it ended, and leave with 1 if an item failed."""
    say(
        f"{counts['done']} {unit} labelled ({counts['resumed']} of them earlier), {counts['failed']} failed; "
        f"{counts['annotations']} annotations, {counts['empty_masks']} empty masks"
    )
    if counts["kept"]:
        say(f"{counts['kept']} records of items that these seeds do not name are kept")
    say(f"labels: {out / 'annotations.json'}")
    if counts["failed"]:
        say(f"failures: {out / 'failures.jsonl'}; --retry-failed tries them again")
        raise typer.Exit(FAILED_ITEMS)


def read_categories(path: Path | None) -> dict[str, int] | None:
    """Ids by name from a JSON list of names (ids from 1) or of {id, name} as in COCO. Raises UsageError."""
    if path is None:
        return None
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as JSON ({error})") from None
    entries: Any = document.get("categories") if isinstance(document, dict) else document
    try:
        if not isinstance(entries, list):
            raise TypeError(f"found {json.dumps(document):.60}")
        ids = {_name(entry): _id(entry, number) for number, entry in enumerate(entries, start=1)}
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path}: {error}: expected a list of names, or of objects with id (from 1) and name"
        ) from None
    if len(ids) != len(entries) or len(set(ids.values())) != len(entries):
        raise UsageError(f"{path}: names and ids must each be there once")
    return ids


def _name(entry: Any) -> str:
    name = entry["name"] if isinstance(entry, dict) else entry
    if not isinstance(name, str) or not name:
        raise ValueError(repr(entry))
    return name


def _id(entry: Any, number: int) -> int:
    value = entry["id"] if isinstance(entry, dict) else number
    if type(value) is not int or value < 1:
        raise ValueError(repr(entry))
    return value
