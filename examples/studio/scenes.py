"""What stands where: the objects of a picture and the actors of a clip, all decided by the seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from studio import paint, shapes

KINDS = ("crossing", "occlusion_and_return", "camera_motion", "leaving_frame")
SMALLEST_SIDE = 48
MOST_OBJECTS = 12
_PATTERNED_SHARE = 0.2
_GROUND_HUES = (0.06, 0.08, 0.11, 0.28, 0.58, 0.63)
"""Turns: browns, sand, green, blues; objects take hues well apart from the ground's."""


_Path: TypeAlias = tuple[tuple[float, float, float], ...]
_SCRIPTS: dict[str, tuple[tuple[_Path, float], ...]] = {
    "crossing": (
        (((0, 0.2, 0.58), (1, 0.8, 0.5)), 0.2),
        (((0, 0.82, 0.42), (1, 0.2, 0.52)), 0.17),
    ),
    "occlusion_and_return": (
        (((0, 0.14, 0.5), (1, 0.9, 0.55)), 0.12),
        (((0, 0.55, 0.5), (1, 0.55, 0.5)), 0.3),
    ),
    "camera_motion": (
        (((0, 0.3, 0.35), (1, 0.42, 0.4)), 0.15),
        (((0, 0.7, 0.45), (1, 0.68, 0.5)), 0.17),
        (((0, 0.45, 0.75), (1, 0.5, 0.7)), 0.14),
    ),
    "leaving_frame": (
        (((0, 0.4, 0.35), (0.65, 1.25, 0.4), (1, 1.5, 0.4)), 0.17),
        (((0, 0.35, 0.72), (1, 0.5, 0.68)), 0.16),
    ),
}
"""Per kind and object: the path (time, x, y) and the radius, in shares of the clip, the frame and its shorter side."""


@dataclass(frozen=True, slots=True, eq=False)
class Thing:
    """One object of a scene. Its label is its place in `Scene.things`, counted from 1."""

    category: str
    outline: shapes.Outline
    texture: paint.Floats
    radius: float
    """Pixels from the centre to the edge of the outline's unit square."""
    gloss: float
    keys: tuple[tuple[float, float, float], ...]
    """Time in 0..1 and the centre's x and y in pixels; straight lines between."""
    angle: float = 0.0
    spin: float = 0.0
    """Turn over the whole clip, in radians."""


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """Everything that decides a picture or a clip; later things hide earlier ones."""

    seed: int
    height: int
    width: int
    backdrop: Image.Image
    margin: int
    """Pixels by which the backdrop is larger than a frame, on each side."""
    horizon: int | None
    """Row where the ground begins, or None for a surface seen from above."""
    things: tuple[Thing, ...]
    pan: tuple[float, float] = (0.0, 0.0)
    """Pixels by which the camera moves right and down over the clip."""
    zoom: float = 1.0
    """Magnification at the end of the clip."""
    sway: float = 0.0
    """Pixels by which a hand-held camera wavers."""


def picture_scene(seed: int, height: int, width: int, objects: int) -> Scene:
    """The scene that `render_picture` draws."""
    _check_sides(height, width)
    if not 1 <= objects <= MOST_OBJECTS:
        raise ValueError(f"a picture has 1 to {MOST_OBJECTS} objects, not {objects}")
    rng = np.random.default_rng(seed)
    hue = _GROUND_HUES[rng.integers(len(_GROUND_HUES))] + rng.uniform(-0.02, 0.02)
    ground = paint.colour(hue, rng.uniform(0.12, 0.5), rng.uniform(0.45, 0.85))
    horizon = int(height * rng.uniform(0.3, 0.5)) if rng.random() < 0.6 else None
    if horizon is None:
        backdrop = paint.flat_backdrop(rng, height, width, ground)
    else:
        backdrop = paint.room_backdrop(rng, height, width, horizon, ground)
    things = _placed(rng, height, width, objects, horizon, hue)
    return Scene(seed, height, width, backdrop=paint.image(backdrop), margin=0, horizon=horizon, things=things)


def _placed(
    rng: np.random.Generator, height: int, width: int, objects: int, horizon: int | None, hue: float
) -> tuple[Thing, ...]:
    usual = 0.45 * min(height, width) / np.sqrt(objects + 0.6)
    radii = usual * rng.uniform(0.8, 1.2, objects)
    low = 0.0 if horizon is None else horizon - 0.5 * float(radii.min())
    spots = _spots(rng, radii, (0.0 if horizon is None else low, float(height)), float(width))
    if horizon is not None:  # those that stand nearer hide those behind
        order = np.argsort(spots[:, 1] + radii)
        radii, spots = radii[order], spots[order]
    hues = hue + 0.12 + 0.76 * (rng.permutation(objects) + rng.uniform(0.2, 0.8, objects)) / objects
    return tuple(
        _thing(
            rng,
            radius=float(radii[n]),
            hue=float(hues[n]),
            keys=((0.0, float(spots[n, 0]), float(spots[n, 1])),),
            lying=horizon is None,
        )
        for n in range(objects)
    )


