"""Renders small clips with PyAV whose every frame is known."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

HEIGHT, WIDTH = 96, 128


def scene(index: int, *, height: int = HEIGHT, width: int = WIDTH) -> NDArray[np.uint8]:
    """Frame `index`: unlike in its four corners, with a moving square and a number of its own in the brightness."""
    rows, columns = np.mgrid[:height, :width]
    rgb = np.stack([columns * 255 // width, rows * 255 // height, np.full((height, width), 40)], -1).astype(np.uint8)
    left = 5 * index % (width - 20)
    rgb[height // 3 : height // 3 + 20, left : left + 20] = (255, 255, 0)
    rgb[: height // 8, : width // 8] = index * 7 % 256
    rgb[-20:, width // 2 : width // 2 + 24] = np.random.default_rng(index).integers(0, 256, (20, 24, 3))
    return rgb


def render(
    path: Path,
    *,
    frames: int = 30,
    codec: str = "libx264",
    pixels: str = "yuv420p",
    options: dict[str, str] | None = None,
    container: dict[str, str] | None = None,
    milliseconds: list[int] | None = None,
    b_frames: int | None = None,
    height: int = HEIGHT,
    width: int = WIDTH,
) -> None:
    """25 frames a second, or at the given times; a keyframe every 12."""
    tick = Fraction(1, 1000) if milliseconds else Fraction(1, 25)
    with av.open(str(path), "w", options=container or {}) as out:
        stream: Any = out.add_stream(codec, rate=25, options=options or {})
        stream.width, stream.height, stream.pix_fmt = width, height, pixels
        stream.codec_context.gop_size = 12
        if b_frames is not None:
            stream.codec_context.max_b_frames = b_frames
        stream.time_base = stream.codec_context.time_base = tick
        for index in range(frames):
            frame = av.VideoFrame.from_ndarray(scene(index, height=height, width=width), format="rgb24")
            frame.pts, frame.time_base = milliseconds[index] if milliseconds else index, tick
            out.mux(stream.encode(frame))
        out.mux(stream.encode())


def render_tone(path: Path) -> None:
    """A file that holds sound only."""
    with av.open(str(path), "w") as out:
        stream: Any = out.add_stream("aac", rate=44100)
        for index in range(8):
            frame = av.AudioFrame.from_ndarray(np.zeros((2, 1024), np.float32), format="fltp", layout="stereo")
            frame.rate, frame.pts = 44100, index * 1024
            out.mux(stream.encode(frame))
        out.mux(stream.encode())


def set_matrix(path: Path, a: float, b: float, c: float, d: float) -> None:
    """Writes a display matrix into the track header of an MP4 (ISO/IEC 14496-12, 8.3.2)."""
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd")
    at += 44 if data[at + 4] == 0 else 56
    fixed = [round(value * 65536) for value in (a, b, 0, c, d, 0, 0, 0)] + [1 << 30]
    data[at : at + 36] = b"".join(value.to_bytes(4, "big", signed=True) for value in fixed)
    path.write_bytes(data)
