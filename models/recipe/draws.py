"""Random numbers that a seed decides, whatever the device."""

from __future__ import annotations

import torch
from torch import Tensor


class Draws:
    """Drawn on the CPU and moved: a seed gives the same scenes on every machine, up to the device's rounding."""

    def __init__(self, seed: int, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.generator = torch.Generator().manual_seed(seed)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator).to(self.device)

    def between(self, low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * self.uniform(*shape)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator).to(self.device)

    def chance(self, probability: float, *shape: int) -> Tensor:
        return self.uniform(*shape) < probability

    def integers(self, end: int, *shape: int) -> Tensor:
        return torch.randint(end, shape, generator=self.generator).to(self.device)

    def choice(self, weights: tuple[float, ...], count: int) -> Tensor:
        """[count] indices, drawn with `weights`."""
        return torch.multinomial(torch.tensor(weights), count, True, generator=self.generator).to(self.device)
