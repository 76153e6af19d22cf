"""What is asked of the answers."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from models.recipe.clicks import Targets
from models.recipe.decoder import Answer
from models.recipe.draws import Draws

_LEVEL_WEIGHTS = (0.4, 0.4, 0.2)
"""Whole, piece, part: what each of candidates 1..3 stands for."""


def per_mask(logits: Tensor, target: Tensor) -> Tensor:
    """20 x focal loss + dice loss of logits [n, m, h, w] against target of the same or of broadcast shape: [n, m]."""
    target = target.expand_as(logits)
    chance = torch.sigmoid(logits)
    cross = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    right = chance * target + (1 - chance) * (1 - target)
    focal = ((1 - right) ** 2 * cross).mean((2, 3))
    dice = 1 - (2 * (chance * target).sum((2, 3)) + 1) / (chance.sum((2, 3)) + target.sum((2, 3)) + 1)
    return 20 * focal + dice


@torch.no_grad()
def overlap(logits: Tensor, target: Tensor) -> Tensor:
    """True IoU of logits [n, m, h, w] > 0 with target [n, 1, h, w]: [n, m]."""
    said, true = logits > 0, target > 0.5
    return (said & true).sum((2, 3)) / (said | true).sum((2, 3)).clamp(min=1)


def clicked(answer: Answer, targets: Targets, *, fine: Draws | None, ambiguous: bool) -> tuple[Tensor, Tensor]:
    """Loss [n] of an answered click, and true IoU [n, 4] with what was meant; `fine` as in `_judged`.

    `ambiguous` clicks have a level for each of candidates 1..3, and whichever suits best is pulled to what was meant;
    after a correction all candidates are to be what was meant.
    """
    logits, levels, mask = _judged(answer, (targets.levels, targets.mask), fine)
    if not ambiguous:
        levels = mask.expand_as(levels)
    wanted = torch.cat([mask, levels], 1)
    each = per_mask(logits, wanted)
    best = per_mask(logits[:, 1:], mask).amin(1)
    weights = torch.tensor(_LEVEL_WEIGHTS, device=logits.device)
    rough = per_mask(answer.at32, _resized(wanted, 32)).mean(1)
    true = overlap(logits, mask)
    first = 0.7 if ambiguous else 1.2
    loss = first * each[:, 0] + 0.4 * (each[:, 1:] * weights).sum(1) + best + 0.25 * rough
    return (loss + 2 * (answer.iou - true).square().mean(1)) * targets.valid, true


def followed(
    answer: Answer, readout: Tensor, mask: Tensor, visible: Tensor, *, fine: Draws | None
) -> tuple[Tensor, Tensor]:
    """Loss [n] of a tracked frame with the true mask [n, 1, 256, 256], and true IoU [n, 4]."""
    logits, target = _judged(answer, (mask,), fine)
    each = per_mask(logits, target)
    true = overlap(logits, target)
    small = _resized(mask, 64)
    recalled = sum(
        weight
        * F.binary_cross_entropy(readout[:, i : i + 1].clamp(1e-4, 1 - 1e-4), small, reduction="none").mean((1, 2, 3))
        for i, weight in ((0, 2.0), (2, 0.5))
    )
    rough = per_mask(answer.at32, _resized(mask, 32)).mean(1)
    loss = 0.3 * each[:, 0] + 0.5 * each[:, 1:].amin(1) + 0.5 * each[:, 1:].mean(1) + 0.25 * rough + recalled
    loss = loss + 2 * (answer.iou - true).square().mean(1)
    score = F.binary_cross_entropy_with_logits(answer.score[:, 0], visible, reduction="none")
    return loss * visible + 0.4 * score, true


def _judged(answer: Answer, truths: tuple[Tensor, ...], fine: Draws | None) -> tuple[Tensor, ...]:
    """Logits and truths of 128 x 128: the rough masks, or every second pixel of the fine ones, from a place drawn."""
    if fine is None:
        return answer.at128, *(_resized(truth, 128) for truth in truths)
    top, left = fine.integers(2, 2).tolist()
    return tuple(x[..., top::2, left::2] for x in (answer.masks, *truths))


def _resized(mask: Tensor, side: int) -> Tensor:
    return F.avg_pool2d(mask, mask.shape[-1] // side) if mask.shape[-1] > side else mask
