"""Journal -> one format per module. Needs no model: labels can be exported again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from labeler.errors import UsageError
from labeler.export import coco, davis
from labeler.files import refuse_other, replacing
from labeler.journal import NAME as JOURNAL
from labeler.journal import JournalReader


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write labels down."""

    target: str
    """Name of the file or folder that it makes in the output folder unless another is wanted."""
    about: str
    """What it is, in a few words."""
    write: Callable[[JournalReader, Path, Mapping[str, int] | None], str | None]
    """(journal, target, category ids by name or None). Replaces nothing that differs from what it would write.

    Returns what the format could not hold, if that can be counted.
    """


def _coco(reader: JournalReader, target: Path, categories: Mapping[str, int] | None) -> None:
    with replacing(target, before=refuse_other(target)) as stream:
        coco.write(reader, stream, categories=categories)


def _davis(reader: JournalReader, target: Path, categories: Mapping[str, int] | None) -> str:
    if categories is not None:
        raise UsageError("davis: has no place for categories; leave --categories out")
    return davis.write(reader, target)


# One line per format; its module says what of the labels the format cannot hold.
FORMATS: Mapping[str, Format] = {
    "coco": Format("annotations.json", "one JSON file", _coco),
    "davis": Format("davis", f"an indexed PNG per frame of a clip; {davis.OVERLAPS}", _davis),
}


def export(
    folder: Path,
    format_name: str,
    *,
    target: Path | None = None,
    categories: Mapping[str, int] | None = None,
    tell: Callable[[str], object] = lambda _: None,
) -> Path:
    """Write the labels of a run's output folder in another format and return where they are.

    `categories`: ids by name. `tell`: is called with what the format could not hold. Raises JournalError, OutputError,
    and UsageError for an unknown format, a category without an id, or a target that is there already with other
    content.
    """
    if format_name not in FORMATS:
        raise UsageError(f"{format_name}: is not a format; there are {', '.join(FORMATS)}")
    chosen = FORMATS[format_name]
    target = target or folder / chosen.target
    with JournalReader(folder / JOURNAL) as reader:
        if lost := chosen.write(reader, target, categories):
            tell(lost)
    return target
