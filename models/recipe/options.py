"""Everything that a person may choose about the model and its training."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

SIDE = 256
"""Side of a training scene, and of the encoder's finest map."""
FRAMES = 4
"""Frames of a training clip."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Sizes of the model; stored in every checkpoint."""

    stride: int = 1
    """1: the encoder sees 256 pixels of the 1024 contract, 2: it sees 512."""
    widths: tuple[int, int, int, int, int] = (16, 32, 64, 96, 160)
    """Channels at 256, 128, 64, 32 and 16 pixels."""
    decoder: tuple[int, int, int] = (48, 64, 96)
    """Channels of the decoder at 64, 32 and 16 pixels."""
    codes: int = 24
    """Colour classes of the decoder's foreground and background histograms."""
    prompt_tokens: int = 8

    def record(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """One run; everything here but `minutes` decides the weights."""

    seed: int = 1
    steps: int = 5600
    images: int = 8
    clicks: int = 3
    """Objects clicked in each image."""
    clips: int = 3
    objects: int = 2
    """Objects followed in each clip."""
    rate: float = 2e-3
    settle_from: float = 0.3
    """Share of the run after which batch norms stand still: microscopy and drawings share their statistics badly."""
    clips_from: float = 0.5
    """Share of the run after which every third batch is of clips: the image batches keep the click decoder whole."""
    fine_from: float = 0.45
    """Share of the run after which masks are judged at 256 instead of 128 pixels."""
    wake: bool = False
    """Whether a run from a model at rest wakes its batch norms, and looks for memory's keys again."""
    corrections: float = 0.3
    """Share of image batches in which a second point corrects the largest error of the first answer."""

    def record(self) -> dict[str, Any]:
        return asdict(self)
