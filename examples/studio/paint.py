"""Colours on a plane: value noise, materials for objects, and what lies behind them.

Every function takes the generator that decides its look and returns float32 RGB in 0..1.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Floats: TypeAlias = NDArray[np.floating[Any]]
Colour: TypeAlias = tuple[float, float, float]
Material: TypeAlias = Callable[[np.random.Generator, int, Colour], Floats]


def noise(rng: np.random.Generator, height: int, width: int, cells: tuple[int, int], octaves: int = 3) -> Floats:
    """Value noise in -1..1, shape [height, width]; `cells` are the first octave's rows and columns."""
    total = np.zeros((height, width), np.float32)
    for octave in range(octaves):
        rows, columns = (max(2, min(cell << octave, side)) for cell, side in zip(cells, (height, width), strict=True))
        grid = Image.fromarray(rng.random((rows, columns), np.float32) * 2 - 1)
        total += np.asarray(grid.resize((width, height), Image.Resampling.BICUBIC)) * np.float32(0.5**octave)
    return total / np.float32(2 - 0.5 ** (octaves - 1))


def colour(hue: float, saturation: float, value: float) -> Colour:
    """RGB of a hue given in turns."""
    return colorsys.hsv_to_rgb(hue % 1, saturation, value)


def mix(amount_hw: Floats, first: Colour, second: Colour) -> Floats:
    """`first` where the amount is 0, `second` where it is 1."""
    start, end = np.asarray(first, np.float32), np.asarray(second, np.float32)
    return start + np.clip(amount_hw, 0, 1)[..., None] * (end - start)


def _dimmed(base: Colour, factor: float) -> Colour:
    red, green, blue = (min(1.0, channel * factor) for channel in base)
    return red, green, blue


def _axes(side: int) -> tuple[Floats, Floats]:
    line = np.linspace(0, 1, side, dtype=np.float32)
    return line[None, :], line[:, None]


def paint(rng: np.random.Generator, side: int, base: Colour) -> Floats:
    """Nearly one colour, as of enamel."""
    return mix(0.5 + 0.5 * noise(rng, side, side, (3, 3)), _dimmed(base, 0.93), _dimmed(base, 1.05))


