"""Outlines of objects as implicit functions.

An outline takes local coordinates (the object fits into -1..1, x to the right, y down) and returns three arrays:
f, negative inside and near a distance close to the edge, and the x and y parts of the surface normal for shading.
Float64 throughout: masks are f <= 0 and must come out alike on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Doubles: TypeAlias = NDArray[np.float64]
Outline: TypeAlias = Callable[[Doubles, Doubles], tuple[Doubles, Doubles, Doubles]]


def ball(_: np.random.Generator) -> Outline:
    """A sphere."""
    return lambda x, y: (np.hypot(x, y) - 1, x, y)


def pebble(rng: np.random.Generator) -> Outline:
    """A smooth lump."""
    return _polar(rng, orders=(2, 3, 4), strength=0.09)


def starfish(rng: np.random.Generator) -> Outline:
    """Five soft arms."""
    return _polar(rng, orders=(5,), strength=0.27)


def _polar(rng: np.random.Generator, *, orders: tuple[int, ...], strength: float) -> Outline:
    amounts = rng.uniform(0.5, 1.0, len(orders)) * strength
    phases = rng.uniform(0, 2 * np.pi, len(orders))
    largest = 1 + float(amounts.sum())

    def outline(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        angle, length = np.arctan2(y, x), np.hypot(x, y)
        radius = np.ones_like(angle)
        for order, amount, phase in zip(orders, amounts, phases, strict=True):
            radius += amount * np.cos(order * angle + phase)
        radius /= largest
        return length - radius, x / radius, y / radius

    return outline


def leaf(rng: np.random.Generator) -> Outline:
    """Where two discs meet, with a rib along the middle."""
    half = rng.uniform(0.4, 0.55)
    reach = (1 - half * half) / (2 * half)

    def outline(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        f = np.maximum(np.hypot(x, y - reach), np.hypot(x, y + reach)) - np.hypot(1, reach)
        return f, np.zeros_like(x), np.where(y > 0, 0.35, -0.35)

    return outline


def cushion(rng: np.random.Generator) -> Outline:
    """A plump rectangle."""
    flat = rng.uniform(0.6, 0.95)

    def outline(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        u, v = x / 0.95, (y - 1 + flat) / flat
        f = (u**4 + v**4) ** 0.25 - 1
        return f, u**3, v**3

    return outline


def turned(widths: tuple[float, ...]) -> Callable[[np.random.Generator], Outline]:
    """A maker of bodies of revolution: half widths from top to bottom, each varied a little."""

    def make(rng: np.random.Generator) -> Outline:
        knots = np.asarray(widths) * rng.uniform(0.88, 1.12, len(widths))
        fine = np.interp(np.linspace(0, 1, 257), np.linspace(0, 1, len(knots)), knots)
        profile = np.convolve(np.pad(fine, 16, mode="edge"), np.full(33, 1 / 33), mode="valid")
        return _revolved(np.minimum(profile, 1.0))

    return make


def _revolved(profile: Doubles) -> Outline:
    rows = np.linspace(-1, 1, len(profile))
    slopes = np.gradient(profile, rows)

    def outline(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        # The ends bulge by a tenth of the width, as rims seen from a little above do.
        width = np.interp(y, rows, profile)
        across = np.clip(x / width, -1, 1)
        bulge = 0.1 * width * np.sqrt(1 - across * across)
        f = np.maximum(np.abs(x) - width, np.maximum(-1 + 0.1 * width - bulge - y, y - 0.9 - bulge))
        return f, across, -0.5 * np.interp(y, rows, slopes)

    return outline


vase = turned((0.35, 0.22, 0.3, 0.62, 0.7, 0.55, 0.35))
bottle = turned((0.17, 0.15, 0.16, 0.36, 0.4, 0.4, 0.4, 0.38))
pear = turned((0.05, 0.24, 0.34, 0.38, 0.48, 0.64, 0.77, 0.82, 0.78, 0.62, 0.3))
pawn = turned((0.1, 0.36, 0.42, 0.36, 0.2, 0.2, 0.24, 0.34, 0.56, 0.6))


def mug(rng: np.random.Generator) -> Outline:
    """A cup whose handle leaves a hole in its mask."""
    body = turned((0.62, 0.6, 0.6, 0.58))(rng)
    reach = rng.uniform(0.26, 0.32)

    def outline(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        f, nx, ny = body(x + 0.3, y)
        ring = np.abs(np.hypot(x - 0.38, (y - 0.02) / 1.35) - reach) - 0.1
        handle = np.where(x > 0.2, ring, 1.0)
        return np.minimum(f, handle), np.where(f > 0, 0.3, nx), ny

    return outline


def crate(rng: np.random.Generator) -> Outline:
    """A cuboid that shows its front, top and right side."""
    depth = rng.uniform(0.3, 0.5)
    top = -1 + depth + rng.uniform(0, 0.4)

    def outline(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        right = 1 - depth
        f = np.maximum.reduce(
            [
                -1 - x,
                x - 1,
                y - 1,
                top - depth - y,
                (top - y - x - 1) / np.sqrt(2),
                (x + y - right - 1) / np.sqrt(2),
            ]
        )
        on_top = (y < top) & (x - right < top - y)
        on_side = (x > right) & ~on_top
        return f, np.where(on_side, 0.8, 0.0), np.where(on_top, -0.6, 0.0)

    return outline


STANDING: dict[str, Callable[[np.random.Generator], Outline]] = {
    "ball": ball,
    "vase": vase,
    "bottle": bottle,
    "pear": pear,
    "pawn": pawn,
    "mug": mug,
    "crate": crate,
    "cushion": cushion,
}
LYING: dict[str, Callable[[np.random.Generator], Outline]] = {
    "ball": ball,
    "pebble": pebble,
    "starfish": starfish,
    "leaf": leaf,
    "cushion": cushion,
    "pear": pear,
}
