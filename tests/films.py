"""Rendered clips with true masks, in every form in which clips come, and seeds for them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import av
import numpy as np
import render
from numpy.typing import NDArray
from PIL import Image

HEIGHT, WIDTH, RATE = 72, 96, 10
Shots = tuple[tuple[NDArray[np.uint8], NDArray[np.uint8]], ...]


@functools.cache
def shots(
    kind: str = "crossing", *, frames: int = 8, number: int = 0, height: int = HEIGHT, width: int = WIDTH
) -> Shots:
    """Frames [height, width, 3] and the object number of each of their pixels."""
    return tuple(render.render_clip(kind, number, frames, height, width))


def save(path: Path, shown: Shots, *, options: dict[str, str] | None = None) -> Path:
    """A video file, an animated picture or, for a name without a suffix, a folder of frames; 10 frames a second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures = [Image.fromarray(rgb) for rgb, _ in shown]
    if not path.suffix:
        path.mkdir()
        for index, picture in enumerate(pictures):
            picture.save(path / f"{index}.png")
    elif path.suffix in (".gif", ".webp", ".png"):
        lossless = {"lossless": True} if path.suffix == ".webp" else {}
        pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=1000 // RATE, **lossless)
    else:
        _encode(path, shown, options or {})
    return path


def _encode(path: Path, shown: Shots, options: dict[str, str]) -> None:
    with av.open(str(path), "w", options=options) as file:
        stream: Any = file.add_stream("libx264", rate=RATE, options={"crf": "18", "threads": "1"})
        stream.height, stream.width = shown[0][0].shape[:2]
        stream.pix_fmt, stream.codec_context.gop_size = "yuv420p", 4
        for rgb, _ in shown:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        file.mux(stream.encode())


def click(shown: Shots, object_id: int, frame: int = 0) -> list[int]:
    """Where a person would click an object on a frame."""
    return list(render.click_point(shown[frame][1] == object_id))


def seed(shown: Shots, object_id: int, frame: int = 0, **fields: Any) -> dict[str, Any]:
    """One object of a seeds file, seen on `frame`; `time_s` among the fields replaces the frame's number."""
    place = {} if "time_s" in fields else {"frame": frame}
    return {"id": object_id, "points": [click(shown, object_id, frame)]} | place | fields


def document(items: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """A seeds file's full form."""
    return {"version": 1, "items": [{"file": name, "objects": objects} for name, objects in items.items()]}
