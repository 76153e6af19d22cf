"""Choose what is asked for, and where a person would click; correct an answer where it is most wrong."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from models.recipe.draws import Draws

_SMALLEST = 80
"""Visible pixels of an object that is asked for."""
_GRID = 64


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    levels: Tensor
    """[n, 3, 256, 256] in 0..1: the whole, the piece and the part that the click is in."""
    wanted: Tensor
    """[n]: which level is meant."""
    number: Tensor
    """[n]: the whole's number in the labels."""
    places: Tensor
    """[n, 1, 2] in -1..1: the click."""
    valid: Tensor
    """[n] in 0..1: 0 where a picture had nothing to ask for."""

    @property
    def mask(self) -> Tensor:
        """[n, 1, 256, 256]: what is meant."""
        return self.levels[torch.arange(len(self.wanted)), self.wanted][:, None]


def choose(labels: Tensor, draws: Draws, *, per_picture: int, weights: tuple[float, float, float]) -> Targets:
    """`per_picture` objects of each of labels [b, 3, 256, 256], the level that is meant drawn with `weights`."""
    pictures, count = len(labels), len(labels) * per_picture
    pieces = labels[:, 1].reshape(pictures, -1).long()
    sizes = torch.zeros(pictures, 256, device=labels.device).scatter_add_(
        1, pieces, torch.ones_like(pieces, dtype=torch.float)
    )
    sizes[:, 0] = 0
    order, ids = (draws.uniform(pictures, 256) * (sizes >= _SMALLEST)).topk(per_picture, 1)
    ids = torch.where(order > 0, ids, ids[:, :1]).reshape(count, 1, 1)
    valid = (order[:, :1] > 0).expand(-1, per_picture).reshape(count).float()
    whole_map, piece_map, part_map = labels.repeat_interleave(per_picture, 0).unbind(1)
    piece = piece_map == ids
    number = (whole_map * piece).amax((1, 2))
    whole = whole_map == number[:, None, None]
    places = deep_places(piece[:, None].float(), draws)
    part = piece & (part_map == _at(part_map, places)[:, None, None])
    part = torch.where(part.sum((1, 2), keepdim=True) >= _SMALLEST, part, piece)
    levels = torch.stack([whole, piece, part], 1).float()
    return Targets(levels, draws.choice(weights, count), number.long(), places[:, None], valid)


def deep_places(mask: Tensor, draws: Draws | None) -> Tensor:
    """[n, 2] in -1..1: a place inside each mask [n, 1, 256, 256], mostly deep; the deepest without draws."""
    depth = _depth(mask)
    least = 1.0
    if draws is not None:
        least = torch.tensor([0.9, 0.5, 0.05], device=mask.device)[draws.choice((0.6, 0.25, 0.15), len(mask))][:, None]
    allowed = depth >= least * depth.amax(1, keepdim=True)
    order = draws.uniform(*depth.shape) if draws is not None else depth
    index = (allowed * (order + 1e-3)).argmax(1)
    centre = torch.stack([index % _GRID, index // _GRID], 1) + 0.5
    return 2 * centre / _GRID - 1


def corrected(targets: Targets, answer: Tensor) -> tuple[Tensor, Tensor]:
    """Places [n, 2, 2] and labels [n, 2]: the click, and one in the largest error of answer [n, 1, 256, 256] > 0."""
    mask, said = targets.mask, (answer > 0).float()
    missed, extra = F.relu(mask - said), F.relu(said - mask)
    positive = _depth(missed).amax(1) >= _depth(extra).amax(1)
    second = deep_places(torch.where(positive[:, None, None, None], missed, extra), None)
    labels = torch.stack([torch.ones_like(positive), positive], 1)
    return torch.cat([targets.places, second[:, None]], 1), labels


def _depth(mask: Tensor) -> Tensor:
    """[n, 4096]: how much of its surroundings, near and wide, belongs to the mask; 0 outside."""
    small = F.avg_pool2d(mask, mask.shape[-1] // _GRID)
    near = sum(F.avg_pool2d(small, side, 1, side // 2) for side in (3, 7, 15))
    return ((small + near) * (small > 0.5) + 1e-3 * small).reshape(len(mask), -1)


def _at(values: Tensor, places: Tensor) -> Tensor:
    """values [n, 256, 256] at places [n, 2]."""
    x, y = ((places + 1) * values.shape[-1] / 2).long().clamp(0, values.shape[-1] - 1).unbind(1)
    return values[torch.arange(len(values)), y, x]
