"""Read the training material: cut-outs with alpha, backgrounds, microscopy pictures with instance maps."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor

Split = Literal["train", "held_out"]
SPRITE = 128
"""Side of a stored cut-out."""
BACKDROP = 320
_HELD_OUT = {"fruit": 14, "emoji": 12, "clipart": 12, "nuclei": 20, "background": 11}
"""Per cent of classes (fruit), motifs or pictures kept back, by a hash of their name: stable when material is added."""
_PER_FRUIT = 14
_WHITE = 238
_COLOURS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Bank:
    """The material of one split; uint8 tensors."""

    sprites: Tensor
    """[n, 5, 128, 128]: red, green, blue, alpha, and the number of the colour region that a pixel is in."""
    kinds: tuple[str, ...]
    """Per sprite: fruit, emoji or clipart."""
    backdrops: Tensor
    """[n, 3, 320, 320]"""
    nuclei: tuple[tuple[Tensor, Tensor], ...]
    """Pictures [3, h, w] with instance numbers [1, h, w] int16."""


def load(data: Path, split: Split, *, limit: int | None = None) -> Bank:
    """Read `data`/{fruit,emoji,clipart,nuclei,background}. `limit`: at most so many of each, for tests."""
    found = [(kind, sprite) for kind in ("fruit", "emoji", "clipart") for sprite in _sprites(data, kind, split, limit)]
    photographs = sorted(path for path in (data / "background").iterdir() if path.suffix in (".jpg", ".png"))
    backdrops = [each for path in _chosen(photographs, "background", split)[:limit] for each in _backdrops(path)]
    pictures = _chosen(sorted((data / "nuclei").glob("*.webp")), "nuclei", split)
    return Bank(
        sprites=torch.stack([sprite for _, sprite in found]),
        kinds=tuple(kind for kind, _ in found),
        backdrops=torch.stack(backdrops),
        nuclei=tuple(nuclei_picture(path) for path in pictures[:limit]),
    )


def nuclei_picture(path: Path) -> tuple[Tensor, Tensor]:
    """The picture [3, h, w] uint8 and its instance numbers [1, h, w] int16."""
    rgb = np.array(Image.open(path).convert("RGB"))
    instances = np.array(Image.open(path.with_name(f"{path.stem}_instances.png"))).astype(np.int16)
    return torch.from_numpy(rgb).permute(2, 0, 1), torch.from_numpy(instances)[None]


def is_held_out(kind: str, name: str) -> bool:
    return zlib.crc32(name.encode()) % 100 < _HELD_OUT[kind]


def nuclei_paths(data: Path, split: Split) -> list[Path]:
    return _chosen(sorted((data / "nuclei").glob("*.webp")), "nuclei", split)


def _chosen(paths: list[Path], kind: str, split: Split) -> list[Path]:
    # Skin tones and other variants of one emoji share their first code point and stay on one side.
    names = {path: path.parent.name if kind == "fruit" else path.stem.split("-")[0] for path in paths}
    return [path for path in paths if is_held_out(kind, names[path]) == (split == "held_out")]


def _sprites(data: Path, kind: str, split: Split, limit: int | None) -> Iterator[Tensor]:
    if kind == "fruit":
        classes = sorted(path for path in (data / kind).iterdir() if path.is_dir())
        paths = [path for folder in classes for path in sorted(folder.glob("*.jpg"))[:_PER_FRUIT]]
    else:
        paths = sorted((data / kind).glob("*.webp"))
    for path in _chosen(paths, kind, split)[:limit]:
        rgba = _cut_out(path) if kind == "fruit" else Image.open(path).convert("RGBA")
        if rgba is not None and (sprite := _sprite(rgba)) is not None:
            yield sprite


def _cut_out(path: Path) -> Image.Image | None:
    """A photograph on white: what a flood from the border does not reach, opened, eroded and feathered."""
    rgb = Image.open(path).convert("RGB")
    white = Image.fromarray((np.array(rgb).min(2) >= _WHITE).astype(np.uint8) * 255)
    framed = Image.new("L", (white.width + 2, white.height + 2), 255)
    framed.paste(white, (1, 1))
    outside = _flood(np.array(framed) > 0)[1:-1, 1:-1]
    alpha = Image.fromarray((~outside).astype(np.uint8) * 255)
    alpha = alpha.filter(ImageFilter.MinFilter(3)).filter(ImageFilter.MaxFilter(3)).filter(ImageFilter.MinFilter(3))
    if np.count_nonzero(np.array(alpha)) < 200:
        return None
    rgb.putalpha(alpha.filter(ImageFilter.GaussianBlur(0.7)))
    return rgb


def _flood(free: np.ndarray) -> np.ndarray:
    """What can be reached from the corner through `free`, by growing until nothing changes."""
    reached = np.zeros_like(free)
    reached[0, 0] = True
    while True:
        grown = reached.copy()
        for axis in (0, 1):
            for shift in (1, -1):
                grown |= np.roll(grown, shift, axis)
        grown &= free
        if (grown == reached).all():
            return reached
        reached = grown


def _sprite(rgba: Image.Image) -> Tensor | None:
    """Cropped to what is opaque, scaled into the square, with its colour regions as a fifth channel."""
    box = rgba.getchannel("A").point(lambda a: 255 * (a > 127)).getbbox()
    if box is None or min(box[2] - box[0], box[3] - box[1]) < 12:
        return None
    rgba = rgba.crop(box)
    rgba.thumbnail((SPRITE - 4, SPRITE - 4), Image.Resampling.LANCZOS)
    square = Image.new("RGBA", (SPRITE, SPRITE))
    square.paste(rgba, ((SPRITE - rgba.width) // 2, (SPRITE - rgba.height) // 2))
    if np.count_nonzero(np.array(square)[..., 3] > 127) < 0.08 * SPRITE**2:
        return None
    smooth = square.convert("RGB").filter(ImageFilter.GaussianBlur(2))
    regions = np.array(smooth.quantize(_COLOURS + 1, dither=Image.Dither.NONE))
    return torch.from_numpy(np.dstack([np.array(square), regions])).permute(2, 0, 1).contiguous()


def _backdrops(path: Path) -> Iterator[Tensor]:
    """The squares at both ends of a photograph."""
    picture = Image.open(path).convert("RGB")
    side = min(picture.size)
    for left, top in dict.fromkeys([(0, 0), (picture.width - side, picture.height - side)]):
        box = (left, top, left + side, top + side)
        square = picture.resize((BACKDROP, BACKDROP), Image.Resampling.LANCZOS, box)
        yield torch.from_numpy(np.array(square)).permute(2, 0, 1).contiguous()
