"""One picture file: its upright size from the header, its pixels as 8-bit RGB.

Pillow's pixel limit is replaced by `max_pixels`. A process that set `PIL.ImageFile.LOAD_TRUNCATED_IMAGES` gets
truncated pictures as it asked; all others get an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from PIL import Image, ImageFile

from labeler.errors import SourceError
from labeler.preprocess import upright
from labeler.sources.opening import load, opened_picture, translated
from labeler.sources.orientation import inverse, stated_orientation, stored_size, turns_on_loading, upright_size
from labeler.sources.rgb import to_rgb

Exif: TypeAlias = Literal["apply", "ignore"]

MAX_PIXELS = 1 << 28
"""Default of `max_pixels`: 268 megapixels, 1 GiB once decoded (Pillow keeps RGB in 4 bytes)."""


@dataclass(frozen=True, slots=True)
class PictureInfo:
    """What the header says: upright size in pixels, and the file's EXIF orientation (1 where it has none)."""

    height: int
    width: int
    exif_orientation: int


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A decoded picture. Large pictures are not rotated on reading: that would take a second copy of them."""

    image: Image.Image
    """RGB, rows as stored. Upright only after `orientation` was applied."""
    orientation: int
    """EXIF orientation that is still to be applied to `image`; 1 = upright already."""
    height: int
    """Rows of the upright picture."""
    width: int
    exif_orientation: int
    """What the file says, whether applied or not."""
    notes: tuple[str, ...] = ()

    def upright(self) -> Image.Image:
        """The upright RGB picture, `height` x `width`; a second copy in memory where it has to be rotated."""
        return upright(self.image, self.orientation)


def picture_size(path: Path, *, exif: Exif, max_pixels: int) -> PictureInfo:
    """Upright size of a picture from its header, the same as `read_picture` gives, without decoding pixels.

    Raises SourceError for a file that is no picture, cannot be opened, or has more than `max_pixels`.
    """
    with opened_picture(path, max_pixels=max_pixels) as (image, fp), translated():
        orientation, _ = stated_orientation(image, fp)
        height, width = upright_size(stored_size(image), orientation if exif == "apply" else 1)
    return PictureInfo(height, width, orientation)


def read_picture(path: Path, *, exif: Exif, max_pixels: int) -> Picture:
    """Decodes a picture (of a file with several frames the first) to RGB by the rules of `labeler.sources.rgb`.

    `exif="apply"` makes the EXIF orientation (or what the container says instead) part of the picture's size and of
    `Picture.orientation`; `"ignore"` gives rows and columns as stored. Raises SourceError with the reason.
    """
    with opened_picture(path, max_pixels=max_pixels) as (image, fp), translated():
        stated, notes = stated_orientation(image, fp)
        wanted = stated if exif == "apply" else 1
        height, width = upright_size(stored_size(image), wanted)
        notes += _frame_note(image)
        load(image)
        rgb, how = to_rgb(image)
    left = wanted
    if turns_on_loading(image):
        rgb, left = (rgb if exif == "apply" else upright(rgb, inverse(stated))), 1
    found = upright_size((rgb.height, rgb.width), left)
    if found != (height, width):
        raise SourceError(f"its header says {width} x {height}, its data {found[1]} x {found[0]}")
    return Picture(rgb, left, height, width, stated, notes + how)


def _frame_note(image: ImageFile.ImageFile) -> tuple[str, ...]:
    # Layers of a PSD are not frames: its picture is the merged one.
    several = image.format != "PSD" and getattr(image, "is_animated", False)
    return ("more than one frame: the first is used",) if several else ()
