"""One pass over a video file with PyAV: opening, decoding until damage begins, what the file says about itself."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import av
from av.container import InputContainer
from av.sidedata.sidedata import SideData
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from labeler.errors import SourceError
from labeler.sources.cut import is_cut_short
from labeler.sources.opening import one_line, open_regular

_ORIENTATIONS = {
    (1, 0, 0, 1): 1,
    (-1, 0, 0, 1): 2,
    (-1, 0, 0, -1): 3,
    (1, 0, 0, -1): 4,
    (0, 1, 1, 0): 5,
    (0, 1, -1, 0): 6,
    (0, -1, -1, 0): 7,
    (0, -1, 1, 0): 8,
    (0, 0, 0, 0): 1,
}
"""Signs a, b, c, d of a display matrix, which shows (x, y) at (a*x + c*y, b*x + d*y), to EXIF orientation."""


@dataclass(slots=True)
class Decoding:
    """One pass over a stream, with one thread: the same frames every time, also where damage begins."""

    container: InputContainer
    stream: VideoStream
    cut_short: bool
    stopped: str | None = None
    """After a pass: why it ended before the file did, or that the file itself is cut short; None where all is well."""

    def frames(self) -> Iterator[VideoFrame]:
        """Frames in presentation order up to the first that is damaged or of another size.

        Damaged frames before the first intact one are left out, as players do with a recording that begins in the
        middle of a group of pictures.
        """
        size: tuple[int, int] | None = None
        for frame in self._decoded():
            if frame.is_corrupt and size is None:
                continue
            size = size or (frame.width, frame.height)
            fault = _fault(frame, size)
            if fault is not None:
                self.stopped = self.stopped or fault
                return
            yield frame
        if self.cut_short:
            self.stopped = self.stopped or "the file is cut short"

    def _decoded(self) -> Iterator[VideoFrame]:
        whole: int | None = None
        broken = self.cut_short
        try:
            for packet in self.container.demux(self.stream):
                if packet.dts is None and not packet.size:
                    break  # the mark of the end
                yield from packet.decode()
                whole = packet.dts
        except av.FFmpegError as error:
            self.stopped, broken = one_line(error.strerror or error), True
        for frame in self._held_back():
            # A lost packet's frame comes after this time: behind it there may be a hole in the order.
            if broken and (whole is None or frame.pts is None or frame.pts > whole):
                return
            yield frame

    def _held_back(self) -> Iterator[VideoFrame]:
        """Frames that the decoder keeps for reordering."""
        try:
            yield from self.stream.codec_context.decode(None)
        except av.FFmpegError as error:
            self.stopped = self.stopped or one_line(error.strerror or error)


def _fault(frame: VideoFrame, size: tuple[int, int]) -> str | None:
    if frame.is_corrupt:
        return "the decoder reports damage"
    if (frame.width, frame.height) != size:
        return f"the size changes from {size[0]} x {size[1]} to {frame.width} x {frame.height}"
    return None


@contextmanager
def opened_video(path: Path) -> Iterator[Decoding]:
    """The best video stream of a file, at its beginning. Raises SourceError with libav's own reason."""
    with open_regular(path) as stream:
        if not stream.read(1):
            raise SourceError("the file is empty")
        cut_short = is_cut_short(stream)
    try:
        container = _open(path)
    except (av.FFmpegError, ValueError) as error:
        raise SourceError(f"not a video that can be read: {_why(path) or one_line(error)}") from error
    with container:
        best = container.streams.best("video")
        if not isinstance(best, VideoStream):
            raise SourceError("it holds no video")
        if best.codec_context is None:
            raise SourceError("its video is in a format that this build of libav cannot decode")
        best.codec_context.thread_count = 1
        yield Decoding(container, best, cut_short)


def _open(path: Path) -> InputContainer:
    # "file:" keeps a colon in a name from being read as a protocol.
    return av.open(f"file:{path}", metadata_errors="replace")


def _why(path: Path) -> str:
    """Opens a bad file once more to hear what libav says about it: PyAV keeps libav's log off by default."""
    level, skip = av.logging.get_level(), av.logging.get_skip_repeated()
    av.logging.set_level(av.logging.ERROR)
    av.logging.set_skip_repeated(False)
    try:
        with av.logging.Capture() as logs:
            _open(path).close()
    except (av.FFmpegError, ValueError) as error:
        said = [text for _, _, text in logs]
        return one_line(said[0] if said else getattr(error, "strerror", None) or error)
    finally:
        av.logging.set_level(level)
        av.logging.set_skip_repeated(skip)
    return ""


def stated_orientation(frame: VideoFrame) -> int | None:
    """The frame's display matrix as an EXIF orientation (1 where it has none); None for other than quarter turns."""
    matrix = frame.side_data.get("DISPLAYMATRIX")
    if not isinstance(matrix, SideData):
        return 1
    a, b, _, c, d = struct.unpack_from("=5i", bytes(matrix))
    return _ORIENTATIONS.get((_sign(a), _sign(b), _sign(c), _sign(d)))


def _sign(fixed: int) -> int:
    # 16.16 fixed point: what rounding left of a sine of 0 is no turn.
    return 0 if abs(fixed) < 1 << 8 else 1 if fixed > 0 else -1
