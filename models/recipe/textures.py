"""Surfaces and outlines that nobody photographed: batches of [n, 3, side, side] and of [n, 1, side, side]."""

from __future__ import annotations

from math import pi

import torch
import torch.nn.functional as F  # noqa: N812 - the name that every PyTorch program uses
from torch import Tensor

from models.recipe.draws import Draws


def colours(draws: Draws, count: int) -> Tensor:
    """[n, 3, 1, 1] in 0..1: any hue, a third of them greys."""
    colour = draws.uniform(count, 3)
    grey = draws.uniform(count, 1) + 0.05 * draws.normal(count, 3)
    return torch.where(draws.chance(0.3, count)[:, None], grey, colour).clamp(0, 1)[:, :, None, None]


def noise(draws: Draws, count: int, side: int) -> Tensor:
    """[n, 1, side, side] in 0..1: a few octaves of smooth noise."""
    total = torch.zeros(count, 1, side, side, device=draws.device)
    for octave, cells in enumerate((3, 6, 12, 24, 48)):
        grid = draws.normal(count, 1, cells, cells)
        share = draws.uniform(count, 1, 1, 1) ** (1 + octave)
        total += share * F.interpolate(grid, size=(side, side), mode="bicubic", align_corners=False)
    low, high = total.amin((2, 3), keepdim=True), total.amax((2, 3), keepdim=True)
    return (total - low) / (high - low + 1e-6)


def directions(draws: Draws, count: int, side: int) -> tuple[Tensor, Tensor]:
    """Twice [n, 1, side, side]: how far a pixel lies from the centre along a random direction and across it."""
    axis = torch.linspace(-1, 1, side, device=draws.device)
    y, x = axis[None, None, :, None], axis[None, None, None, :]
    angle = draws.uniform(count, 1, 1, 1) * 2 * pi
    return x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()


def surfaces(draws: Draws, count: int, side: int) -> Tensor:
    """Noise, stripes, checks, gradients and flat paint between two colours."""
    along, across = directions(draws, count, side)
    smooth = noise(draws, count, side)
    frequency = 4 + 40 * draws.uniform(count, 1, 1, 1) ** 1.5
    wave = (along * frequency + 3 * smooth * draws.chance(0.4, count, 1, 1, 1)).sin()
    stripes = torch.where(draws.chance(0.5, count, 1, 1, 1), (wave > 0).float(), 0.5 + 0.5 * wave)
    checks = ((wave > 0) ^ ((across * frequency).sin() > 0)).float()
    every = torch.stack([smooth, stripes, checks, 0.5 + 0.5 * along.clamp(-1, 1), torch.ones_like(smooth)])
    kind = draws.choice((0.4, 0.2, 0.08, 0.18, 0.14), count)
    blend = every[kind, torch.arange(count, device=draws.device)]
    surface = colours(draws, count) * blend + colours(draws, count) * (1 - blend)
    grain = 0.06 * draws.uniform(count, 1, 1, 1) * draws.chance(0.4, count, 1, 1, 1)
    return (surface + grain * draws.normal(count, 3, side, side)).clamp(0, 1)


def divided(draws: Draws, count: int, side: int) -> Tensor:
    """[n, 1, side, side] bool: one side of a wavy line, or smooth spots."""
    grid = draws.normal(count, 1, 4, 4)
    rough = F.interpolate(grid, size=(side, side), mode="bicubic", align_corners=False)
    along, _ = directions(draws, count, side)
    steep = torch.where(draws.chance(0.6, count, 1, 1, 1), 6.0, 0.5)
    return rough + steep * along > 0.5 * draws.normal(count, 1, 1, 1)


def outlines(draws: Draws, count: int, side: int) -> Tensor:
    """Alpha of smooth lumps, stars, ellipses, boxes and polygons, with soft edges; they fill the square."""
    axis = torch.linspace(-1, 1, side, device=draws.device)
    y, x = axis[:, None].expand(side, side), axis[None, :].expand(side, side)
    angle, length = torch.atan2(y, x)[None], torch.hypot(x, y)[None]
    radius = torch.ones(count, side, side, device=draws.device)
    for order in range(1, 8):
        strength = 0.34 * draws.normal(count, 1, 1) / order ** (0.5 + 0.7 * draws.uniform(count, 1, 1))
        radius = radius + strength * (order * angle + 2 * pi * draws.uniform(count, 1, 1)).cos()
    radius = radius.clamp(min=0.15)
    lump = radius * 0.95 / radius.amax((1, 2), keepdim=True) - length
    corners = 3 + (6 * draws.uniform(count, 1, 1)).floor()
    turned = angle + 2 * pi * draws.uniform(count, 1, 1)
    sector = 2 * pi / corners
    polygon = 0.95 * (pi / corners).cos() - length * ((turned % sector) - sector / 2).cos()
    flat = 0.25 + 0.7 * draws.uniform(count, 1, 1)
    ellipse = 0.95 - torch.hypot(x[None], y[None] / flat)
    box = torch.minimum(0.95 - x.abs()[None], 0.95 * flat - y.abs()[None])
    every = torch.stack([lump, polygon, ellipse, box])
    kind = draws.choice((0.55, 0.2, 0.13, 0.12), count)
    depth = every[kind, torch.arange(count, device=draws.device)]
    return (0.5 + depth * side / 2).clamp(0, 1)[:, None]


def discs(count: int, side: int, device: torch.device) -> Tensor:
    """Alpha of the disc that fills the square."""
    axis = torch.linspace(-1, 1, side, device=device)
    depth = 0.95 - torch.hypot(axis[:, None], axis[None, :])
    return (0.5 + depth * side / 2).clamp(0, 1).expand(count, 1, side, side)
