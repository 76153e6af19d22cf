"""The things of a scene as batches of layers: one cut-out or made-up thing per scene, with its place and motion."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from models.recipe.draws import Draws
from models.recipe.options import SIDE
from models.recipe.sources import SPRITE, Bank
from models.recipe.textures import directions, discs, divided, outlines, surfaces

_CUT_OUT, _PAINTED_OUTLINE, _PHOTO_OUTLINE, _PAINTED_CUT_OUT, _PHOTO_CUT_OUT = range(5)
_FILLS = (0.52, 0.14, 0.14, 0.08, 0.12)
_PATCHWORK = 0.4
"""Share of the made-up surfaces that change to another one somewhere: a thing need not be of one colour."""
_CLOSE = 0.25
"""Share of the scenes that are seen from close: up to three things, large as a photograph's subject is."""

_ROWS, _COLUMNS = 5, 6
"""Things of a crowd."""


@dataclass(slots=True, eq=False)
class Layer:
    """One thing in each of n scenes. Places are in -1..1, as `grid_sample` has them; motion is per frame."""

    patch: Tensor
    """[n, 5, 128, 128]: red, green, blue, alpha in 0..1, colour region."""
    place: Tensor
    """[n, 2]: x, y"""
    size: Tensor
    """[n] pixels"""
    aspect: Tensor
    angle: Tensor
    flip: Tensor
    active: Tensor
    """[n] bool: whether the scene has this thing."""
    labelled: Tensor
    """[n] bool: an unlabelled thing hides others and is nobody's answer."""
    joins: Tensor
    """[n] bool: it is a piece of the thing before."""
    shadow: Tensor
    """[n]: strength"""
    velocity: Tensor
    """[n, 2]"""
    spin: Tensor
    growth: Tensor

    def at(self, time: float) -> tuple[Tensor, Tensor, Tensor]:
        """Place, size and angle after `time` frames."""
        return self.place + self.velocity * time, self.size * self.growth**time, self.angle + self.spin * time


def layers(bank: Bank, draws: Draws, count: int, *, slots: int, moving: bool) -> list[Layer]:
    """`slots` layers for `count` scenes, from back to front; scenes have between one thing and `slots`."""
    things = 1 + draws.choice(tuple(1 / (1 + 0.25 * i) for i in range(slots)), count)
    close = draws.chance(_CLOSE, count)
    things = torch.where(close, things.clamp(max=3), things)
    made: list[Layer] = []
    for slot in range(slots):
        layer = _layer(bank, draws, things, slot, close=close, moving=moving)
        if made:
            _relate(layer, made[-1], draws)
        made.append(layer)
    return made


def crowd(bank: Bank, draws: Draws, count: int) -> list[Layer]:
    """Thirty things of one or two kinds side by side, as coins, cells and fruit lie: near, touching or overlapping."""
    kinds = [_rounded(_patches(bank, draws, count), bank, draws) for _ in range(2)]
    pitch = 24 * (draws.uniform(count) * log(60 / 24)).exp()
    tight, mixed = draws.between(0.7, 1.15, count), draws.chance(0.5, count) * 0.4
    turn, middle = 0.5 * draws.normal(count), draws.between(-0.3, 0.3, count, 2)
    flat, shadow = (0.12 * draws.normal(count)).exp(), draws.between(0.2, 0.6, count) * draws.chance(0.3, count)
    still = torch.zeros(count, device=draws.device)
    made = []
    for slot in range(_ROWS * _COLUMNS):
        row, column = divmod(slot, _COLUMNS)
        x = column - (_COLUMNS - 1) / 2 + 0.5 * (row % 2) + 0.16 * draws.normal(count)
        y = row - (_ROWS - 1) / 2 + 0.16 * draws.normal(count)
        place = torch.stack([x * turn.cos() - y * turn.sin(), x * turn.sin() + y * turn.cos()], 1)
        other = (draws.uniform(count) < mixed)[:, None, None, None]
        patch = torch.where(other, kinds[1], kinds[0])
        light = draws.between(0.8, 1.2, count, 1, 1, 1)
        layer = Layer(
            patch=torch.cat([(patch[:, :3] * light).clamp(0, 1), patch[:, 3:]], 1),
            place=middle + place * (pitch / (SIDE / 2))[:, None],
            size=pitch * tight * (0.12 * draws.normal(count)).exp(),
            aspect=flat,
            angle=2 * pi * draws.uniform(count),
            flip=draws.chance(0.5, count),
            active=draws.chance(0.85, count),
            labelled=~draws.chance(0.03, count),
            joins=torch.zeros(count, dtype=torch.bool, device=draws.device),
            shadow=shadow,
            velocity=torch.zeros(count, 2, device=draws.device),
            spin=still,
            growth=still + 1,
        )
        made.append(layer)
    return made


