"""The frames that the labels speak of, as JPEG files under the names that annotations.json gives them.

Each clip has a folder of its own. A marker in it says that it is ours, and which clip its frames show: frames of an
older version of the clip are replaced, and a folder without the marker is never touched.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labeler.errors import SourceError, UsageError
from labeler.files import replace_bytes
from labeler.journal import JournalReader
from labeler.sources.clips import open_clip
from labeler.sources.digests import clip_sha256
from labeler.types import WHOLE_CLIP, Item, frame_name

if TYPE_CHECKING:
    from PIL import Image

    from labeler.sources.pictures import Exif

MARKER = ".sam2label"


def check(folder: Path, items: Sequence[Item]) -> None:
    """Raise UsageError if some clip's folder below `folder` is there and not ours."""
    for item in items:
        place = folder / item.key
        if place.is_dir() and any(place.iterdir()) and not (place / MARKER).is_file():
            raise UsageError(
                f"{place}: is there already and holds what sam2label did not write; choose another --frames-out"
            )


def write(
    folder: Path, reader: JournalReader, items: Sequence[Item], *, exif: Exif, max_pixels: int
) -> Iterator[Mapping[str, Any]]:
    """Write what is not there yet of the labelled frames of `items`. Yields key and error of clips that fail.

    Raises OutputError if the disk is full.
    """
    named: dict[str, list[int]] = {}
    for (key, frame), place in sorted(reader.places.items()):
        if frame != WHOLE_CLIP and place.status == "done":
            named.setdefault(key, []).append(frame)
    for item in items:
        try:
            _write_clip(folder, item, named.get(item.key, []), exif, max_pixels)
        except SourceError as error:
            yield {"key": item.key, "error": f"its frames cannot be written: {error}"}


def _write_clip(folder: Path, item: Item, named: list[int], exif: Exif, max_pixels: int) -> None:
    if not named:
        return
    _claim(folder / item.key, f"{clip_sha256(item.path)} {exif}\n".encode())
    missing = [frame for frame in named if not (folder / frame_name(item.key, frame)).exists()]
    if not missing:
        return
    stride = math.gcd(*(after - before for before, after in pairwise(missing))) or 1
    wanted = set(missing)
    with open_clip(item.path, exif=exif, max_pixels=max_pixels) as clip:
        if missing[-1] >= clip.index.count:
            raise SourceError(f"frame {missing[-1]} is gone: the file changed since it was labelled")
        for frame in clip.frames(missing[0], missing[-1] + 1, stride=stride):
            if frame.index not in wanted:
                continue
            if frame.image is None:
                raise SourceError(f"frame {frame.index}: {frame.error}")
            replace_bytes(folder / frame_name(item.key, frame.index), _jpeg(frame.image))


def _claim(place: Path, identity: bytes) -> None:
    """Mark a clip's folder as ours; frames of another version of the clip are removed from it."""
    marker = place / MARKER
    if marker.is_file():
        if marker.read_bytes() == identity:
            return
        for path in place.glob("*.jpg"):
            path.unlink()
    replace_bytes(marker, identity)


def _jpeg(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "JPEG", quality=95, subsampling=0)
    return content.getvalue()
