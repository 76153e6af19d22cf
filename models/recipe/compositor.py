"""Paint scenes and clips: layers over a backdrop, with exact labels; the same code on every device.

Images are uint8 [n, frames, 3, 256, 256]; labels are uint8 of the same shape and hold, for each pixel, the number of
the whole thing, of the piece and of the colour region that are visible there; 0 where there is none.
"""

from __future__ import annotations

from math import exp

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from models.recipe.camera import Camera, smoothed
from models.recipe.draws import Draws
from models.recipe.layers import Layer, crowd, jittered, layers, photographs
from models.recipe.options import SIDE
from models.recipe.sources import Bank
from models.recipe.textures import surfaces

_SLOTS = 8
_ROOM = 64
"""Pixels by which a backdrop is larger than a frame, for a camera that pans."""


@torch.no_grad()
def scenes(bank: Bank, draws: Draws, count: int, *, frames: int = 1) -> tuple[Tensor, Tensor]:
    """Images and labels of `count` scenes, or clips if `frames` is more than one."""
    moving = frames > 1
    backdrop = _backdrops(bank, draws, count)
    things = layers(bank, draws, count, slots=_SLOTS, moving=moving)
    if moving:
        things.append(_passer_by(bank, draws, count))
    camera = Camera.draw(draws, count)
    pan = draws.between(-7, 7, count, 2) * draws.chance(0.6, count, 1) * moving
    flicker = 0.06 * draws.normal(count, 1, 1, 1) * moving
    lit = _light(draws, count)
    images, labels = [], []
    for time in range(frames):
        image, label = _paint(_view(backdrop, pan * time), things, time)
        images.append(camera.shoot(image * lit * (1 + flicker * time), draws))
        labels.append(label)
    return torch.stack(images, 1), torch.stack(labels, 1)


@torch.no_grad()
def crowds(bank: Bank, draws: Draws, count: int) -> tuple[Tensor, Tensor]:
    """Scenes of many small things alike."""
    image, label = _paint(
        _view(_backdrops(bank, draws, count), torch.zeros(count, 2, device=draws.device)), crowd(bank, draws, count), 0
    )
    return Camera.draw(draws, count).shoot(image * _light(draws, count), draws)[:, None], label[:, None]


@torch.no_grad()
def nuclei(bank: Bank, draws: Draws, count: int) -> tuple[Tensor, Tensor]:
    """Windows of the microscopy pictures, with their instances as wholes, pieces and regions alike."""
    images, labels = [], []
    for index in draws.integers(len(bank.nuclei), count).tolist():
        picture, instances = bank.nuclei[index]
        height, width = picture.shape[1:]
        side = min(int(exp(float(draws.between(4.55, 6.0, 1)))), height, width)
        top, left = (int(float(draws.uniform(1)) * (room - side + 1)) for room in (height, width))
        window = (..., slice(top, top + side), slice(left, left + side))
        rgb = picture[window][None].to(draws.device).float() / 255
        images.append(F.interpolate(rgb, size=(SIDE, SIDE), mode="bilinear", antialias=side > SIDE))
        numbers = F.interpolate(instances[window][None].float(), size=(SIDE, SIDE), mode="nearest")
        labels.append(_compact(numbers.long()).to(draws.device))
    rgb = torch.cat(images)
    rgb = torch.where(draws.chance(0.5, count)[:, None, None, None], jittered(rgb, draws), rgb)
    label = torch.cat(labels).expand(-1, 3, -1, -1).to(torch.uint8)
    return Camera.draw(draws, count).shoot(rgb, draws)[:, None], label[:, None]


def _compact(numbers: Tensor) -> Tensor:
    """Instance numbers as 0..200; rarer ones beyond become background."""
    _, inverse = torch.unique(numbers, return_inverse=True)
    inverse = inverse + int(numbers.min() > 0)
    return torch.where(inverse > 200, 0, inverse)


