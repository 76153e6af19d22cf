"""Rendered scenes as training batches: any step's batch follows from the seed alone, so a run can go on anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from models.recipe.draws import Draws


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Files of `render`: uint8 [n, frames, 3, 256, 256], mapped."""

    images: np.ndarray
    labels: np.ndarray

    @classmethod
    def open(cls, folder: Path, name: str) -> Store:
        return cls(*(np.load(folder / f"{name}-{part}.npy", mmap_mode="r") for part in ("images", "labels")))

    def take(self, draws: Draws, count: int) -> tuple[Tensor, Tensor]:
        """`count` random entries [count, frames, 3, 256, 256], mirrored, cropped and recoloured."""
        chosen = draws.integers(len(self.images), count).tolist()
        images = torch.from_numpy(np.stack([self.images[i] for i in chosen])).to(draws.device)
        labels = torch.from_numpy(np.stack([self.labels[i] for i in chosen])).to(draws.device)
        return varied(images, labels, draws)


def varied(images: Tensor, labels: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
    """The same view for all frames of an entry."""
    count, frames = images.shape[:2]
    window = torch.where(draws.chance(0.55, count)[:, None], draws.between(0.36, 1.0, count, 2), 1.0)
    window = torch.stack([window[:, 0], (window[:, 0] * (0.8 + 0.45 * window[:, 1])).clamp(0.36, 1.0)], 1)
    theta = torch.zeros(count, 2, 3, device=draws.device)
    theta[:, :, 2] = (2 * draws.uniform(count, 2) - 1) * (1 - window)
    theta[:, 0, 0] = window[:, 0] * torch.where(draws.chance(0.5, count), -1.0, 1.0)
    theta[:, 1, 1] = window[:, 1] * torch.where(draws.chance(0.15, count), -1.0, 1.0)
    flat = (count, frames * 3, *images.shape[3:])
    grid = F.affine_grid(theta, [*flat], align_corners=False)
    seen = F.grid_sample(images.reshape(flat).float(), grid, padding_mode="border", align_corners=False)
    named = F.grid_sample(
        labels.reshape(flat).float(), grid, mode="nearest", padding_mode="border", align_corners=False
    )
    order = torch.where(
        draws.chance(0.3, count)[:, None], draws.uniform(count, 3).argsort(1), torch.arange(3, device=draws.device)
    )
    seen = seen.reshape(images.shape).gather(2, order[:, None, :, None, None].expand_as(images))
    grey = draws.chance(0.1, count)[:, None, None, None, None]
    seen = torch.where(grey, seen.mean(2, keepdim=True), seen)
    return seen.round().to(torch.uint8), named.reshape(labels.shape).to(torch.uint8)
