"""Animated pictures (GIF, WebP, APNG, AVIF) as clips, composed by Pillow."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from PIL import Image, ImageFile

from labeler.errors import SourceError
from labeler.preprocess import upright
from labeler.sources.clips import Clip, ClipIndex, Frame
from labeler.sources.opening import load, opened_picture, translated
from labeler.sources.orientation import stated_orientation, upright_size
from labeler.sources.pictures import MAX_PIXELS, Exif
from labeler.sources.rgb import to_rgb


def is_animated(path: Path) -> bool:
    """True for a picture file that holds more than one frame; False also where it cannot be read."""
    try:
        with opened_picture(path, max_pixels=MAX_PIXELS) as (image, _), translated():
            return bool(getattr(image, "is_animated", False))
    except SourceError:
        return False


class AnimationClip(Clip):
    """Times are sums of the durations that the frames state. An APNG's separate still is no frame of it."""

    def __init__(self, path: Path, *, exif: Exif, max_pixels: int) -> None:
        super().__init__()
        self._path, self._max_pixels = path, max_pixels
        with opened_picture(path, max_pixels=max_pixels) as (image, fp):
            stated, _ = stated_orientation(image, fp)
            self._orientation = stated if exif == "apply" else 1
            times, problem = _survey(image)
            height, width = upright_size((image.height, image.width), self._orientation)
        self.index = ClipIndex(times, height, width, stated, problem)

    def _forward(self, indices: range) -> Generator[Frame]:
        # Opened anew each time: Pillow's way back to the first frame fails for APNG.
        with opened_picture(self._path, max_pixels=self._max_pixels) as (image, _):
            for index in indices:
                if not _seek(image, index):
                    raise SourceError(f"frame {index} is gone: the file changed while it was read")
                load(image)
                yield Frame(index, self.index.times_s[index], self._upright(image))

    def _upright(self, image: Image.Image) -> Image.Image:
        with translated():
            rgb, _ = to_rgb(image)
            # Pillow decodes the next frame into the same picture.
            return upright(rgb.copy() if rgb is image else rgb, self._orientation)


def _survey(image: ImageFile.ImageFile) -> tuple[tuple[float, ...], str | None]:
    """Times of the frames that decode, and what stopped them. Raises SourceError where not one does."""
    times, milliseconds = list[float](), 0.0
    try:
        while _seek(image, len(times)):
            load(image)
            times.append(milliseconds / 1000)
            milliseconds += image.info.get("duration", 0)
    except SourceError as error:
        if not times:
            raise
        return tuple(times), f"the frames from {len(times)} on are lost: {error}"
    if not times:
        raise SourceError("not one frame can be read")
    return tuple(times), None


def _seek(image: ImageFile.ImageFile, index: int) -> bool:
    """Goes forward to a frame; False behind the last."""
    with translated():
        try:
            image.seek(index + int(getattr(image, "default_image", False)))
        except EOFError:
            return False
    return True
