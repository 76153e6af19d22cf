"""One click, and one correction, on every object of a set: what a bundle answers through the labeler itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from labeler import masks
from labeler.sam2 import Sam2
from labeler.segment import decide
from labeler.types import Array, Features, Mask, Point, Seed
from models.recipe.baselines import RADII, disc, grab_cut, iou
from models.recipe.sets import Case, deepest, depth

_BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, slots=True)
class Click:
    """What one click gave; IoU with the truth throughout. `predicted` belongs to `scored`."""

    name: str
    chosen: float
    best: float
    corrected: float
    scored: float
    """Of the candidate that the decoder with scores chooses: the same as `chosen` where that serves pictures."""
    predicted: float


def clicks(cases: Sequence[Case], model: Sam2, scored: Sam2) -> list[Click]:
    """`model` serves pictures; `scored` is the same bundle's decoder that predicts IoU."""
    found = []
    for case in cases:
        features = model.encode(case.rgb)
        for name, mask, point in zip(case.names, case.masks, case.points, strict=True):
            found.append(_click(name, mask, point, features, model, scored))
    return found


def _click(name: str, mask: Mask, point: Point, features: Features, model: Sam2, scored: Sam2) -> Click:
    height, width = mask.shape
    candidates, candidate, _ = decide(features, Seed(1, (point,)), model, height=height, width=width)
    first = 0 if candidates.iou_n is None else 1
    answers = {i: _full(candidates.logits_nhw[i], mask) for i in range(first, len(candidates.logits_nhw))}
    overlaps = {i: iou(answer, mask) for i, answer in answers.items()}
    second = correction(answers[candidate], mask)
    corrected = _answer(features, (point, second), model, mask) if second else answers[candidate]
    again, pick, _ = decide(features, Seed(1, (point,)), scored, height=height, width=width)
    assert again.iou_n is not None, "tracking needs scores, so every whole bundle has them"
    return Click(
        name=name,
        chosen=overlaps[candidate],
        best=max(overlaps.values()),
        corrected=iou(corrected, mask),
        scored=iou(_full(again.logits_nhw[pick], mask), mask),
        predicted=float(again.iou_n[pick]),
    )


def correction(answer: Mask, mask: Mask) -> Point | None:
    """A click in the middle of the largest error: positive where the object was missed, negative outside it."""
    missed, extra = mask & ~answer, answer & ~mask
    if not (missed | extra).any():
        return None
    positive = bool(depth(missed).max() >= depth(extra).max())
    place = deepest(missed if positive else extra)
    return Point(place.x, place.y, positive)


def _answer(features: Features, points: tuple[Point, ...], model: Sam2, mask: Mask) -> Mask:
    candidates, candidate, _ = decide(features, Seed(1, points), model, height=mask.shape[0], width=mask.shape[1])
    return _full(candidates.logits_nhw[candidate], mask)


def _full(logits_hw: Array, mask: Mask) -> Mask:
    return masks.upsample(logits_hw, height=mask.shape[0], width=mask.shape[1]) > 0


def baselines(cases: Sequence[Case]) -> dict[str, float]:
    """Mean IoU of GrabCut, and of the disc whose radius suits the whole set best."""
    discs, cuts = [], []
    for case in cases:
        height, width = case.rgb.shape[:2]
        for mask, point in zip(case.masks, case.points, strict=True):
            discs.append([iou(disc(point, radius, height=height, width=width), mask) for radius in RADII])
            cuts.append(iou(grab_cut(case.rgb, point), mask))
    return {"disc": float(np.mean(discs, axis=0).max()), "grab_cut": float(np.mean(cuts))}


def summary(found: Sequence[Click]) -> dict[str, float]:
    names = ("chosen", "best", "corrected", "scored")
    return {"clicks": len(found)} | {name: float(np.mean([getattr(one, name) for one in found])) for name in names}


def calibration(found: Sequence[Click]) -> dict[str, object]:
    """Spearman's rank correlation of predicted with true IoU, mean error, and true means by bins of the prediction."""
    predicted, true = (np.array([getattr(one, name) for one in found]) for name in ("predicted", "scored"))
    bins = []
    for low, high in pairwise(_BINS):
        inside = (predicted >= low) & ((predicted < high) | (high == 1))
        if inside.any():
            row = {"from": low, "to": high, "clicks": int(inside.sum())}
            bins.append(row | {"predicted": float(predicted[inside].mean()), "true": float(true[inside].mean())})
    rank = float(np.corrcoef(_ranks(predicted), _ranks(true))[0, 1])
    return {"rank_correlation": rank, "mean_error": float(np.abs(predicted - true).mean()), "bins": bins}


def _ranks(values: np.ndarray) -> np.ndarray:
    """Places in order, ties at their mean place."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
