"""Read a seeds file in one of the native forms and list every fault in it."""

from __future__ import annotations

import hashlib
import io
import re
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from labeler.errors import SeedError
from labeler.seeds.strictjson import Repeating, parse, show
from labeler.types import Box, Point, Seed

CATEGORY = "object"
"""Category of an object for which the file states none."""

_FAR = 1e9
"""No picture and no clip reaches so far. The comparison also refuses NaN, infinities and endless integers."""
_DOCUMENT = ("version", "items")
_ITEM = ("file", "objects")
_OBJECT = ("id", "category", "points", "labels", "box", "frame", "time_s")


@dataclass(frozen=True, slots=True)
class SeedFile:
    """A checked seeds file. An entry without seeds is a file that was looked at and holds nothing."""

    path: Path
    entries: Mapping[str, tuple[Seed, ...]]
    """By posix path relative to the labelled folder, in the order of the file."""
    sha256: str
    """Of the file's bytes."""


def load(path: Path) -> SeedFile:
    """Read a seeds file: the short or the full form (.json), or the full form's items one a line (.jsonl).

    Raises SeedError with one line for every fault of the whole file.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SeedError(f"{path}: cannot be read ({error.strerror}); name a seeds file, .json or .jsonl") from None
    reader = _Reader(path)
    body = data.removeprefix(BOM_UTF8)
    if not body.strip():
        reader.fault("", 'is empty; expected at least {"picture.jpg": [[x, y]]}')
    elif path.suffix.lower() == ".jsonl":
        reader.lines(body)
    else:
        reader.document(body)
    if reader.faults:
        raise SeedError(reader.faults)
    return SeedFile(path=path, entries=reader.entries, sha256=hashlib.sha256(data).hexdigest())


class _Reader:
    """Walks one file. After a fault it reads on with a stand-in value, which `load` never lets out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.faults: list[str] = []
        self.entries: dict[str, tuple[Seed, ...]] = {}
        self._places: dict[str, str] = {}

    def fault(self, where: str, text: str) -> None:
        self.faults.append(f"{self.path}: {where}: {text}" if where else f"{self.path}: {text}")

    def lines(self, body: bytes) -> None:
        for number, line in enumerate(io.BytesIO(body), 1):
            if not line.strip():
                continue
            try:
                item = parse(line)
            except ValueError as error:
                self.fault(f"line {number}", str(error))
            else:
                self.item(item, f"line {number}")

    def document(self, body: bytes) -> None:
        try:
            document = parse(body)
        except ValueError as error:
            hint = "; a file of one item a line must be named .jsonl" if "Extra data" in str(error) else ""
            return self.fault("", f"{error}{hint}")
        if not isinstance(document, dict):
            return self.fault("", f'is {show(document)}, expected {{"picture.jpg": [[x, y]]}} or version and items')
        return self.full(document) if document.keys() & set(_DOCUMENT) else self.short(document)

    def full(self, document: dict[str, Any]) -> None:
        self.fields(document, "", known=_DOCUMENT, required=_DOCUMENT)
        version = document.get("version", 1)
        if type(version) is not int or version != 1:
            self.fault("version", f"is {show(version)}, expected 1; another one may need a newer sam2label")
        for index, item in enumerate(self.sequence(document.get("items", []), "items", of="items")):
            self.item(item, f"items[{index}]")

    def short(self, document: dict[str, Any]) -> None:
        self.repeats(document, "")
        for name, value in document.items():
            where = repr(name)
            points = self.sequence(value, where, of="[x, y]; boxes and names need the full form (version, items)")
            pairs = [self.point(point, f"{where}: points[{index}]") for index, point in enumerate(points)]
            self.enter(name, where, [Seed(index, (Point(*pair),), CATEGORY) for index, pair in enumerate(pairs, 1)])

    def item(self, item: Any, place: str) -> None:
        if not self.fields(item, place, known=_ITEM, required=_ITEM):
            return
        where = f"{place} {item['file']!r}" if isinstance(item.get("file"), str) else place
        objects = self.sequence(item.get("objects", []), f"{where}: objects", of="objects")
        seeds = [self.seed(each, f"{where}: objects[{index}]") for index, each in enumerate(objects)]
        agreed = self.agreed(seeds, where)
        if "file" in item:
            self.enter(item["file"], where, agreed)

    def enter(self, name: Any, where: str, seeds: Sequence[Seed]) -> None:
        """Keep an item's seeds under its key: forward slashes, no empty and no `.` steps."""
        if not isinstance(name, str):
            return self.fault(f"{where}: file", f"is {show(name)}, expected a path relative to the labelled folder")
        steps = [step for step in name.replace("\\", "/").split("/") if step not in ("", ".")]
        if re.match(r"[/\\]|[A-Za-z]:[/\\]", name):
            return self.fault(where, "is an absolute path; write it relative to the labelled folder")
        if ".." in steps or not steps:
            return self.fault(where, "leads to no file inside the labelled folder; write a relative path without '..'")
        key = "/".join(steps)
        if key in self.entries:
            return self.fault(where, f"is the same file as {self._places[key]}; put all its objects into one entry")
        self.entries[key], self._places[key] = tuple(seeds), where
        return None

    def agreed(self, seeds: Sequence[Seed], where: str) -> list[Seed]:
        """Check the item's seeds against each other; a category stated once holds for all seeds of its id."""
        categories: dict[int, str] = {}
        spoken: dict[tuple[int, int, float | None], int] = {}
        for index, seed in enumerate(seeds):
            if min(seed.object_id, seed.frame) < 0:
                continue
            first = spoken.setdefault((seed.object_id, seed.frame, seed.time_s), index)
            if first != index:
                text = f"is {seed.object_id} again on one frame (objects[{first}]); join the two, or give a new id"
                self.fault(f"{where}: objects[{index}].id", text)
            category = categories.get(seed.object_id) or seed.category
            if seed.category not in ("", category):
                text = f"is {seed.category!r}, but id {seed.object_id} was {category!r}; an object keeps its category"
                self.fault(f"{where}: objects[{index}].category", text)
            categories[seed.object_id] = category
        named = (categories.get(seed.object_id) or CATEGORY for seed in seeds)
        return [
            seed if seed.category else replace(seed, category=name) for seed, name in zip(seeds, named, strict=True)
        ]

    def seed(self, item: Any, where: str) -> Seed:
        """A seed whose category is empty where none is stated."""
        before = len(self.faults)
        if not self.fields(item, where, known=_OBJECT, required=("id",)):
            return Seed(-1, ())
        if "frame" in item and "time_s" in item:
            self.fault(where, "has both frame and time_s; keep one of them")
        seed = Seed(
            object_id=self.whole(item["id"], f"{where}.id", least=1) if "id" in item else -1,
            points=self.points(item, where),
            category=self.category(item["category"], f"{where}.category") if "category" in item else "",
            frame=self.whole(item.get("frame", 0), f"{where}.frame", least=0),
            box=self.box(item["box"], f"{where}.box") if "box" in item else None,
            time_s=self.number(item["time_s"], f"{where}.time_s", least=0) if "time_s" in item else None,
        )
        if len(self.faults) == before and seed.box is None and not any(point.positive for point in seed.points):
            found = "only negative points and no box" if seed.points else "neither points nor box"
            self.fault(where, f"has {found}; add a point on the object, or a box")
        return seed

    def points(self, item: Mapping[str, Any], where: str) -> tuple[Point, ...]:
        points = self.sequence(item.get("points", []), f"{where}.points", of="[x, y]")
        pairs = [self.point(point, f"{where}.points[{index}]") for index, point in enumerate(points)]
        labels = self.sequence(item.get("labels", [1] * len(pairs)), f"{where}.labels", of="1 and 0")
        for index, label in enumerate(labels):
            if type(label) is not int or label not in (0, 1):
                self.fault(f"{where}.labels[{index}]", f"is {show(label)}, expected 1 (on the object) or 0 (beside it)")
        if isinstance(item.get("labels", []), list) and len(labels) != len(pairs):
            self.fault(f"{where}.labels", f"has {len(labels)} for {len(pairs)} points; every point needs its own")
        return tuple(Point(*pair, positive=label == 1) for pair, label in zip(pairs, labels, strict=False))

    def point(self, value: Any, where: str) -> tuple[float, float]:
        if not isinstance(value, list) or len(value) != 2:
            self.fault(where, f"is {show(value)}, expected [x, y]")
            return 0.0, 0.0
        return self.number(value[0], f"{where}.x"), self.number(value[1], f"{where}.y")

    def box(self, value: Any, where: str) -> Box:
        if not isinstance(value, list) or len(value) != 4:
            self.fault(where, f"is {show(value)}, expected [x1, y1, x2, y2]")
            return 0.0, 0.0, 1.0, 1.0
        x1, y1 = self.number(value[0], f"{where}.x1"), self.number(value[1], f"{where}.y1")
        x2, y2 = self.number(value[2], f"{where}.x2"), self.number(value[3], f"{where}.y2")
        for axis, low, high in (("x", x1, x2), ("y", y1, y2)):
            if high <= low:
                text = f"is {high}, not beyond {axis}1 {low}; a box is [x1, y1, x2, y2], not [x, y, width, height]"
                self.fault(f"{where}.{axis}2", text)
        return x1, y1, x2, y2

    def number(self, value: Any, where: str, *, least: float = -_FAR) -> float:
        """A float; NaN, which compares false with everything, after a fault."""
        if type(value) in (int, float) and least <= value <= _FAR:
            return float(value)
        self.fault(where, f"is {show(value)}, expected a finite number" + (" not below 0" if least == 0 else ""))
        return float("nan")

    def whole(self, value: Any, where: str, *, least: int) -> int:
        """An int; -1 after a fault."""
        if type(value) is int and least <= value <= _FAR:
            return value
        self.fault(where, f"is {show(value)}, expected a whole number from {least} on")
        return -1

    def category(self, value: Any, where: str) -> str:
        if isinstance(value, str) and value and value == value.strip() and not re.search(r"[\ud800-\udfff]", value):
            return value
        self.fault(where, f"is {show(value)}, expected a name, no blanks around it")
        return ""

    def sequence(self, value: Any, where: str, *, of: str) -> list[Any]:
        if isinstance(value, list):
            return value
        self.fault(where, f"is {show(value)}, expected a list of {of}")
        return []

    def fields(self, value: Any, where: str, *, known: Sequence[str], required: Sequence[str]) -> bool:
        """Whether the value is an object at all; its keys are checked."""
        if not isinstance(value, dict):
            self.fault(where, f"is {show(value)}, expected an object with {', '.join(known)}")
            return False
        self.repeats(value, where)
        for key in (key for key in value if key not in known):
            near = get_close_matches(key[:20].lower(), known, n=1)
            advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            self.fault(where, f"has an unknown key {key!r}; {advice}")
        for key in (key for key in required if key not in value):
            self.fault(where, f"has no {key!r}; add it")
        return True

    def repeats(self, value: dict[str, Any], where: str) -> None:
        for key in value.repeated if isinstance(value, Repeating) else ():
            self.fault(where, f"has the key {key!r} more than once; join them")
