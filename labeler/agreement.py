"""Tell whether a graph computed the same on two devices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from labeler.types import Array

CORRELATION = 0.99
MASK_IOU = 0.99
SCALE = 0.15
"""Size of the difference over the size of what is expected; correlation alone forgives a wrong scale or offset."""
FEW = 16
"""Fewer values than this say nothing by their correlation: scores, which must be within `SCORE` of each other."""
SCORE = 0.02


def fault(expected: Mapping[str, Array], found: Mapping[str, Array], inputs: Mapping[str, Array]) -> str | None:
    """Why `found` is not what was `expected`, or None. The first difference is named with its size.

    An output that goes by the name of an input is that input and something added (memory attention): what is added
    must agree too. Outputs called masks [n, h, w] must agree as masks.
    """
    for name, values in expected.items():
        if difference := _part_fault(name, values, found[name]):
            return difference
        if name in inputs and (
            difference := _part_fault(f"what {name} gains", values - inputs[name], found[name] - inputs[name])
        ):
            return difference
    return None


def _part_fault(name: str, expected: Array, found: Array) -> str | None:
    if not np.isfinite(found).all():
        return f"{name}: is not finite"
    a, b = expected.astype(np.float64).ravel(), found.astype(np.float64).ravel()
    if a.size < FEW:
        worst = float(np.abs(a - b).max())
        return f"{name}: differs by {worst:.3g} from the cpu, {SCORE} is allowed" if worst > SCORE else None
    if (alike := correlation(a, b)) < CORRELATION:
        return f"{name}: correlation {alike:.4f} with the cpu, {CORRELATION} is needed"
    if (off := float(np.linalg.norm(a - b))) > SCALE * float(np.linalg.norm(a)):
        return f"{name}: is off by {off / float(np.linalg.norm(a)):.3g} of its size, {SCALE} is allowed"
    return _masks_fault(expected, found) if name == "masks" else None


def correlation(a: Array, b: Array) -> float:
    """Pearson's r of two flat arrays; constant ones are alike (1) if equal, else not at all (0)."""
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    if norm == 0:
        return float(not a.any() and not b.any())
    return float(a @ b) / norm


def _masks_fault(expected: Array, found: Array) -> str | None:
    for i, (a, b) in enumerate(zip(expected > 0, found > 0, strict=True)):
        union = int(np.count_nonzero(a | b))
        iou = int(np.count_nonzero(a & b)) / union if union else 1.0
        if iou < MASK_IOU:
            return f"masks: candidate {i} has IoU {iou:.4f} with the cpu's, {MASK_IOU} is needed"
    return None
