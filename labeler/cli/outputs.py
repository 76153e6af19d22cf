"""`sam2label export`, `report` and `validate`: what can be done with labels that are there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from labeler import export as exports
from labeler import report as reports
from labeler import validate as checks
from labeler.cli.errors import FAILED_ITEMS, say
from labeler.cli.label import read_categories
from labeler.cli.options import Categories
from labeler.errors import UsageError
from labeler.journal import NAME as JOURNAL
from labeler.outputs import ANNOTATIONS
from labeler.toplists import Listed

FORMATS_HELP = ". ".join(f"{name}: {known.about}" for name, known in exports.FORMATS.items()) + "."
Folder = Annotated[Path, typer.Argument(metavar="OUT", help="Output folder of a run.")]


def export(
    out: Folder,
    format_: Annotated[str, typer.Option("--format", help=FORMATS_HELP)],
    target: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write.  [default: the format's own name in OUT]")
    ] = None,
    categories: Categories = None,
) -> None:
    """Write the labels in another format, from the journal alone. Replaces nothing that differs."""
    _need_journal(out)
    wanted = read_categories(categories)
    typer.echo(exports.export(out, format_, target=target, categories=wanted, tell=lambda lost: say(f"note: {lost}")))


def report(
    out: Folder,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    show: Annotated[int, typer.Option("--show", min=0, help="How many members of each list to print.")] = 10,
) -> None:
    """Say what a run made: counts, failures, doubtful masks, timing."""
    _need_journal(out)
    found = reports.summarize(out, show=show)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=1, ensure_ascii=False))
    else:
        for line in _lines(found):
            typer.echo(line)


def validate(
    path: Annotated[Path, typer.Argument(metavar="OUT|FILE", help="Output folder of a run, or a COCO file.")],
) -> None:
    """Check a COCO file the way its readers need it and list every fault. Exit code 1 if there is any."""
    path = path / ANNOTATIONS if path.is_dir() else path
    number = 0
    for fault in checks.check(path):
        number += 1
        typer.echo(f"{path}: {fault}")
    say(f"{path}: {number} faults" if number else f"{path}: good")
    if number:
        raise typer.Exit(FAILED_ITEMS)


def _need_journal(out: Path) -> None:
    if not (out / JOURNAL).is_file():
        raise UsageError(f"{out}: holds no {JOURNAL}; give the output folder of sam2label images or videos")


def _lines(found: reports.Report) -> Iterator[str]:
    clips = found.kind == "videos"
    yield f"{found.kind}, sam2label {found.program}, bundle {found.bundle}"
    frames = f"; {found.frames} frames" if clips else ""
    yield f"{found.items} {_items(found)}: {found.done} done, {found.failures.total} failed{frames}"
    by_category = ", ".join(f"{name} {number}" for name, number in found.categories.items())
    yield f"{found.annotations} annotations" + (f": {by_category}" if by_category else "")
    if found.timing:
        timing = found.timing
        yield (
            f"seconds per {'frame' if clips else 'picture'}: mean {timing.mean:.3f}, median {timing.median:.3f}, "
            f"p95 {timing.p95:.3f}; {timing.total:.1f} in all"
        )
        yield from _worst("slowest", timing.slowest)
    if found.unseeded is None:
        yield "no run.json: no run has ended yet"
    else:
        yield f"{_items(found)} without seeds: {found.unseeded}"
    for title, listed in _lists(found):
        yield from _listed(title, listed)
    yield from _worst("lowest predicted IoU", found.lowest_predicted_iou)
    yield from _worst("lowest stability", found.lowest_stability)


def _lists(found: reports.Report) -> Iterator[tuple[str, Listed]]:
    yield "failed", found.failures
    if found.kind == "videos":
        yield "clips not at their end yet", found.unfinished
    yield "notes", found.notes
    yield "entries of the seeds file without an input", found.unmatched
    yield "empty masks", found.empty_masks
    yield "objects that the model takes for absent", found.absent
    yield "seed points outside their mask, or negative ones inside", found.seeds_astray
    if found.kind == "videos":
        yield "suspicious frames", found.suspicious


def _items(found: reports.Report) -> str:
    return "clips" if found.kind == "videos" else "pictures"


def _listed(title: str, listed: Listed) -> Iterator[str]:
    yield f"{title}: {listed.total}"
    yield from map(_member, listed.shown)
    if 0 < len(listed.shown) < listed.total:
        yield f"  ... and {listed.total - len(listed.shown)} more (--show N)"


def _worst(title: str, members: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if members:
        yield f"{title}:"
        yield from map(_member, members)


def _member(member: Mapping[str, Any]) -> str:
    return "  " + ", ".join(_value(name, value) for name, value in member.items())


def _value(name: str, value: Any) -> str:
    if name in ("key", "name", "error", "note", "reason"):
        return str(value)
    return f"{name} {value:.4f}" if isinstance(value, float) else f"{name} {value}"
