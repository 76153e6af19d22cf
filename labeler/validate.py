"""Check a COCO file the way its readers (pycocotools, CVAT, detectron2) will need it, and list every fault.

Nothing here trusts the file: run lengths are read by `runlengths`, never by C code. The file is read twice, first
what annotations refer to, then the annotations one by one, so its size does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labeler import jsonstream, runlengths
from labeler.errors import UsageError

LISTS = ("images", "annotations", "categories")
"""What a COCO file must have."""

Entry = Mapping[str, Any]
Faults = Iterator[str]


@dataclass(slots=True)
class _Known:
    """What was seen so far, to find doubles and to resolve references."""

    sizes: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    """Height and width by image id; None where the image does not say them properly."""
    ids: dict[str, set[int]] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=dict)
    """By list, as `ids`."""
    frames: set[tuple[int, int]] = field(default_factory=set)
    """(video, frame) of images."""
    tracks: set[tuple[int, int]] = field(default_factory=set)
    """(image, track) of chosen annotations."""


def check(path: Path) -> Faults:
    """Every fault of a file, each with its place, e.g. `annotations[3] (id 4): area: is 9, its mask has 10 pixels`.

    No fault: good. Raises UsageError if the file cannot be read at all.
    """
    known = _Known()
    try:
        yield from _referred(path, known)
        yield from _referring(path, known)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # of the JSON itself: what comes after cannot be known
        yield f"is not JSON: {error}"


def _referred(path: Path, known: _Known) -> Faults:
    """What annotations refer to, and everything else about the document."""
    seen: set[str] = set()
    for name, index, value in _members(path):
        if index is None:
            if _again(seen, name):
                yield f"{name}: is there twice; readers take only one of them"
            if name in (*LISTS, "videos") and value != []:
                yield f"{name}: is not a list"
            yield from _finite(value, name)
        elif name in _REFERRED:
            yield from _entry(name, index, value, known, _REFERRED[name])
    yield from (f"{name}: is missing" for name in LISTS if name not in seen)


def _referring(path: Path, known: _Known) -> Faults:
    """The annotations, and which videos images refer to."""
    for name, index, value in _members(path):
        if name == "annotations" and index is not None:
            yield from _entry(name, index, value, known, _annotation)
        elif name == "images" and isinstance(value, dict) and "video_id" in value:
            videos = _refers(value, "video_id", known.ids.get("videos", ()), "videos")
            yield from (f"images[{index}]: {fault}" for fault in videos)


def _members(path: Path) -> Iterator[tuple[str, int | None, Any]]:
    with path.open(encoding="utf-8") as stream:
        yield from jsonstream.members(stream)


def _entry(name: str, index: int, value: Any, known: _Known, check: Callable[[Entry, _Known], Faults]) -> Faults:
    place = f"{name}[{index}]"
    if not isinstance(value, dict):
        yield f"{place}: is not an object"
        return
    number = value.get("id")
    if type(number) is not int or number < 1:
        yield f"{place}: id: is {_show(number)}; a whole number from 1 is needed (COCOeval takes 0 for 'no match')"
    else:
        place += f" (id {number})"
        if _again(known.ids.setdefault(name, set()), number):
            yield f"{place}: id: is there twice"
    yield from (f"{place}: {fault}" for fault in check(value, known))
    yield from (f"{place}.{fault}" for fault in _finite(value, ""))


def _category(entry: Entry, known: _Known) -> Faults:
    yield from _name(entry, "name", known.names.setdefault("categories", set()))


def _video(entry: Entry, known: _Known) -> Faults:
    yield from _name(entry, "name", known.names.setdefault("videos", set()))
    yield from _sides(entry)


def _image(entry: Entry, known: _Known) -> Faults:
    yield from _name(entry, "file_name", known.names.setdefault("images", set()))
    if isinstance(name := entry.get("file_name"), str) and (fault := _path_fault(name)):
        yield f"file_name: {name!r} {fault}; a relative path with forward slashes is needed"
    faults = list(_sides(entry))
    yield from faults
    if type(number := entry.get("id")) is int:
        known.sizes[number] = None if faults else (entry["height"], entry["width"])
    if "video_id" in entry:
        yield from _frame(entry, known)


def _frame(entry: Entry, known: _Known) -> Faults:
    video, frame = entry["video_id"], entry.get("frame_index")
    if type(frame) is not int or frame < 0:
        yield f"frame_index: is {_show(frame)}; a whole number from 0 is needed"
    elif type(video) is int and _again(known.frames, (video, frame)):
        yield f"frame_index: {frame} of video {video} is there twice"


def _annotation(entry: Entry, known: _Known) -> Faults:
    yield from _refers(entry, "image_id", known.sizes.keys(), "images")
    yield from _refers(entry, "category_id", known.ids.get("categories", ()), "categories")
    if type(entry.get("iscrowd")) is not int or entry["iscrowd"] != 0:
        yield f"iscrowd: is {_show(entry.get('iscrowd'))}, 0 is needed: crowds are ignored in training and evaluation"
    if "score" in entry and not _is_number(entry["score"]):
        yield f"score: is {_show(entry['score'])}, a number is needed"
    if "track_id" in entry:
        yield from _track(entry, known)
    image = entry.get("image_id")
    yield from _mask(entry, known.sizes.get(image) if type(image) is int else None)


def _track(entry: Entry, known: _Known) -> Faults:
    track, image, attributes = entry["track_id"], entry.get("image_id"), entry.get("attributes")
    if type(track) is not int or track < 1:
        yield f"track_id: is {_show(track)}; a whole number from 1 is needed"
        return
    chosen = not isinstance(attributes, dict) or attributes.get("chosen", True)
    if chosen and type(image) is int and _again(known.tracks, (image, track)):
        yield f"track_id: {track} is twice on image {image}"


def _mask(entry: Entry, size: tuple[int, int] | None) -> Faults:
    rle = entry.get("segmentation")
    if not isinstance(rle, dict) or not isinstance(rle.get("counts"), str):
        yield f"segmentation: is {_kind(rle)}; compressed run lengths {{size, counts}} with counts as text are needed"
        return
    sides = rle.get("size")
    if not isinstance(sides, list) or len(sides) != 2 or any(type(side) is not int or side < 1 for side in sides):
        yield f"segmentation.size: is {_show(sides)}; [height, width] is needed"
        return
    if size is not None and tuple(sides) != size:
        yield f"segmentation.size: is {sides}, its image is {list(size)} (height, width)"
    try:
        runs = runlengths.parse(rle["counts"], height=sides[0], width=sides[1])
    except ValueError as error:
        yield f"segmentation.counts: {error}"
        return
    yield from _pixels(entry, runs, height=sides[0])


def _pixels(entry: Entry, runs: runlengths.Runs, *, height: int) -> Faults:
    pixels, tight = runlengths.area(runs), list(runlengths.bbox(runs, height=height))
    area, box = entry.get("area"), entry.get("bbox")
    if not pixels:
        yield "segmentation: the mask is empty"
    if not _is_number(area) or area != pixels:
        yield f"area: is {_show(area)}, its mask has {pixels} pixels"
    if not isinstance(box, list) or not all(map(_is_number, box)) or box != tight:
        yield f"bbox: is {_show(box)}, tight around its mask is {tight} (x, y, width, height)"


def _name(entry: Entry, key: str, seen: set[str]) -> Faults:
    name = entry.get(key)
    if not isinstance(name, str) or not name:
        yield f"{key}: is {_show(name)}; a text is needed"
    elif _again(seen, name):
        yield f"{key}: {name!r} is there twice"


def _again(seen: set[Any], value: Any) -> bool:
    """Whether a value was there before; remembers it."""
    if value in seen:
        return True
    seen.add(value)
    return False


def _path_fault(name: str) -> str | None:
    if "\\" in name:
        return "has backslashes"
    if name.startswith("/") or name[1:2] == ":":
        return "is absolute"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "has empty, '.' or '..' parts"
    return None


def _sides(entry: Entry) -> Faults:
    for side in ("height", "width"):
        if type(entry.get(side)) is not int or entry[side] < 1:
            yield f"{side}: is {_show(entry.get(side))}; a whole number from 1 is needed"


def _refers(entry: Entry, key: str, there: Any, where: str) -> Faults:
    if type(entry.get(key)) is not int or entry[key] not in there:
        yield f"{key}: {_show(entry.get(key))} is not the id of any of the {where}"


def _finite(value: Any, place: str) -> Faults:
    """Faults of numbers that JSON has no word for, or that are too large for one."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{place}: is {value}; JSON has only finite numbers"
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _finite(inner, f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _finite(inner, f"{place}[{index}]")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _show(value: Any) -> str:
    return "missing" if value is None else f"{value!r:.80}"


def _kind(value: Any) -> str:
    kinds = {list: "a list of polygons", dict: "run lengths that are not compressed", type(None): "missing"}
    return kinds.get(type(value), _show(value))


_REFERRED: Mapping[str, Callable[[Entry, _Known], Faults]] = {
    "categories": _category,
    "images": _image,
    "videos": _video,
}
