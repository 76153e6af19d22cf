"""Random numbers that a seed decides."""

from __future__ import annotations

import torch
from torch import Tensor


class Draws:
    """Drawn where they are used: a seed gives the same numbers again on the same kind of device."""

    def __init__(self, seed: int, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.generator = torch.Generator(self.device).manual_seed(seed)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, device=self.device)

    def between(self, low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * self.uniform(*shape)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, device=self.device)

    def chance(self, probability: float, *shape: int) -> Tensor:
        return self.uniform(*shape) < probability

    def integers(self, end: int, *shape: int) -> Tensor:
        return torch.randint(end, shape, generator=self.generator, device=self.device)

    def choice(self, weights: tuple[float, ...], count: int) -> Tensor:
        """[count] indices, drawn with `weights`."""
        table = torch.tensor(weights, device=self.device)
        return torch.multinomial(table, count, True, generator=self.generator)