def _layer(bank: Bank, draws: Draws, things: Tensor, slot: int, *, close: Tensor, moving: bool) -> Layer:
    count = len(things)
    crowd = things.float()
    smallest = torch.where(close, 110.0, (64 / crowd.sqrt()).clamp(min=36.0 if moving else 22.0))
    largest = torch.where(close, 340.0, 250 / crowd**0.55)
    size = smallest * ((largest / smallest).log() * draws.uniform(count) ** 0.8).exp()
    speed = draws.between(0, 16 * 2 / SIDE, count) * draws.chance(0.85, count) * moving
    heading = 2 * pi * draws.uniform(count)
    reach = torch.where(things == 1, 0.5, 0.95)
    return Layer(
        patch=_patches(bank, draws, count),
        place=(2 * draws.uniform(count, 2) - 1) * reach[:, None],
        size=size,
        aspect=(0.22 * draws.normal(count)).exp(),
        angle=torch.where(draws.chance(0.6, count), 0.4 * draws.normal(count), 2 * pi * draws.uniform(count)),
        flip=draws.chance(0.5, count),
        active=slot < things,
        labelled=~draws.chance(0.05, count),
        joins=torch.zeros(count, dtype=torch.bool, device=draws.device),
        shadow=draws.between(0.2, 0.6, count) * draws.chance(0.3, count),
        velocity=torch.stack([heading.cos(), heading.sin()], 1) * speed[:, None],
        spin=0.12 * draws.normal(count) * moving,
        growth=(0.05 * draws.normal(count) * moving).exp(),
    )


def _relate(layer: Layer, behind: Layer, draws: Draws) -> None:
    """Some things are pieces of the thing behind them, others its look-alikes."""
    count = len(layer.size)
    joins, twin = draws.chance(0.22, count), draws.chance(0.12, count)
    offset = behind.size[:, None] / SIDE * draws.between(-0.6, 0.6, count, 2)
    layer.joins = joins
    layer.place = torch.where(joins[:, None], behind.place + offset, layer.place)
    layer.size = torch.where(joins, behind.size * draws.between(0.3, 0.8, count), layer.size)
    layer.velocity = torch.where(joins[:, None], behind.velocity, layer.velocity)
    layer.growth = torch.where(joins, behind.growth, layer.growth)
    layer.labelled = torch.where(joins, behind.labelled, layer.labelled)
    layer.patch = torch.where((twin & ~joins)[:, None, None, None], behind.patch, layer.patch)
    layer.size = torch.where(twin & ~joins, behind.size * draws.between(0.8, 1.2, count), layer.size)


def _patches(bank: Bank, draws: Draws, count: int) -> Tensor:
    """[n, 5, 128, 128]: cut-outs as they are, or outlines filled with paint or photographs."""
    sprites = bank.sprites[_indices(bank, draws, count)].to(draws.device).float()
    fill = draws.choice(_FILLS, count)[:, None, None, None]
    made_up = (fill == _PAINTED_OUTLINE) | (fill == _PHOTO_OUTLINE)
    alpha = torch.where(made_up, outlines(draws, count, SPRITE), sprites[:, 3:4] / 255)
    paint = surfaces(draws, count, SPRITE)
    photo = photographs(bank, draws, count, SPRITE, smallest=0.1, largest=0.6)
    painted = (fill == _PAINTED_OUTLINE) | (fill == _PAINTED_CUT_OUT)
    surface = torch.where(painted, paint, photo)
    other = torch.where(draws.chance(0.5, count)[:, None, None, None], paint, photo).roll(1, 0)
    elsewhere = divided(draws, count, SPRITE) & draws.chance(_PATCHWORK, count)[:, None, None, None]
    surface = torch.where(elsewhere, other, surface)
    rgb = torch.where(fill == _CUT_OUT, sprites[:, :3] / 255, surface)
    regions = torch.where(fill == _CUT_OUT, sprites[:, 4:], elsewhere.float())
    return torch.cat([_shaded(jittered(rgb, draws), draws), alpha, regions], 1)


