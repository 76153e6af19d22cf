"""Render the example pictures and the clip with their true masks; `python examples/render.py` writes them all again.

Tests and benchmarks import `render_picture`, `render_clip` and `click_point` for as many more as they need. The same
arguments give the same scene everywhere: masks exactly, colours to the last rounding of the machine's arithmetic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from studio.draw import Labels, Rgb, draw
from studio.scenes import KINDS, clip_scene, picture_scene

__all__ = ["CLIPS", "KINDS", "PICTURES", "click_point", "render_clip", "render_picture", "write"]
HERE = Path(__file__).parent


def render_picture(seed: int, height: int, width: int, objects: int) -> tuple[Rgb, Labels]:
    """One picture [height, width, 3] and the object number of each of its pixels [height, width], 0 where none is.

    Raises ValueError for a side under 48 pixels or for objects outside 1..12.
    """
    return draw(picture_scene(seed, height, width, objects), 0.0)


def render_clip(kind: str, seed: int, frames: int, height: int, width: int) -> Iterator[tuple[Rgb, Labels]]:
    """The frames of a clip of one of `KINDS`, as `render_picture` gives a picture; every object is on frame 0.

    Raises ValueError for an unknown kind or a side under 48 pixels.
    """
    scene = clip_scene(kind, seed, height, width)
    return (draw(scene, frame / max(1, frames - 1)) for frame in range(frames))


def click_point(mask_hw: NDArray[np.bool_]) -> tuple[int, int]:
    """x and y of the middle of the largest square that the mask holds: where a person would click.

    Raises ValueError for an empty mask.
    """
    sums = np.pad(mask_hw.astype(np.int64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    fits, too_large = 0, min(mask_hw.shape) + 1
    while too_large - fits > 1:
        side = (fits + too_large) // 2
        fits, too_large = (side, too_large) if _squares(sums, side).any() else (fits, side)
    if not fits:
        raise ValueError("an empty mask has no point to click")
    corners = np.argwhere(_squares(sums, fits))
    top, left = corners[len(corners) // 2]
    return int(left) + (fits - 1) // 2, int(top) + (fits - 1) // 2


def _squares(sums: NDArray[np.int64], side: int) -> NDArray[np.bool_]:
    """For each top left corner [rows, columns]: whether the square lies in the mask, by its summed area."""
    inside = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
    whole: NDArray[np.bool_] = inside == side * side
    return whole


@dataclass(frozen=True, slots=True)
class Picture:
    """One example picture. `extra` replaces the single click of some objects by points with their labels."""

    seed: int
    height: int
    width: int
    objects: int
    orientation: int = 1
    """EXIF tag under which it is stored; sizes, masks and seeds are those of the upright picture."""
    extra: tuple[tuple[int, tuple[tuple[int, int, int], ...]], ...] = ()
    """Object number, then its points as x, y, label."""


@dataclass(frozen=True, slots=True)
class Clip:
    """One example clip."""

    kind: str
    seed: int
    frames: int
    height: int
    width: int


PICTURES = {
    "shelf.jpg": Picture(5, 600, 800, 4),
    "corner.jpg": Picture(116, 523, 701, 4),
    "mugs.jpg": Picture(127, 960, 720, 3, orientation=6, extra=((2, ((376, 503, 1), (524, 560, 1), (488, 562, 0))),)),
    "patterns.jpg": Picture(131, 480, 640, 4),
    "tall.jpg": Picture(104, 900, 640, 4),
    "blanket.png": Picture(130, 480, 640, 3),
    "garden/lawn.jpg": Picture(140, 750, 1000, 4),
    "garden/pool.jpg": Picture(146, 750, 1000, 4),
}
CLIPS = {"crossing.mp4": Clip("crossing", 1, 28, 240, 320)}
_PALETTE = [0, 0, 0, 214, 39, 40, 31, 119, 180, 44, 160, 44, 255, 187, 20]


def write(root: Path) -> None:
    """Write all example files below `root`, over those that are there."""
    items = [_write_picture(root, name, picture) for name, picture in PICTURES.items()]
    _write_seeds(root / "pictures" / "seeds.json", items)
    for name, clip in CLIPS.items():
        _write_seeds(root / "clips" / f"{Path(name).stem}.seeds.json", [_write_clip(root, name, clip)])


def _write_picture(root: Path, name: str, picture: Picture) -> dict[str, Any]:
    scene = picture_scene(picture.seed, picture.height, picture.width, picture.objects)
    rgb, labels = draw(scene, 0.0)
    _save_picture(root / "pictures" / name, Image.fromarray(rgb), picture.orientation)
    _save_mask((root / "masks" / name).with_suffix(".png"), labels)
    objects = _objects(labels, [thing.category for thing in scene.things])
    for number, points in picture.extra:
        objects[number - 1] |= {"points": [[x, y] for x, y, _ in points], "labels": [label for _, _, label in points]}
    return {"file": name, "objects": objects}


def _objects(labels: Labels, categories: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"id": number, "category": category, "points": [list(click_point(labels == number))]}
        for number, category in enumerate(categories, 1)
    ]


def _save_picture(path: Path, upright: Image.Image, orientation: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":  # indexed: a quarter of the size, and one more mode for readers to meet
        upright.quantize(160, dither=Image.Dither.NONE).save(path, optimize=True)
        return
    exif = Image.Exif()
    if orientation == 6:
        exif[0x0112] = orientation
        upright = upright.transpose(Image.Transpose.ROTATE_90)
    upright.save(path, quality=86, exif=exif)


def _save_mask(path: Path, labels: Labels) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mask = Image.fromarray(labels, "P")
    mask.putpalette(_PALETTE)
    mask.save(path, optimize=True)


def _write_clip(root: Path, name: str, clip: Clip) -> dict[str, Any]:
    scene = clip_scene(clip.kind, clip.seed, clip.height, clip.width)
    path = root / "clips" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    first: Labels | None = None
    with av.open(path, "w") as file:
        stream = file.add_stream("libx264", rate=12, options={"crf": "20", "threads": "1"})
        stream.width, stream.height, stream.pix_fmt = clip.width, clip.height, "yuv420p"
        rendered = render_clip(clip.kind, clip.seed, clip.frames, clip.height, clip.width)
        for index, (rgb, labels) in enumerate(rendered):
            first = labels if first is None else first
            _save_mask(root / "masks" / Path(name).stem / f"{index:05d}.png", labels)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        file.mux(stream.encode(None))
    assert first is not None, "a clip has at least one frame"
    objects = _objects(first, [thing.category for thing in scene.things])
    return {"file": name, "objects": [each | {"frame": 0} for each in objects]}


def _write_seeds(path: Path, items: list[dict[str, Any]]) -> None:
    """The full form, with one object a line."""
    rows = []
    for item in items:
        objects = ",\n".join(f"    {json.dumps(each)}" for each in item["objects"])
        rows.append(f'  {{"file": {json.dumps(item["file"])}, "objects": [\n{objects}\n  ]}}')
    path.write_text('{"version": 1, "items": [\n' + ",\n".join(rows) + "\n]}\n", encoding="utf-8")


if __name__ == "__main__":
    write(HERE)
