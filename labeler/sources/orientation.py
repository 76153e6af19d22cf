"""Which way up a picture file says it is, from its header."""

from __future__ import annotations

import struct
from typing import BinaryIO

from PIL import ExifTags, Image, ImageFile
from PIL.TiffImagePlugin import TiffImageFile


def stated_orientation(image: ImageFile.ImageFile, fp: BinaryIO) -> tuple[int, tuple[str, ...]]:
    """The EXIF orientation (1 to 8) that Pillow would apply, and notes; 1 where there is none or it is damaged.

    It may stand in EXIF, in XMP, or be said by the container (AVIF).
    """
    try:
        if image.format == "PNG" and not _png_says_it_behind_the_pixels(fp):
            # PNG's own getexif decodes the picture, to find what may come after its pixels.
            tags = Image.Image.getexif(image)
        else:
            tags = image.getexif()
        value = tags.get(ExifTags.Base.Orientation, 1)
    except (OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, struct.error):
        return 1, ("EXIF is damaged: orientation taken as 1",)
    return (int(value) if value in range(1, 9) else 1), ()


def stored_size(image: ImageFile.ImageFile) -> tuple[int, int]:
    """Rows and columns as stored, before loading. Pillow's TIFF reader gives the size it will have rotated to."""
    if isinstance(image, TiffImageFile):
        return image.tag_v2[ExifTags.Base.ImageLength], image.tag_v2[ExifTags.Base.ImageWidth]
    return image.height, image.width


def upright_size(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """Rows and columns once the orientation was applied."""
    return size[::-1] if orientation >= 5 else size


def turns_on_loading(image: ImageFile.ImageFile) -> bool:
    """True for the one Pillow reader that applies the orientation itself."""
    return isinstance(image, TiffImageFile)


def inverse(orientation: int) -> int:
    """The orientation that undoes one: itself but for the two quarter turns."""
    return {6: 8, 8: 6}.get(orientation, orientation)


def _png_says_it_behind_the_pixels(fp: BinaryIO) -> bool:
    """Walks the chunk headers of a PNG."""
    place, offset, pixels = fp.tell(), 8, False
    try:
        while True:
            fp.seek(offset)
            head = fp.read(8 + 22)
            if len(head) < 12:
                return False
            kind, text = head[4:8], head[8:]
            pixels = pixels or kind == b"IDAT"
            if pixels and (kind == b"eXIf" or text.startswith((b"XML:com.adobe.xmp", b"Raw profile type exif"))):
                return True
            offset += 12 + int.from_bytes(head[:4], "big")
    finally:
        fp.seek(place)