def _rounded(patch: Tensor, bank: Bank, draws: Draws) -> Tensor:
    """Half of the things become discs, painted or cut out of photographs."""
    count = len(patch)
    photo = photographs(bank, draws, count, SPRITE, smallest=0.1, largest=0.6)
    rgb = torch.where(draws.chance(0.5, count)[:, None, None, None], surfaces(draws, count, SPRITE), photo)
    alpha = discs(count, SPRITE, draws.device)
    disc = torch.cat([_shaded(jittered(rgb, draws), draws), alpha, torch.zeros_like(alpha)], 1)
    return torch.where(draws.chance(0.5, count)[:, None, None, None], disc, patch)


def _indices(bank: Bank, draws: Draws, count: int) -> Tensor:
    """Sprites, so that each kind is drawn equally often."""
    kinds = sorted(set(bank.kinds))
    members = [torch.tensor([i for i, kind in enumerate(bank.kinds) if kind == each]) for each in kinds]
    kind = draws.integers(len(kinds), count).tolist()
    place = draws.uniform(count).tolist()
    return torch.stack([members[k][int(p * len(members[k]))] for k, p in zip(kind, place, strict=True)])


def photographs(bank: Bank, draws: Draws, count: int, side: int, *, smallest: float, largest: float) -> Tensor:
    """[n, 3, side, side]: random windows of the backdrops, mirrored at times."""
    pictures = bank.backdrops[draws.integers(len(bank.backdrops), count).cpu()].to(draws.device).float() / 255
    window = (log(smallest) + (log(largest) - log(smallest)) * draws.uniform(count)).exp()
    centre = (2 * draws.uniform(count, 2) - 1) * (1 - window)[:, None]
    mirror = torch.where(draws.chance(0.5, count), -1.0, 1.0)
    theta = torch.zeros(count, 2, 3, device=draws.device)
    theta[:, 0, 0], theta[:, 1, 1] = window * mirror, window
    theta[:, :, 2] = centre
    grid = F.affine_grid(theta, [count, 3, side, side], align_corners=False)
    return F.grid_sample(pictures, grid, padding_mode="reflection", align_corners=False)


def jittered(rgb: Tensor, draws: Draws) -> Tensor:
    """Other light, other paint: channels swapped, gains, contrast, now and then grey or negative."""
    count = len(rgb)
    order = draws.uniform(count, 3).argsort(1)
    keep = torch.arange(3, device=rgb.device).expand(count, 3)
    order = torch.where(draws.chance(0.35, count)[:, None], order, keep)
    rgb = rgb.gather(1, order[:, :, None, None].expand_as(rgb))
    gain = torch.where(draws.chance(0.4, count)[:, None], draws.between(0.7, 1.3, count, 3), 1.0)
    rgb = rgb * gain[:, :, None, None]
    contrast = torch.where(draws.chance(0.5, count), draws.between(0.6, 1.35, count), 1.0)[:, None, None, None]
    light = (draws.between(-0.14, 0.14, count) * draws.chance(0.5, count))[:, None, None, None]
    rgb = (rgb - 0.5) * contrast + 0.5 + light
    grey = draws.chance(0.1, count)[:, None, None, None]
    rgb = torch.where(grey, rgb.mean(1, keepdim=True), rgb)
    return torch.where(draws.chance(0.05, count)[:, None, None, None], 1 - rgb, rgb).clamp(0, 1)


def _shaded(rgb: Tensor, draws: Draws) -> Tensor:
    """Lit from one side, for a third of the things."""
    count, side = len(rgb), rgb.shape[-1]
    along, _ = directions(draws, count, side)
    strength = draws.between(0.2, 0.9, count, 1, 1, 1) * draws.chance(0.35, count, 1, 1, 1)
    return (rgb * (1 + strength * along / 2)).clamp(0, 1)
