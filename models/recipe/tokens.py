"""The prompt's numbers: a token says where a point is and what it means, and the decoder reads both back exactly.

The contract's positional encoding is sin and cos of 2 pi (x g0 + y g1). Here 60 frequencies run along x, 60 along y,
and 8 are zero: their sines are free for a code of the token's kind. A weighted sum of a token's sines and cosines is
then a bump along each axis, of any width, at the point's place.
"""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor, nn

KINDS = ("positive", "negative", "not_a_point", "top_left", "bottom_right")
_FREQUENCIES = 60
_BASE = 1 / 2.6
"""The period, 2.6, exceeds the width of the picture in -1..1, so a bump does not come back at the other side."""
_CODE = 2 * _FREQUENCIES
_ONE = 128 + _CODE
"""A place that is 1 for every point: the cosine of a zero frequency."""


def gaussian() -> Tensor:
    """[2, 128]: the frequencies, by axis."""
    table = torch.zeros(2, 128)
    steps = _BASE * torch.arange(1, _FREQUENCIES + 1)
    table[0, :_FREQUENCIES] = steps
    table[1, _FREQUENCIES:_CODE] = steps
    return table


def embedding(kind: str) -> Tensor:
    """[256]: what `kind` adds to a token."""
    vector = torch.zeros(256)
    vector[_CODE + KINDS.index(kind)] = 1
    return vector


def points(places: Tensor, positive: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Tokens [n, count, 256] and their mask [n, count] for points [n, p, 2] in -1..1 with labels [n, p] bool.

    The closing not_a_point is there, as `labeler.prompts.encode` has it.
    """
    phase = 2 * pi * places @ gaussian().to(places.device)
    table = torch.stack([embedding("negative"), embedding("positive")]).to(places.device)
    used = torch.cat([phase.sin(), phase.cos()], 2) + table[positive.long()]
    tokens = torch.zeros(len(places), count, 256, device=places.device)
    tokens[:, : used.shape[1]] = used
    tokens[:, used.shape[1]] = embedding("not_a_point").to(places.device)
    mask = torch.zeros(len(places), count, device=places.device)
    mask[:, : used.shape[1] + 1] = 1
    return tokens, mask


def no_prompt(count: int) -> tuple[Tensor, Tensor]:
    """Tokens [count, 256] and mask [count] of a tracked frame: two not_a_point."""
    tokens, mask = torch.zeros(count, 256), torch.zeros(count)
    tokens[:2], mask[:2] = embedding("not_a_point"), 1
    return tokens, mask


def kind_gate(tokens: Tensor, mask: Tensor, kind: str) -> Tensor:
    """[n, count]: 1 for the tokens of `kind`."""
    place = _CODE + KINDS.index(kind)
    return tokens[:, :, place] * mask


class Bumps(nn.Module):
    """Gaussian bumps of one width: tokens [n, t, 256], gate [n, t] -> [n, 1, side, side], about 1 at the points."""

    def __init__(self, side: int, width: float) -> None:
        super().__init__()
        step = torch.arange(1, _FREQUENCIES + 1)
        spread = 1 / (2 * pi * width * _BASE)
        weight = 2 * (-0.5 * (step / spread) ** 2).exp()
        total = 1 + weight.sum()
        centre = 2 * (torch.arange(side) + 0.5) / side - 1
        phase = 2 * pi * _BASE * step[:, None] * centre
        for axis, name in enumerate(("x", "y")):
            profile = torch.zeros(256, side)
            rows = slice(axis * _FREQUENCIES, (axis + 1) * _FREQUENCIES)
            profile[rows] = weight[:, None] * phase.sin() / total
            profile[128:][rows] = weight[:, None] * phase.cos() / total
            profile[_ONE] = 1 / total
            self.register_buffer(name, profile, persistent=False)

    def forward(self, tokens: Tensor, gate: Tensor) -> Tensor:
        # A product by broadcasting: XNNPACK refuses a matrix product whose left operand is computed and transposed.
        across, down = torch.relu(tokens @ self.x), torch.relu(tokens @ self.y) * gate[:, :, None]
        return (down[..., None] * across[:, :, None]).sum(1, keepdim=True).clamp(max=1.0)
