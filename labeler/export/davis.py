"""DAVIS layout: `Annotations/<clip>/<frame>.png`, an indexed picture per labelled frame, 0 where no object is.

A pixel's value is its object's id, so ids end at 255. A pixel holds one object only: where masks overlap, the smaller
one lies on top, so that an object inside or before another stays to be seen (of equal ones, that of the lower id). What
is covered by that is counted and told. Absent objects and empty masks leave no pixels; scores, categories and the
seeds' points find no place in this layout.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeler import masks
from labeler.errors import UsageError
from labeler.files import refuse_other, replace_bytes
from labeler.journal import JournalReader
from labeler.types import WHOLE_CLIP, frame_name

LARGEST_ID = 255
OVERLAPS = "where masks overlap the smaller lies on top"


def write(reader: JournalReader, target: Path) -> str:
    """Write `Annotations` into the folder `target`, and return what was covered by what lies on top of it.

    Nothing is written if an object id is above 255, or a clip's folder holds other names than would be written.
    Raises UsageError, also for a file that is there with other content; OutputError if the disk is full.
    """
    if reader.header.kind != "videos":
        raise UsageError(f"{reader.path}: holds labels of pictures, and davis is a layout for clips; use coco")
    root = target / "Annotations"
    _check(reader, root)
    palette = _palette()
    covered = frames = hidden = 0
    for record in _frames(reader):
        shown = [each for each in record["annotations"] if each["visible"] and each["area"]]
        ids_hw = flatten(shown, height=record["height"], width=record["width"])
        under = sum(each["area"] for each in shown) - int(np.count_nonzero(ids_hw))
        covered, frames = covered + under, frames + (under > 0)
        hidden += len({each["object_id"] for each in shown} - set(np.unique(ids_hw).tolist()))
        path = _path(root, record)
        replace_bytes(path, _png(ids_hw, palette), before=refuse_other(path))
    return f"{OVERLAPS}: {covered} pixels of {frames} frames are covered, {hidden} masks of them wholly"


def flatten(annotations: Sequence[Mapping[str, Any]], *, height: int, width: int) -> NDArray[np.uint8]:
    """One picture [height, width] of object ids: larger masks first, smaller ones over them."""
    ids_hw = np.zeros((height, width), np.uint8)
    for each in sorted(annotations, key=lambda each: (each["area"], each["object_id"]), reverse=True):
        ids_hw[masks.decode(each["rle"])] = each["object_id"]
    return ids_hw


def _frames(reader: JournalReader) -> Iterator[dict[str, Any]]:
    return (record for record in reader.records(status="done") if record["frame"] != WHOLE_CLIP)


def _path(root: Path, record: Mapping[str, Any]) -> Path:
    return (root / frame_name(record["key"], record["frame"])).with_suffix(".png")


def _check(reader: JournalReader, root: Path) -> None:
    large: dict[tuple[str, int], None] = {}
    names: dict[Path, set[str]] = {}
    for record in _frames(reader):
        path = _path(root, record)
        names.setdefault(path.parent, set()).add(path.name)
        ids = (each["object_id"] for each in record["annotations"])
        large |= dict.fromkeys((record["key"], object_id) for object_id in ids if object_id > LARGEST_ID)
    if large:
        told = ", ".join(f"{object_id} in {key!r}" for key, object_id in list(large)[:10])
        raise UsageError(
            f"object ids above {LARGEST_ID}, which no pixel of an indexed PNG can have: {told}; give smaller ids in "
            "the seeds file, or export to coco"
        )
    for folder, wanted in names.items():
        if folder.is_dir() and (
            other := sorted({path.name.removesuffix(".tmp") for path in folder.iterdir()} - wanted)
        ):
            raise UsageError(
                f"{folder}: holds {other[0]!r}, which is not of this export; choose another folder with -o"
            )


def _png(ids_hw: NDArray[np.uint8], palette: bytes) -> bytes:
    from PIL import Image

    image = Image.fromarray(ids_hw)
    image.putpalette(palette)  # makes it an indexed one
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


def _palette() -> bytes:
    """The colours that PASCAL VOC and DAVIS give to ids: an id's bits, three at a time, from the highest bit down."""
    ids = np.arange(256)
    rgb = np.zeros((256, 3), np.uint8)
    for step in range(8):
        for channel in range(3):
            rgb[:, channel] |= ((ids >> (3 * step + channel) & 1) << (7 - step)).astype(np.uint8)
    return rgb.tobytes()