def _backdrops(bank: Bank, draws: Draws, count: int) -> Tensor:
    side = SIDE + 2 * _ROOM
    photo = photographs(bank, draws, count, side, smallest=0.2, largest=1.0)
    paint = F.interpolate(surfaces(draws, count, side // 2), size=(side, side), mode="bilinear")
    backdrop = torch.where(draws.chance(0.6, count)[:, None, None, None], photo, paint)
    backdrop = torch.where(draws.chance(0.6, count)[:, None, None, None], jittered(backdrop, draws), backdrop)
    blur = draws.between(0.5, 4, count) * draws.chance(0.4, count)
    return smoothed(backdrop, blur)


def _light(draws: Draws, count: int) -> Tensor:
    """[n, 1, 256, 256]: light that falls unevenly over a third of the scenes, things and backdrop alike."""
    grid = draws.normal(count, 1, 3, 3) * draws.between(0.1, 0.35, count, 1, 1, 1) * draws.chance(0.35, count, 1, 1, 1)
    return (1 + F.interpolate(grid, size=(SIDE, SIDE), mode="bicubic", align_corners=False)).clamp(min=0.2)


def _view(backdrop: Tensor, offset: Tensor) -> Tensor:
    """The frame in the middle of each backdrop, moved by `offset` pixels."""
    whole = backdrop.shape[-1]
    theta = torch.zeros(len(backdrop), 2, 3, device=backdrop.device)
    theta[:, 0, 0] = theta[:, 1, 1] = SIDE / whole
    theta[:, :, 2] = offset * 2 / whole
    grid = F.affine_grid(theta, [len(backdrop), 3, SIDE, SIDE], align_corners=False)
    return F.grid_sample(backdrop, grid, padding_mode="reflection", align_corners=False)


def _passer_by(bank: Bank, draws: Draws, count: int) -> Layer:
    """A fast thing in front of everything, in a third of the clips."""
    (layer,) = layers(bank, draws, count, slots=1, moving=True)
    layer.active = draws.chance(0.35, count)
    layer.velocity = layer.velocity * 2.5
    layer.size = layer.size * 0.7
    return layer


def _paint(image: Tensor, things: list[Layer], time: int) -> tuple[Tensor, Tensor]:
    label = torch.zeros(len(image), 3, SIDE, SIDE, dtype=torch.uint8, device=image.device)
    whole = torch.zeros(len(image), dtype=torch.uint8, device=image.device)
    for number, thing in enumerate(things, 1):
        whole = torch.where(thing.joins, whole, number).to(torch.uint8)
        colour, alpha, region = _placed(thing, time)
        if bool((thing.shadow > 0).any()):
            image = image * (1 - thing.shadow[:, None, None, None] * _shadow(alpha))
        image = image * (1 - alpha) + colour
        numbers = torch.stack([whole, torch.full_like(whole, number)], 1)[:, :, None, None].expand(-1, 2, SIDE, SIDE)
        mine = torch.cat([numbers, region + 1], 1) * thing.labelled[:, None, None, None]
        label = torch.where(alpha > 0.5, mine, label)
    return image, label


def _placed(thing: Layer, time: int) -> tuple[Tensor, Tensor, Tensor]:
    """A layer's premultiplied colours, alpha and colour regions on the frame."""
    place, size, angle = thing.at(time)
    count = len(size)
    half = size / SIDE
    across = half * thing.aspect.sqrt() * torch.where(thing.flip, -1.0, 1.0)
    down = half / thing.aspect.sqrt()
    cos, sin = angle.cos(), angle.sin()
    theta = torch.stack([cos / across, sin / across, -sin / down, cos / down], 1).reshape(count, 2, 2)
    theta = torch.cat([theta, -(theta @ place[:, :, None])], 2)
    grid = F.affine_grid(theta, [count, 5, SIDE, SIDE], align_corners=False)
    alpha = thing.patch[:, 3:4] * thing.active[:, None, None, None]
    drawn = F.grid_sample(_coarser(torch.cat([thing.patch[:, :3] * alpha, alpha], 1), size), grid, align_corners=False)
    region = F.grid_sample(thing.patch[:, 4:], grid, mode="nearest", align_corners=False)
    return drawn[:, :3], drawn[:, 3:], region.to(torch.uint8)


def _coarser(patch: Tensor, size: Tensor) -> Tensor:
    """Patches that will be drawn small lose their detail first, as a lens would have it."""
    half = F.interpolate(F.avg_pool2d(patch, 2), scale_factor=2, mode="bilinear")
    quarter = F.interpolate(F.avg_pool2d(patch, 4), scale_factor=4, mode="bilinear")
    size = size[:, None, None, None]
    return torch.where(size < 40, quarter, torch.where(size < 80, half, patch))


def _shadow(alpha: Tensor) -> Tensor:
    """The outline, softened, and moved down to the right."""
    small = F.avg_pool2d(alpha, 8)
    soft = F.avg_pool2d(F.pad(small, (1, 1, 1, 1)), 3, 1)
    wide = F.interpolate(soft, size=alpha.shape[-2:], mode="bilinear")
    return F.pad(wide, (4, 0, 7, 0))[..., : alpha.shape[-2], : alpha.shape[-1]]
