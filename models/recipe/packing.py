"""What the graphs hand on of a picture: all that the decoder and memory ask of it, so that no click computes it again.

The contract leaves the meaning of pix, hi0 and hi1 to the model. Maps of 64 and 128 pixels that find no room in theirs
lie in hi0 as they are in memory: 16 channels at 64 pixels, or 4 at 128, for each of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from models.recipe.decoder import KEY, Maps
from models.recipe.encoder import IMAGE_CHANNELS, READOUT_CHANNELS

_HI0, _HI1 = 32, 64
_PIX_PARTS = (64, 96, KEY, 24)
"""Channels of plain, similar, keys and look."""


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """A picture as the graphs pass it on. keys [b, 40, 64, 64] and look [b, 24, 64, 64] are memory's."""

    maps: Maps
    keys: Tensor
    look: Tensor


def pack(features: Features) -> tuple[Tensor, Tensor, Tensor]:
    """pix [b, 256, 64, 64] with an empty readout, hi0 [b, 32, 256, 256], hi1 [b, 64, 128, 128]."""
    maps = features.maps
    count = len(maps.plain)
    pix = [maps.plain, maps.similar, features.keys, features.look]
    hi0 = [maps.finest, *(x.reshape(count, -1, 256, 256) for x in (maps.ground, maps.fine_ground))]
    looked = _filled(pix, IMAGE_CHANNELS)
    readout = looked[:, :READOUT_CHANNELS] * 0.0
    return torch.cat([looked, readout], 1), _filled(hi0, _HI0), _filled([maps.fine_similar, maps.codes], _HI1)


def remembered(pix: Tensor) -> tuple[Tensor, Tensor]:
    """keys and look."""
    _, _, keys, look = _cut(pix, *_PIX_PARTS)
    return keys, look


def unpack(pix: Tensor, hi0: Tensor, hi1: Tensor, *, ground: int, codes: int) -> Features:
    """The inverse; `ground` and `codes` are the channels of these maps."""
    plain, similar, keys, look = _cut(pix, *_PIX_PARTS)
    finest, ground_map, fine_ground = _cut(hi0, 12, ground // 16, 4)
    fine_similar, code_map = _cut(hi1, 32, codes)
    maps = Maps(
        plain=plain,
        similar=similar,
        ground=ground_map.reshape(len(pix), ground, 64, 64),
        fine_similar=fine_similar,
        fine_ground=fine_ground.reshape(len(pix), 16, 128, 128),
        codes=torch.relu(code_map),  # as it is: a softmax; a logarithm follows
        finest=finest,
    )
    return Features(maps, keys, look)


def _filled(maps: list[Tensor], channels: int) -> Tensor:
    """Joined; what is left over repeats the beginning, as constants would take megabytes in the file."""
    joined = torch.cat([x.float() for x in maps], 1)
    return torch.cat([joined, joined[:, : channels - joined.shape[1]]], 1)


def _cut(x: Tensor, *sizes: int) -> list[Tensor]:
    """The first channels of x in parts. Cut while flat: a graph would else turn all of x to channels last before."""
    count, _, height, width = x.shape
    flat, area = x.reshape(count, -1), height * width
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    parts = [flat[:, start * area : (start + size) * area] for start, size in zip(starts, sizes, strict=True)]
    return [part.reshape(count, size, height, width) for part, size in zip(parts, sizes, strict=True)]