def clay(rng: np.random.Generator, side: int, base: Colour) -> Floats:
    """Soft blotches and fine grain."""
    blotches = noise(rng, side, side, (5, 5), 4) + 0.5 * noise(rng, side, side, (side // 3, side // 3), 1)
    return mix(0.5 + 0.6 * blotches, _dimmed(base, 0.75), _dimmed(base, 1.12))


def fabric(rng: np.random.Generator, side: int, base: Colour) -> Floats:
    """A weave of threads with uneven dye."""
    x, y = _axes(side)
    turns = np.float32(2 * np.pi * rng.uniform(26, 40))
    weave = np.sin(turns * x) * np.sin(turns * y) + noise(rng, side, side, (4, 4))
    return mix(0.5 + 0.4 * weave, _dimmed(base, 0.78), _dimmed(base, 1.1))


def wood(rng: np.random.Generator, side: int, base: Colour) -> Floats:
    """Growth rings bent by noise, with grain along x."""
    _, y = _axes(side)
    bent = y * np.float32(rng.uniform(3, 6)) + 0.5 * noise(rng, side, side, (3, 2))
    rings = np.abs(np.sin(np.float32(np.pi) * bent)) + 0.5 * noise(rng, side, side, (side // 3, 4), 1)
    return mix(rings, _dimmed(base, 0.72), _dimmed(base, 1.05))


def stone(rng: np.random.Generator, side: int, base: Colour) -> Floats:
    """Speckle of many sizes, less colourful than asked."""
    grey = sum(base) / 3
    dull = (0.5 * (base[0] + grey), 0.5 * (base[1] + grey), 0.5 * (base[2] + grey))
    return mix(0.5 + 0.8 * noise(rng, side, side, (6, 6), 5), _dimmed(dull, 0.66), _dimmed(dull, 1.2))


def stripes(rng: np.random.Generator, side: int, base: Colour) -> Floats:
    """Two colours in bands."""
    x, y = _axes(side)
    angle = rng.uniform(0, np.pi)
    along = x * np.float32(np.cos(angle)) + y * np.float32(np.sin(angle))
    bands = np.sin(np.float32(2 * np.pi * rng.uniform(3, 6)) * along + 0.3 * noise(rng, side, side, (3, 3)))
    return mix(0.5 + 5 * bands, base, _partner(rng, base))


def checks(rng: np.random.Generator, side: int, base: Colour) -> Floats:
    """Two colours in squares."""
    x, y = _axes(side)
    turns = np.float32(2 * np.pi * rng.uniform(2, 4))
    return mix(0.5 + 9 * np.sin(turns * x) * np.sin(turns * y), base, _partner(rng, base))


def _partner(rng: np.random.Generator, base: Colour) -> Colour:
    hue, saturation, _ = colorsys.rgb_to_hsv(*base)
    return colour(hue + rng.uniform(-0.08, 0.08), saturation * 0.25, 0.93)


COHERENT: tuple[Material, ...] = (paint, paint, clay, fabric, wood, stone)
PATTERNED: tuple[Material, ...] = (stripes, checks)
GROUNDS: tuple[Material, ...] = (wood, fabric, clay, stone)


def flat_backdrop(rng: np.random.Generator, height: int, width: int, base: Colour) -> Floats:
    """A surface seen from above: [height, width, 3]."""
    side = max(height, width)
    pick = GROUNDS[rng.integers(len(GROUNDS))]
    top, left = (side - height) // 2, (side - width) // 2
    return pick(rng, side, base)[top : top + height, left : left + width]


def room_backdrop(rng: np.random.Generator, height: int, width: int, horizon: int, base: Colour) -> Floats:
    """A wall above a ground that runs towards the `horizon` row: [height, width, 3]."""
    picture = np.empty((height, width, 3), np.float32)
    wall = colour(rng.uniform(0, 1), rng.uniform(0.04, 0.22), rng.uniform(0.6, 0.9))
    picture[:horizon] = mix(
        0.5 + 0.35 * noise(rng, horizon, width, (3, 4), 5), _dimmed(wall, 0.84), _dimmed(wall, 1.06)
    )
    picture[horizon:] = _receding(rng, height - horizon, width, base)
    skirting = max(1, height // 60)
    picture[horizon - skirting : horizon] *= np.float32(0.72)
    return picture


def _receding(rng: np.random.Generator, height: int, width: int, base: Colour) -> Floats:
    side = max(64, min(512, width))
    texture = GROUNDS[rng.integers(len(GROUNDS))](rng, side, base)
    nearness = (np.arange(height, dtype=np.float32)[:, None] + 0.35 * height) / (1.35 * height)
    u = (np.arange(width, dtype=np.float32)[None, :] - width / 2) / width / nearness + 0.5
    v = 1.2 / nearness
    far = np.clip(1.6 * nearness - 0.25, 0.35, 1)[..., None]
    ground: Floats = texture.mean((0, 1)) * (1 - far) + texture[_mirrored(v, side), _mirrored(u, side)] * far
    return ground


def _mirrored(coordinate: Floats, side: int) -> NDArray[np.intp]:
    """Texture rows of an endless coordinate; every second repeat is mirrored, so there are no seams."""
    return (np.abs((coordinate % 2) - 1) * (side - 1)).astype(np.intp)


def image(rgb_hwc: Floats) -> Image.Image:
    """The picture of colours in 0..1; what lies outside is cut off."""
    return Image.fromarray((np.clip(rgb_hwc, 0, 1) * np.float32(255) + np.float32(0.5)).astype(np.uint8))
