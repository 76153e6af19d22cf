"""The objects of scikit-image's photographs, outlined by hand in photos.json: for evaluation, never for training."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

_OUTLINES = Path(__file__).with_name("photos.json")
_FINER = 4
"""Outlines are drawn so many times larger first, for edges that fall between pixels."""


def photographs() -> Iterator[tuple[str, NDArray[np.uint8], dict[str, NDArray[np.bool_]]]]:
    """File name, RGB picture [h, w, 3], and masks [h, w] by object name."""
    import skimage

    folder = Path(skimage.__file__).parent / "data"
    for name, objects in json.loads(_OUTLINES.read_text(encoding="utf-8"))["photographs"].items():
        picture = Image.open(folder / name).convert("RGB")
        alone = {each: _drawn(shape, picture.size) for each, shape in objects.items()}
        yield name, np.array(picture), {each: _without(each, objects, alone) for each in objects}


def _drawn(shape: Mapping[str, Any], size: tuple[int, int]) -> NDArray[np.bool_]:
    large = Image.new("L", (size[0] * _FINER, size[1] * _FINER))
    pen = ImageDraw.Draw(large)
    for outline in shape.get("outlines", ()):
        pen.polygon([(x * _FINER, y * _FINER) for x, y in outline], fill=255)
    for x, y, across, down in shape.get("ellipses", ()):
        pen.ellipse([_FINER * v for v in (x - across, y - down, x + across, y + down)], fill=255)
    return np.array(large.resize(size, Image.Resampling.BOX)) > 127


def _without(name: str, objects: Mapping[str, Any], alone: Mapping[str, NDArray[np.bool_]]) -> NDArray[np.bool_]:
    mask = alone[name].copy()
    for other in objects[name].get("minus", ()):
        mask &= ~alone[other]
    return mask
