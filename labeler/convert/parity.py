"""Prove a bundle equal to its checkpoint: every graph against transformers' own module on the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeler.bundle import Bundle, load
from labeler.bundle import verify as verify_files
from labeler.convert import reference
from labeler.convert.checkpoint import load_model
from labeler.convert.operators import GraphFacts, read_facts
from labeler.convert.trials import picture, trials
from labeler.runtime import LiteRtRuntime
from labeler.workers import usable_cores

WANTED = {"fp32": 0.99999, "fp16": 0.995, "int8": 0.9}
"""Lowest correlation that counts as equal, by the precision of the weights."""
SCORES = ("iou", "object_score", "occluded")
"""Parts of a few numbers, compared by difference: a correlation of four values says little."""
WANTED_SCORES = {"fp32": 1e-3, "fp16": 1e-2, "int8": 0.1}


@dataclass(frozen=True, slots=True)
class GraphParity:
    """How one graph agrees with its PyTorch module on one kind of input."""

    role: str
    kind: str
    """random or picture"""
    precision: str
    correlation: float
    """Lowest of the graph's large output parts."""
    difference: float
    """Largest absolute difference of any value."""
    score_difference: float
    """The same of predicted IoU and object score; 0 for graphs without."""
    mask_iou: float | None
    """Lowest of the candidates; None for graphs without masks."""
    facts: GraphFacts

    @property
    def equal(self) -> bool:
        close = self.score_difference <= WANTED_SCORES[self.precision]
        return self.correlation >= WANTED[self.precision] and close and not self.facts.refused

    def line(self) -> str:
        masks = (
            ""
            if self.mask_iou is None
            else f", mask IoU {self.mask_iou:.5f}, scores within {self.score_difference:.1e}"
        )
        agreement = f"correlation {self.correlation:.7f}, difference {self.difference:.1e}{masks}"
        return f"{self.role} on {self.kind}: {agreement}: {'equal' if self.equal else 'NOT EQUAL'}"


def verify(bundle_folder: Path, checkpoint: Path, *, progress: Callable[[str], None]) -> list[GraphParity]:
    """See `labeler.convert.verify_export`."""
    bundle = verify_files(load(bundle_folder))
    model = load_model(checkpoint)
    runtime = LiteRtRuntime(bundle, threads=usable_cores())
    results = []
    for role, kinds in trials(model, bundle, picture()).items():
        facts = read_facts(bundle.folder / bundle.graphs[role].file)
        progress(f"{role}: {facts.line()}")
        for kind, parts in kinds.items():
            expected = {name: part.numpy()[0] for name, part in reference.run(model, role, parts).items()}
            found = runtime.run(role, **{name: part.numpy()[0] for name, part in parts.items()})
            results.append(compare(bundle, role, kind, found, expected, facts))
            progress(results[-1].line())
    runtime.close()
    return results


def compare(
    bundle: Bundle,
    role: str,
    kind: str,
    found: dict[str, NDArray[Any]],
    expected: dict[str, NDArray[Any]],
    facts: GraphFacts,
) -> GraphParity:
    large = [name for name in expected if name not in SCORES]
    small = [name for name in expected if name in SCORES]
    return GraphParity(
        role,
        kind,
        bundle.provenance.get("options", {}).get("precision", "fp16"),
        min(correlation(found[name], expected[name]) for name in large),
        max(difference(found[name], expected[name]) for name in expected),
        max((difference(found[name], expected[name]) for name in small), default=0.0),
        lowest_iou(found["masks"], expected["masks"]) if "masks" in expected else None,
        facts,
    )


def correlation(found: NDArray[Any], expected: NDArray[Any]) -> float:
    return float(np.corrcoef(found.astype(np.float64).ravel(), expected.astype(np.float64).ravel())[0, 1])


def difference(found: NDArray[Any], expected: NDArray[Any]) -> float:
    return float(np.abs(found - expected).max())


def lowest_iou(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Lowest IoU of the candidates' masks; two empty masks agree."""
    pairs = [(a > 0, b > 0) for a, b in zip(found, expected, strict=True)]
    return min(float((a & b).sum() / (a | b).sum()) if (a | b).any() else 1.0 for a, b in pairs)
