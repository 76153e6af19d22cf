"""A clip of any kind as upright RGB frames, forward, backward or one at a time, a few of them in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

from labeler.sources.formats import is_picture_name

if TYPE_CHECKING:
    from PIL import Image

    from labeler.sources.pictures import Exif

HELD_BYTES = 1 << 26
"""Decoded frames that a backward reader holds at once: 7 of 1920 x 1080."""


@dataclass(frozen=True, slots=True)
class ClipIndex:
    """What is known of a clip once all of it was gone through."""

    times_s: tuple[float | None, ...]
    """Presentation time of each frame in seconds since the clip's start; None where the clip has no times."""
    height: int
    """Rows of the upright frames."""
    width: int
    orientation: int
    """What the clip says about its frames, as an EXIF orientation, whether applied or not."""
    problem: str | None = None
    """Why the frames end before the clip does, with the number of the first frame that is missing; else None."""
    names: tuple[str, ...] = ()
    """File name of each frame, for a folder of frames."""

    @property
    def count(self) -> int:
        """Frames that can be read; numbered from 0."""
        return len(self.times_s)


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One frame: either an upright RGB picture of the clip's size, or the reason why there is none."""

    index: int
    time_s: float | None
    image: Image.Image | None
    error: str | None = None


class Clip(ABC):
    """A clip that was gone through once. Its iterators are independent of each other, each with its own open file."""

    index: ClipIndex

    def __init__(self) -> None:
        self._running: WeakSet[Generator[Frame]] = WeakSet()

    @abstractmethod
    def _forward(self, indices: range) -> Generator[Frame]:
        """Frames of ascending indices."""

    def frames(
        self, start: int = 0, stop: int | None = None, *, stride: int = 1, reverse: bool = False
    ) -> Iterator[Frame]:
        """Frames start, start + stride, ... below `stop` (default: all); `reverse` gives the same ones, last first.

        Backward, frames are decoded in short runs from the nearest point where decoding can begin; the pixels are
        those of a forward reader. Raises IndexError outside the clip, SourceError where the file fails meanwhile.
        """
        stop = self.index.count if stop is None else stop
        if not (0 <= start <= stop <= self.index.count and stride >= 1):
            raise IndexError(f"frames {start} to {stop} by {stride} of a clip of {self.index.count}")
        indices = range(start, stop, stride)
        running = self._backward(indices) if reverse else self._forward(indices)
        self._running.add(running)
        return running

    def frame(self, index: int) -> Frame:
        """One frame. Raises IndexError outside the clip, SourceError where the file fails meanwhile."""
        return next(self.frames(index, index + 1))

    def _backward(self, indices: range) -> Generator[Frame]:
        run = max(2, HELD_BYTES // (self.index.height * self.index.width * 4))
        for end in range(len(indices), 0, -run):
            held = list(self._forward(indices[max(0, end - run) : end]))
            while held:
                yield held.pop()

    def close(self) -> None:
        """Ends the iterators that are still running, and closes their files."""
        for running in tuple(self._running):
            running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_clip(path: Path, *, exif: Exif, max_pixels: int) -> Clip:
    """Opens a video file, an animated picture or a folder of frames, and goes through it once to build its index.

    `exif="ignore"` leaves frames as stored, whatever the clip says about its orientation. Raises SourceError where
    there is not one frame, or frames have more than `max_pixels`.
    """
    if path.is_dir():
        from labeler.sources.folder import FolderClip

        return FolderClip(path, exif=exif, max_pixels=max_pixels)
    if is_picture_name(path.name):
        from labeler.sources.animation import AnimationClip

        return AnimationClip(path, exif=exif, max_pixels=max_pixels)
    from labeler.sources.video import VideoClip

    return VideoClip(path, exif=exif, max_pixels=max_pixels)
