"""Draw a scene: the camera's view of the backdrop, then every object with its shadow, then the lens and the sensor."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from studio import paint, shapes
from studio.scenes import Scene, Thing

Rgb: TypeAlias = NDArray[np.uint8]
Labels: TypeAlias = NDArray[np.uint8]
_LIGHT = (-0.5, -0.62, 0.6)


def draw(scene: Scene, time: float) -> tuple[Rgb, Labels]:
    """The scene at a time in 0..1: colours [height, width, 3] and labels [height, width]."""
    rng = np.random.default_rng([scene.seed, int(time * 1_000_000)])
    left, top, zoom = _camera(scene, time)
    canvas = _backdrop(scene, left, top, zoom)
    labels = np.zeros((scene.height, scene.width), np.uint8)
    for number, thing in enumerate(scene.things, 1):
        stamps, xs, ys = zip(*thing.keys, strict=True)
        x = (float(np.interp(time, stamps, xs)) - left) * zoom
        y = (float(np.interp(time, stamps, ys)) - top) * zoom
        _stamp(canvas, labels, scene, thing, number, (x, y, thing.radius * zoom, thing.angle + thing.spin * time))
    return _photographed(rng, canvas), labels


def _camera(scene: Scene, time: float) -> tuple[float, float, float]:
    """The frame's left and top edge in the scene, and the zoom about the frame's middle."""
    zoom = scene.zoom**time
    sway = scene.sway * np.array([np.sin(11 * time) + 0.4 * np.sin(29 * time), np.sin(17 * time)])
    left = scene.pan[0] * time + sway[0] + scene.width / 2 * (1 - 1 / zoom)
    top = scene.pan[1] * time + sway[1] + scene.height / 2 * (1 - 1 / zoom)
    return float(left), float(top), float(zoom)


def _backdrop(scene: Scene, left: float, top: float, zoom: float) -> paint.Floats:
    if scene.margin:
        place = (1 / zoom, 0, scene.margin + left, 0, 1 / zoom, scene.margin + top)
        size = (scene.width, scene.height)
        shown = scene.backdrop.transform(size, Image.Transform.AFFINE, place, Image.Resampling.BILINEAR)
    else:
        shown = scene.backdrop
    return np.asarray(shown, np.float32) / np.float32(255)


def _stamp(
    canvas: paint.Floats,
    labels: Labels,
    scene: Scene,
    thing: Thing,
    number: int,
    place: tuple[float, float, float, float],
) -> None:
    """Draw one object with its shadow over what is there already."""
    x, y, radius, angle = place
    rows = slice(max(0, int(y - 1.5 * radius)), min(scene.height, int(y + 1.5 * radius) + 2))
    columns = slice(max(0, int(x - 1.5 * radius)), min(scene.width, int(x + 1.5 * radius) + 2))
    if rows.stop - rows.start < 2 or columns.stop - columns.start < 2:
        return  # out of the frame
    across = (np.arange(columns.start, columns.stop) - x) / radius
    down = ((np.arange(rows.start, rows.stop) - y) / radius)[:, None]
    cos, sin = np.cos(angle), np.sin(angle)
    u, v = across * cos + down * sin, down * cos - across * sin
    f, nu, nv = thing.outline(u, v)
    covered = _coverage(f)
    _shade(canvas, scene, covered, rows, columns, radius)
    lit = _lit(thing, u, v, nu * cos - nv * sin, nu * sin + nv * cos)
    area = canvas[rows, columns]
    area += covered[..., None] * (lit - area)
    labels[rows, columns][f <= 0] = number


def _coverage(f: shapes.Doubles) -> paint.Floats:
    """Share of each pixel that is inside: f over its slope is the distance to the edge in pixels."""
    by_row, by_column = np.gradient(f)
    slope = np.maximum(np.hypot(by_row, by_column), 1e-6)
    share: paint.Floats = np.clip(0.5 - f / slope, 0, 1).astype(np.float32)
    return share


def _lit(thing: Thing, u: shapes.Doubles, v: shapes.Doubles, nx: shapes.Doubles, ny: shapes.Doubles) -> paint.Floats:
    """The material under a light from the upper left and in front."""
    last = len(thing.texture) - 1
    row, column = ((np.clip(c * 0.5 + 0.5, 0, 1) * last).astype(np.intp) for c in (v, u))
    nz = np.sqrt(np.clip(1 - nx * nx - ny * ny, 0, 1))
    towards = np.clip(nx * _LIGHT[0] + ny * _LIGHT[1] + nz * _LIGHT[2], 0, 1).astype(np.float32)
    shine = np.float32(thing.gloss) * towards**40
    lit: paint.Floats = np.clip(thing.texture[row, column] * (0.5 + 0.6 * towards)[..., None] + shine[..., None], 0, 1)
    return lit


def _shade(
    canvas: paint.Floats, scene: Scene, covered: paint.Floats, rows: slice, columns: slice, radius: float
) -> None:
    """Darken what lies in the object's soft shadow: cast along the ground, or just beside it when seen from above."""
    solid = Image.fromarray((covered * 150).astype(np.uint8))
    if scene.horizon is None:
        reach = 0.16 * radius
        place = (1.0, 0.0, -reach - columns.start, 0.0, 1.0, -reach - rows.start)
        blur = 0.1 * radius
    else:
        foot, squash, lean = rows.start + int(np.flatnonzero(covered.max(axis=1))[-1]), 0.3, 0.9
        place = (1.0, lean, -lean * foot - columns.start, 0.0, 1 / squash, foot - foot / squash - rows.start)
        blur = 0.07 * radius
    grown = Image.new("L", (scene.width, scene.height))
    grown.paste(solid.transform(grown.size, Image.Transform.AFFINE, place, Image.Resampling.BILINEAR))
    soft = np.asarray(grown.filter(ImageFilter.GaussianBlur(blur)), np.float32) / np.float32(255)
    canvas *= 1 - soft[..., None]


def _photographed(rng: np.random.Generator, canvas: paint.Floats) -> Rgb:
    """Uneven light, a lens a little soft, and sensor noise."""
    height, width = canvas.shape[:2]
    across, down = np.linspace(0, 1, width, dtype=np.float32), np.linspace(0, 1, height, dtype=np.float32)[:, None]
    light = 1.1 - 0.16 * across - 0.12 * down
    soft = paint.image(canvas * light[..., None]).filter(ImageFilter.GaussianBlur(0.0006 * max(height, width)))
    grain = rng.standard_normal((height, width), np.float32)[..., None] * np.float32(2.2)
    return np.clip(np.asarray(soft, np.float32) + grain + np.float32(0.5), 0, 255).astype(np.uint8)
