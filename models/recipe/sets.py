"""The pictures of the evaluation: true masks, and one click at the deepest point of each object."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
from numpy.typing import NDArray

from labeler.types import Mask, Point, Rgb
from models.recipe import compositor, sources
from models.recipe.draws import Draws
from models.recipe.photos import photographs

COMPOSITES, NUCLEI = "composites of held-out classes", "held-out nuclei"
PHOTOGRAPHS, COINS, EXAMPLES = "photographs", "photograph of coins", "rendered examples"
_SMALLEST = 80
"""Pixels of an object that is asked for, in a picture of 256 x 256."""
_EACH = 4
"""Objects asked for in one picture of the drawn sets."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One picture with its objects."""

    rgb: Rgb
    masks: tuple[Mask, ...]
    names: tuple[str, ...]

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple(deepest(mask) for mask in self.masks)


def deepest(mask: Mask) -> Point:
    """The place farthest from the mask's edge; the picture's border is an edge too."""
    place = np.unravel_index(int(depth(mask).argmax()), mask.shape)
    return Point(float(place[1]), float(place[0]))


def depth(mask: Mask) -> NDArray[np.float32]:
    padded = np.pad(mask, 1).astype(np.uint8)
    result: NDArray[np.float32] = cv2.distanceTransform(padded, cv2.DIST_L2, 5)[1:-1, 1:-1]
    return result


def picture_sets(data: Path, *, pictures: int) -> dict[str, list[Case]]:
    """Every set by name; `pictures` of each drawn one. `data` is the folder of the training material."""
    drawn = {COMPOSITES: _composites(data, pictures), NUCLEI: _nuclei(data, pictures)}
    return drawn | shipped_sets(examples_count=max(2, pictures // 4))


def shipped_sets(*, examples_count: int) -> dict[str, list[Case]]:
    """The sets that need no training material."""
    photos = list(photographs())
    return {
        PHOTOGRAPHS: [_case(*photo) for photo in photos if photo[0] != "coins.png"],
        COINS: [_case(*photo) for photo in photos if photo[0] == "coins.png"],
        EXAMPLES: list(_examples(examples_count)),
    }


def _case(name: str, rgb: Rgb, masks: dict[str, Mask]) -> Case:
    return Case(rgb, tuple(masks.values()), tuple(f"{name}: {each}" for each in masks))


def _composites(data: Path, count: int) -> list[Case]:
    bank = sources.load(data, "held_out")
    images, labels = compositor.scenes(bank, Draws(77), 2 * count)
    cases = (
        _from_labels(f"composite {i}", image, label)
        for i, (image, label) in enumerate(zip(images[:, 0].numpy(), labels[:, 0].numpy(), strict=True))
    )
    return [case for case in cases if case.masks][:count]


def _from_labels(name: str, image: NDArray[np.uint8], label: NDArray[np.uint8]) -> Case:
    """Whole things, the largest first."""
    numbers, sizes = np.unique(label[0], return_counts=True)
    shown = [n for s, n in sorted(zip(sizes, numbers, strict=True), reverse=True) if n and s >= _SMALLEST][:_EACH]
    masks = {f"{number}": label[0] == number for number in shown}
    return _case(name, np.ascontiguousarray(image.transpose(1, 2, 0)), masks)


def _nuclei(data: Path, count: int) -> list[Case]:
    """Whole pictures; four nuclei of each, at even steps from the largest to the smallest that can be clicked."""
    paths = sources.nuclei_paths(data, "held_out")
    cases = []
    for path in paths[:: max(1, len(paths) // count)][:count]:
        picture, instances = (x.numpy() for x in sources.nuclei_picture(path))
        numbers, sizes = np.unique(instances[0], return_counts=True)
        least = _SMALLEST * instances[0].size / 256**2
        known = [n for s, n in sorted(zip(sizes, numbers, strict=True), reverse=True) if n and s >= least]
        shown = [known[i] for i in sorted(set(np.linspace(0, len(known) - 1, _EACH).astype(int)))] if known else []
        rgb = np.ascontiguousarray(picture.transpose(1, 2, 0))
        cases.append(_case(path.stem, rgb, {f"{number}": instances[0] == number for number in shown}))
    return [case for case in cases if case.masks]


def _examples(count: int) -> Iterator[Case]:
    for seed in range(count):
        rgb, labels = examples().render_picture(9000 + seed, 480, 640, 2 + seed % 4)
        masks = {f"{n}": labels == n for n in np.unique(labels) if n and np.count_nonzero(labels == n) >= 400}
        yield _case(f"example {seed}", rgb, masks)


def examples() -> ModuleType:
    """The renderer of examples/, which is no package."""
    folder = str(Path(__file__).resolve().parents[2] / "examples")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import render

    return render
