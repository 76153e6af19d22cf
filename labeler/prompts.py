"""Turn clicks and boxes into sparse prompt tokens, and candidates into one chosen mask.

Mirrors `Sam2PromptEncoder` and `Sam2MaskDecoder` of transformers (checked against them in tests).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeler.errors import UsageError
from labeler.types import Array, Box, Candidates, Point

STABILITY_DELTA = 0.05
STABILITY_THRESHOLD = 0.98
UNSTABLE = "best_predicted_iou_as_single_mask_was_unstable"
"""The rule by which another candidate stands in for candidate 0."""
MODEL_SPACE = 1024
"""Side of the model's square image, in which prompts are expressed."""


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """Sparse tokens of one object, padded to the decoder's count."""

    sparse_nc: Array
    """[tokens the decoder takes, 256]"""
    token_mask_n: Array
    """[tokens the decoder takes]: 1 for a used token, 0 for padding."""
    ambiguous: bool
    """One click: the decoder's three multimask candidates compete. Else candidate 0 is tried first."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which candidate was taken, and by which rule."""

    candidate: int
    rule: str


def encode(
    points: Sequence[Point],
    box: Box | None,
    constants: Mapping[str, NDArray[Any]],
    *,
    height: int,
    width: int,
    tokens: int,
) -> Prompt:
    """Tokens for points and a box given in pixels of an upright image of `height` x `width`.

    `constants` holds gaussian [2, 128], positive, negative, not_a_point [256] and, for boxes, top_left and
    bottom_right [256]. The order is points, box corners, not_a_point, as the reference has it.
    Raises UsageError if the decoder takes fewer than the `needed_tokens`.
    """
    if (needed := needed_tokens(points, box)) > tokens:
        raise UsageError(f"the prompt needs {needed} tokens, this bundle's decoder takes {tokens}")
    places = [(point.x, point.y) for point in points]
    kinds = ["positive" if point.positive else "negative" for point in points]
    if box is not None:
        places += [(box[0], box[1]), (box[2], box[3])]
        kinds += ["top_left", "bottom_right"]
    gaussian = constants["gaussian"]
    xy_n2 = np.asarray(places, np.float64) * (MODEL_SPACE / width, MODEL_SPACE / height)
    phase = 2 * np.pi * ((2 * (xy_n2 + 0.5) / MODEL_SPACE - 1) @ gaussian.astype(np.float64))
    used = np.concatenate([np.sin(phase), np.cos(phase)], axis=1) + [constants[kind] for kind in kinds]
    sparse_nc = np.zeros((tokens, used.shape[1]), gaussian.dtype)
    sparse_nc[: len(used)] = used
    sparse_nc[len(used)] = constants["not_a_point"]
    token_mask_n = np.zeros(tokens, gaussian.dtype)
    token_mask_n[:needed] = 1
    return Prompt(sparse_nc, token_mask_n, ambiguous=len(points) == 1 and box is None)


def needed_tokens(points: Sequence[Point], box: Box | None) -> int:
    """One per point, two for a box, one for the closing not_a_point."""
    return len(points) + (2 if box is not None else 0) + 1


def stability(logits_hw: Array) -> float:
    """Area of logits above 0.05 over area above -0.05: how little the outline depends on the threshold.

    1.0 for a mask without any logits above -0.05, as `_get_stability_scores` has it.
    """
    outer = int(np.count_nonzero(logits_hw > -STABILITY_DELTA))
    return int(np.count_nonzero(logits_hw > STABILITY_DELTA)) / outer if outer else 1.0


def choose(candidates: Candidates, *, ambiguous: bool) -> Choice:
    """The candidate that SAM 2.1 would return.

    One click or a tracked frame: best predicted IoU among 1..3. Otherwise candidate 0, unless its stability is
    below 0.98. A decoder without scores: candidate 0 (the bundle says what that is).
    """
    if candidates.iou_n is None:
        return Choice(0, "first")
    best = 1 + int(np.argmax(candidates.iou_n[1:]))
    if ambiguous:
        return Choice(best, "best_predicted_iou")
    if stability(candidates.logits_nhw[0]) >= STABILITY_THRESHOLD:
        return Choice(0, "single_mask")
    return Choice(best, UNSTABLE)


def agreement(logits_hw: Array, points: Sequence[Point], *, height: int, width: int) -> int:
    """How many points lie on the right side of a mask: positives inside, negatives outside.

    `logits_hw` is low resolution; each point is looked up where bilinear upsampling would put it.
    """
    return sum((_logit_at(logits_hw, point, height, width) > 0) == point.positive for point in points)


def _logit_at(logits_hw: Array, point: Point, height: int, width: int) -> float:
    rows, cols = logits_hw.shape
    # A point is the place of its pixel's centre minus one half, as in the tokens above.
    y = min(max((point.y + 0.5) * rows / height - 0.5, 0.0), rows - 1.0)
    x = min(max((point.x + 0.5) * cols / width - 0.5, 0.0), cols - 1.0)
    top, left = int(y), int(x)
    patch = logits_hw[top : top + 2, left : left + 2]
    weight_y = np.array([1 - (y - top), y - top])[: patch.shape[0]]
    weight_x = np.array([1 - (x - left), x - left])[: patch.shape[1]]
    return float(weight_y @ patch @ weight_x)
