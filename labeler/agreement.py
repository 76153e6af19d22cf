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
"""Fewer values than this say nothing by their correlation: scores, each compared by itself."""
SCORE = 0.02
"""How far a score may be off, times its size where that is over 1."""


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
        worst, allowed = float(np.abs(a - b).max()), SCORE * max(1.0, float(np.abs(a).max()))
        return f"{name}: differs by {worst:.3g} from the cpu, {allowed:.3g} is allowed" if worst > allowed else None
    if (alike := correlation(a, b)) < CORRELATION:
        return f"{name}: correlation {alike:.4f} with the cpu, {CORRELATION} is needed"
    off, allowed = float(np.linalg.norm(a - b)), SCALE * float(np.linalg.norm(a))
    if off > allowed:
        return f"{name}: is off by {off:.3g} from the cpu (root of summed squares), {allowed:.3g} is allowed"
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
