"""Batch norms: put to rest with the statistics of many batches, or woken in a model that has them at rest."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from models.recipe.blocks import Conv, Residual
from models.recipe.model import Model

_FILTER = 3**-0.5
"""Length of a convolution's filter as PyTorch begins with it."""


@torch.no_grad()
def settle(model: Model, show: Callable[[], None]) -> None:
    """Give the norms the statistics of all batches that `show` runs the model on, not of the last few."""
    for norm in _norms(model):
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean of all batches
    model.train()
    show()


@torch.no_grad()
def wake(model: Model, show: Callable[[], None]) -> None:
    """Make a model at rest fit for training with its norms awake; what it computes at rest stays the same.

    A bundle's filters hold the scale of their norms and may be very short, so that steps of an ordinary rate would
    wreck them: each filter gets the length that it would begin with, and each norm the statistics of what it sees.
    """
    for conv, norm in _pairs(model):
        length = _FILTER / conv.weight.flatten(1).norm(dim=1).clamp(min=1e-8)
        conv.weight.mul_(length[:, None, None, None])
        _restated(norm, _mean(norm) * length, (_var(norm) + norm.eps) * length**2 - norm.eps, keep=False)
    model.eval()
    seen = {norm: _Moments() for norm in _norms(model)}
    hooks = [norm.register_forward_pre_hook(moments.add) for norm, moments in seen.items()]
    show()
    for hook in hooks:
        hook.remove()
    for norm, moments in seen.items():
        _restated(norm, moments.mean(), moments.var(), keep=True)
        norm.momentum = 0.1


class _Moments:
    """Sums over batches of the mean and mean square of each channel."""

    def __init__(self) -> None:
        self.count, self.first, self.second = 0, torch.zeros(()), torch.zeros(())

    def add(self, _: nn.Module, inputs: tuple[Tensor]) -> None:
        x = inputs[0].float()
        self.count += 1
        self.first = self.first.to(x.device) + x.mean((0, 2, 3))
        self.second = self.second.to(x.device) + (x * x).mean((0, 2, 3))

    def mean(self) -> Tensor:
        return self.first / self.count

    def var(self) -> Tensor:
        return (self.second / self.count - self.mean() ** 2).clamp(min=1e-6)


def _restated(norm: nn.BatchNorm2d, mean: Tensor, var: Tensor, *, keep: bool) -> None:
    """Other statistics; with `keep`, and a weight and bias under which the norm at rest does what it did."""
    if keep:
        old = norm.weight / (_var(norm) + norm.eps).sqrt()
        norm.bias.add_((mean - _mean(norm)) * old)
        norm.weight.copy_(old * (var + norm.eps).sqrt())
    _mean(norm).copy_(mean)
    _var(norm).copy_(var)


def _norms(model: Model) -> list[nn.BatchNorm2d]:
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


def _pairs(model: Model) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Convolutions whose result nothing but their norm sees."""
    found = []
    for module in model.modules():
        if isinstance(module, Conv):
            found.append((module[0], module[1]))
        elif isinstance(module, Residual):
            found.append((module.second, module.norm))
    return found


def _mean(norm: nn.BatchNorm2d) -> Tensor:
    assert norm.running_mean is not None
    return norm.running_mean


def _var(norm: nn.BatchNorm2d) -> Tensor:
    assert norm.running_var is not None
    return norm.running_var
