"""What can be said about one item's seeds alone: do they fit its picture, and are they the same as before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from labeler.types import Seed


def check_inside(seeds: Iterable[Seed], *, height: int, width: int, where: str) -> list[str]:
    """One line for every point or box outside the upright picture of that size in pixels.

    A point lies in 0 <= x < width and 0 <= y < height; the corners of a box may also lie on the far edges.
    """
    faults = []
    for seed in seeds:
        swapped = {name for name, _ in _outside(seed, height=width, width=height)}
        for name, numbers in _outside(seed, height=height, width=width):
            found = ", ".join(repr(float(number)).removesuffix(".0") for number in numbers)
            asked = "mend it" if name in swapped else "was it marked on the unrotated picture, or y given before x?"
            text = f"({found}) is outside the upright picture, width {width}, height {height}; {asked}"
            faults.append(f"{where}: {_named(seed)}: {name}: {text}")
    return faults


def check_still(seeds: Iterable[Seed], where: str) -> list[str]:
    """One line for every seed that speaks of a frame other than a picture's only one."""
    return [
        f"{where}: {_named(seed)}: a picture has frame 0 only; take the frame out, or label it as a clip"
        for seed in seeds
        if seed.frame != 0 or seed.time_s is not None
    ]


def canonical(seeds: Iterable[Seed]) -> str:
    """Canonical JSON: equal for equal seeds in any order of objects, however their numbers were spelled.

    The order of an object's points counts: a decoder may sum them in that order.
    """
    return (
        "[" + ",".join(sorted(json.dumps(_plain(seed), sort_keys=True, separators=(",", ":")) for seed in seeds)) + "]"
    )


def _plain(seed: Seed) -> dict[str, Any]:
    return {
        "object_id": seed.object_id,
        "category": seed.category,
        "frame": seed.frame,
        "time_s": None if seed.time_s is None else _spelled(seed.time_s),
        "points": [[_spelled(point.x), _spelled(point.y), int(point.positive)] for point in seed.points],
        "box": None if seed.box is None else [_spelled(value) for value in seed.box],
    }


def _spelled(value: float) -> float:
    """The one spelling of a number: a float, and no negative zero."""
    return float(value) + 0.0


def _outside(seed: Seed, *, height: int, width: int) -> Iterator[tuple[str, tuple[float, ...]]]:
    for index, point in enumerate(seed.points):
        if not (0 <= point.x < width and 0 <= point.y < height):
            yield f"points[{index}]", (point.x, point.y)
    if seed.box is not None:
        x1, y1, x2, y2 = seed.box
        if not (0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height):
            yield "box", seed.box


def _named(seed: Seed) -> str:
    if seed.time_s is not None:
        return f"object {seed.object_id} at {seed.time_s} s"
    return f"object {seed.object_id}" + (f" on frame {seed.frame}" if seed.frame else "")
