"""Video files as clips.

A file is decoded once to learn what it holds; declared counts are not trusted. Backward and random reading seek, and
check by a checksum that each frame equals the one of that first pass: where a file cannot be entered in the middle
(open groups of pictures, wrong keyframe marks, no index) decoding starts from its beginning instead.

Colours are converted as the file declares them (BT.601 where it declares nothing). Pixels are taken as stored, whatever
their aspect ratio, and interlaced frames as they are.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Generator
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import av
from av.video.frame import VideoFrame
from PIL import Image

from labeler.errors import SourceError
from labeler.preprocess import upright
from labeler.sources.clips import Clip, ClipIndex, Frame
from labeler.sources.libav import Decoding, opened_video, stated_orientation
from labeler.sources.opening import check_pixels
from labeler.sources.orientation import upright_size
from labeler.sources.pictures import Exif


class VideoClip(Clip):
    """Every iterator has its own decoder."""

    def __init__(self, path: Path, *, exif: Exif, max_pixels: int) -> None:
        super().__init__()
        self._path = path
        self._pts = array("q")
        """Presentation time of each frame in the stream's ticks, as far as they rise."""
        self._keys = array("q")
        """Indices of the frames marked as keyframes."""
        self._checks = array("I")
        self._seekable = True
        self.index = self._survey(exif, max_pixels)

    def _survey(self, exif: Exif, max_pixels: int) -> ClipIndex:
        times, stated, size = list[float | None](), 1, (0, 0)
        with opened_video(self._path) as decoding:
            context = decoding.stream.codec_context
            check_pixels(context.height, context.width, max_pixels=max_pixels)
            for frame in decoding.frames():
                if not times:
                    check_pixels(frame.height, frame.width, max_pixels=max_pixels)
                    stated, size = self._orientation(frame, exif), (frame.height, frame.width)
                times.append(_time(frame, decoding))
                self._note(frame)
            problem = decoding.stopped
        if not times:
            raise SourceError(f"not one frame can be decoded: {problem or 'the stream is empty'}")
        self._applied = stated if exif == "apply" else 1
        height, width = upright_size(size, self._applied)
        told = problem and f"the frames from {len(times)} on are lost: {problem}"
        return ClipIndex(tuple(times), height, width, stated, told)

    @staticmethod
    def _orientation(frame: VideoFrame, exif: Exif) -> int:
        stated = stated_orientation(frame)
        if stated is None and exif == "apply":
            raise SourceError("its frames are to be shown turned by other than a quarter turn: use --exif ignore")
        return stated or 1

    def _note(self, frame: VideoFrame) -> None:
        index = len(self._checks)
        self._checks.append(_checksum(frame))
        if frame.key_frame:
            self._keys.append(index)
        if frame.pts is None or (index and self._pts and frame.pts <= self._pts[-1]):
            self._seekable = False
        elif self._seekable:
            self._pts.append(frame.pts)

    def _forward(self, indices: range) -> Generator[Frame]:
        done = 0
        for entry in self._entries(indices[0]) if indices else ():
            with closing(self._decode_from(entry)) as frames:
                for index, frame in frames:
                    if index < indices[done]:
                        continue
                    if index > indices[done] or (entry and _checksum(frame) != self._checks[index]):
                        break
                    yield self._converted(index, frame)
                    done += 1
                    if done == len(indices):
                        return
        if indices:
            raise SourceError(f"frame {indices[done]} is gone: the file changed while it was read")

    def _entries(self, start: int) -> list[int]:
        """Where decoding may begin to reach a frame: its keyframe, the one before, the beginning."""
        last = bisect_right(self._keys, start) if self._seekable else 0
        return [*(self._keys[i] for i in range(last - 1, max(0, last - 3), -1) if self._keys[i] > 0), 0]

    def _decode_from(self, entry: int) -> Generator[tuple[int, VideoFrame]]:
        """Index and frame, from the keyframe of index `entry` on (or wherever the seek ended); 0 = all, by counting."""
        with opened_video(self._path) as decoding:
            if not entry:
                yield from zip(range(self.index.count), decoding.frames(), strict=False)
                return
            try:
                decoding.container.seek(self._pts[entry], stream=decoding.stream)
            except av.FFmpegError:
                return
            for frame in decoding.frames():
                index = bisect_left(self._pts, frame.pts) if frame.pts is not None else self.index.count
                if index >= self.index.count or self._pts[index] != frame.pts:
                    return
                yield index, frame

    def _converted(self, index: int, frame: VideoFrame) -> Frame:
        image = Image.fromarray(frame.to_ndarray(format="rgb24"))
        return Frame(index, self.index.times_s[index], upright(image, self._applied))


def _time(frame: VideoFrame, decoding: Decoding) -> float | None:
    """Seconds since the container's start."""
    tick = decoding.stream.time_base
    if frame.pts is None or tick is None:
        return None
    return float(frame.pts * tick - Fraction(decoding.container.start_time or 0, av.time_base))


def _checksum(frame: VideoFrame) -> int:
    """Of every fourth row of the luma: blocks, in which decoders err, are higher."""
    return zlib.crc32(frame.to_ndarray(format="gray")[::4].tobytes())