def _spots(
    rng: np.random.Generator, radii: NDArray[np.float64], rows: tuple[float, float], width: float
) -> NDArray[np.float64]:
    """Centres [objects, 2] as x, y: touching or partly overlapping, never one right on another."""
    spots = np.empty((len(radii), 2))
    for number, radius in enumerate(radii):
        low, high = max(rows[0], radius), rows[1] - 1.05 * radius
        tries = np.stack([rng.uniform(radius, width - radius, 60), rng.uniform(low, max(low, high), 60)], axis=1)
        gaps = np.linalg.norm(tries[:, None] - spots[:number], axis=2) / (radius + radii[:number])
        nearest = gaps.min(axis=1) if number else np.ones(60)
        good = np.flatnonzero(nearest >= 0.75)
        spots[number] = tries[good[0] if len(good) else nearest.argmax()]
    return spots


def _thing(
    rng: np.random.Generator,
    *,
    radius: float,
    hue: float,
    keys: tuple[tuple[float, float, float], ...],
    lying: bool,
    category: str | None = None,
    spin: float = 0.0,
) -> Thing:
    makers = shapes.LYING if lying else shapes.STANDING
    names = sorted(makers)
    category = category or names[rng.integers(len(names))]
    materials = paint.PATTERNED if rng.random() < _PATTERNED_SHARE else paint.COHERENT
    material = materials[rng.integers(len(materials))]
    base = paint.colour(hue, rng.uniform(0.4, 0.85), rng.uniform(0.45, 0.95))
    return Thing(
        category=category,
        outline=makers[category](rng),
        texture=material(rng, int(np.clip(2 * radius, 24, 512)), base),
        radius=radius,
        gloss=0.35 if material is paint.paint else 0.0,
        keys=keys,
        angle=rng.uniform(0, 2 * np.pi) if lying else 0.0,
        spin=spin,
    )


def clip_scene(kind: str, seed: int, height: int, width: int) -> Scene:
    """The scene that `render_clip` draws."""
    _check_sides(height, width)
    if kind not in KINDS:
        raise ValueError(f"unknown kind of clip {kind!r}: choose from {', '.join(KINDS)}")
    rng = np.random.default_rng([KINDS.index(kind), seed])
    margin = max(height, width) // 4
    hue = _GROUND_HUES[rng.integers(len(_GROUND_HUES))] + rng.uniform(-0.02, 0.02)
    ground = paint.colour(hue, rng.uniform(0.12, 0.4), rng.uniform(0.45, 0.8))
    backdrop = paint.flat_backdrop(rng, height + 2 * margin, width + 2 * margin, ground)
    direction = 1.0 if rng.random() < 0.5 else -1.0
    moves = kind == "camera_motion"
    return Scene(
        seed=seed,
        height=height,
        width=width,
        backdrop=paint.image(backdrop),
        margin=margin,
        horizon=None,
        things=_actors(rng, kind, height, width, hue),
        pan=(direction * 0.16 * width, 0.08 * height) if moves else (direction * 0.02 * width, 0.0),
        zoom=1.15 if moves else 1.0,
        sway=0.004 * width,
    )


def _actors(rng: np.random.Generator, kind: str, height: int, width: int, hue: float) -> tuple[Thing, ...]:
    """Two or three objects; the places are shares of the frame, in pixels only at the end."""
    script = _SCRIPTS[kind]
    shift = rng.uniform(-0.04, 0.04)
    things = []
    for number, (path, size) in enumerate(script):
        keys = tuple((time, x * width, (y + shift) * height) for time, x, y in path)
        hides = kind == "occlusion_and_return" and number == len(script) - 1
        things.append(
            _thing(
                rng,
                radius=size * min(height, width) * rng.uniform(0.95, 1.05),
                hue=hue + (number + rng.uniform(0.35, 0.65)) / len(script) * 0.8 + 0.1,
                keys=keys,
                lying=not hides,
                category="crate" if hides else None,
                spin=0.0 if hides else rng.uniform(-1.2, 1.2),
            )
        )
    return tuple(things)


def _check_sides(height: int, width: int) -> None:
    if min(height, width) < SMALLEST_SIDE:
        raise ValueError(f"{height}x{width} is too small to render: both sides need {SMALLEST_SIDE} pixels")
