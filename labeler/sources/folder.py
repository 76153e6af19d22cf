"""A folder of frames: its pictures in natural order are one clip."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from labeler.errors import SourceError
from labeler.sources.clips import Clip, ClipIndex, Frame
from labeler.sources.pictures import Exif, PictureInfo, picture_size, read_picture
from labeler.sources.scan import frame_files


class FolderClip(Clip):
    """Frames have no times. One that cannot be read, or differs in size from the first, is a frame with an error."""

    def __init__(self, path: Path, *, exif: Exif, max_pixels: int) -> None:
        super().__init__()
        self._exif, self._max_pixels = exif, max_pixels
        self._files = frame_files(path)
        first = self._first_info()
        names = tuple(file.name for file in self._files)
        times = (None,) * len(names)
        self.index = ClipIndex(times, first.height, first.width, first.exif_orientation, names=names)

    def _first_info(self) -> PictureInfo:
        reason = "it holds no picture"
        for file in self._files:
            try:
                return picture_size(file, exif=self._exif, max_pixels=self._max_pixels)
            except SourceError as error:
                reason = f"not one of its pictures can be read: {error}"
        raise SourceError(reason)

    def _forward(self, indices: range) -> Generator[Frame]:
        for index in indices:
            yield self._read(index)

    def _read(self, index: int) -> Frame:
        try:
            picture = read_picture(self._files[index], exif=self._exif, max_pixels=self._max_pixels)
        except SourceError as error:
            return Frame(index, None, None, str(error))
        wanted = self.index
        if (picture.height, picture.width) != (wanted.height, wanted.width):
            sizes = f"{picture.width} x {picture.height}, the clip's first {wanted.width} x {wanted.height}"
            return Frame(index, None, None, f"this frame is {sizes}")
        return Frame(index, None, picture.upright())
