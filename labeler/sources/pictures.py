"""One picture file: its upright size from the header, its pixels as 8-bit RGB.

Every fault of a file ends as a `SourceError` whose text is one line and names no path (the record that carries it has
the key), so that outputs do not depend on where the folder lies. Pillow's pixel limit is replaced by `max_pixels`; a
process that set `PIL.ImageFile.LOAD_TRUNCATED_IMAGES` gets truncated pictures as it asked, all others an error.
"""

from __future__ import annotations

import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

from PIL import ExifTags, Image, ImageFile
from PIL.TiffImagePlugin import TiffImageFile

from labeler.errors import SourceError
from labeler.preprocess import upright
from labeler.sources.formats import PICTURE_FORMATS
from labeler.sources.rgb import to_rgb

Exif: TypeAlias = Literal["apply", "ignore"]

MAX_PIXELS = 1 << 28
"""Default of `max_pixels`: 268 megapixels, 1 GiB once decoded (Pillow keeps RGB in 4 bytes)."""

_INVERSE = {6: 8, 8: 6}
"""The orientations that do not undo themselves."""

_pillow_limit = threading.Lock()


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
    with _opened(path, max_pixels) as (image, fp), _translated():
        orientation, _ = _orientation(image, fp)
        height, width = _upright_size(image, orientation if exif == "apply" else 1)
    return PictureInfo(height, width, orientation)


def read_picture(path: Path, *, exif: Exif, max_pixels: int) -> Picture:
    """Decodes a picture (of a file with several frames the first) to RGB by the rules of `labeler.sources.rgb`.

    `exif="apply"` makes the EXIF orientation (or what the container says instead) part of the picture's size and of
    `Picture.orientation`; `"ignore"` gives rows and columns as stored. Raises SourceError with the reason.
    """
    with _opened(path, max_pixels) as (image, fp), _translated():
        exif_orientation, notes = _orientation(image, fp)
        wanted = exif_orientation if exif == "apply" else 1
        height, width = _upright_size(image, wanted)
        notes += _frame_note(image)
        _load(image)
        stored = _stored_again(image, exif_orientation) if exif == "ignore" else image
        rgb, how = to_rgb(stored)
    left = 1 if isinstance(image, TiffImageFile) else wanted
    found = rgb.size if left < 5 else rgb.size[::-1]
    if found != (width, height):
        raise SourceError(f"its header says {width} x {height}, its data {found[0]} x {found[1]}")
    return Picture(rgb, left, height, width, exif_orientation, notes + how)


def is_animated(path: Path) -> bool:
    """True for a picture file that holds more than one frame; False also where it cannot be read."""
    try:
        with _opened(path, MAX_PIXELS) as (image, _), _translated():
            return bool(getattr(image, "is_animated", False))
    except SourceError:
        return False


@contextmanager
def _opened(path: Path, max_pixels: int) -> Iterator[tuple[ImageFile.ImageFile, BinaryIO]]:
    with _translated():
        fp = _open_regular(path)
    with fp:
        with _translated():
            try:
                image = _identify(fp)
            except Image.DecompressionBombError:
                with _lifted_limit():
                    image = _identify(fp)
        width, height = image.size
        if width * height > max_pixels:
            raise SourceError(
                f"{width} x {height} is {width * height} pixels, more than the limit of {max_pixels}: "
                "raise --max-pixels to label it"
            )
        yield image, fp


def _open_regular(path: Path) -> BinaryIO:
    # A named pipe would block for ever.
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise SourceError("is a directory, not a file" if stat.S_ISDIR(mode) else "is not a regular file")
    return path.open("rb")


def _identify(fp: BinaryIO) -> ImageFile.ImageFile:
    """`PIL.Image.open` without its global pixel limit, over the formats of our table only.

    No file name is handed to Pillow: it would map some files into memory, and a mapped file that shrinks kills
    the process.
    """
    Image.init()
    fp.seek(0)
    prefix = fp.read(16)
    if not prefix:
        raise SourceError("the file is empty")
    reasons: list[str] = []
    for name in PICTURE_FORMATS:
        factory, accept = Image.OPEN.get(name, (None, None))
        accepted = factory is not None and (accept is None or accept(prefix))
        if isinstance(accepted, str):
            reasons.append(f"{name}: {accepted}")
        elif accepted and factory is not None:
            fp.seek(0)
            try:
                return factory(fp, "")
            except (SyntaxError, IndexError, TypeError, struct.error) as error:
                reasons += [f"{name}: {error}"] if accept else []
    raise SourceError("not a picture that can be read" + "".join(f"; {_one_line(reason)}" for reason in reasons))


def _load(image: ImageFile.ImageFile) -> None:
    limit = Image.MAX_IMAGE_PIXELS
    above = limit is not None and image.width * image.height > limit
    with _lifted_limit() if above else nullcontext():
        image.load()


@contextmanager
def _lifted_limit() -> Iterator[None]:
    """Pillow's process-wide limit off, for pictures above it only: some plugins ask it again while they decode."""
    with _pillow_limit:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = limit


def _orientation(image: ImageFile.ImageFile, fp: BinaryIO) -> tuple[int, tuple[str, ...]]:
    """The orientation that Pillow would apply, from the header alone wherever it stands there."""
    try:
        if image.format == "PNG" and not _png_orientation_follows_pixels(fp):
            # PNG's own getexif decodes the picture, to find what may come after its pixels.
            tags = Image.Image.getexif(image)
        else:
            tags = image.getexif()
        value = tags.get(ExifTags.Base.Orientation, 1)
    except (OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, struct.error):
        return 1, ("EXIF is damaged: orientation taken as 1",)
    return (int(value) if value in range(1, 9) else 1), ()


def _png_orientation_follows_pixels(fp: BinaryIO) -> bool:
    """Walks the chunk headers of a PNG for metadata behind the pixels."""
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


def _upright_size(image: ImageFile.ImageFile, orientation: int) -> tuple[int, int]:
    width, height = image.size
    if isinstance(image, TiffImageFile):
        # Pillow's TIFF reader gives the size it will have rotated to.
        width, height = image.tag_v2[ExifTags.Base.ImageWidth], image.tag_v2[ExifTags.Base.ImageLength]
    return (width, height) if orientation >= 5 else (height, width)


def _stored_again(image: Image.Image, orientation: int) -> Image.Image:
    """Undoes the rotation of Pillow's TIFF reader, the only one that rotates on loading."""
    return upright(image, _INVERSE.get(orientation, orientation)) if isinstance(image, TiffImageFile) else image


def _frame_note(image: ImageFile.ImageFile) -> tuple[str, ...]:
    # Layers of a PSD are not frames: its picture is the merged one.
    several = image.format != "PSD" and getattr(image, "is_animated", False)
    return ("more than one frame: the first is used",) if several else ()


@contextmanager
def _translated() -> Iterator[None]:
    """Whatever Pillow raises on damaged bytes (its plugins raise nearly everything) as one SourceError."""
    try:
        yield
    except SourceError:
        raise
    except MemoryError as error:
        raise SourceError("not enough memory to decode it") from error
    except OSError as error:
        raise SourceError(_one_line(error.strerror or error)) from error
    except Exception as error:
        raise SourceError(_one_line(f"{type(error).__name__}: {error}")) from error


def _one_line(reason: object) -> str:
    return " ".join(str(reason).split())[:300]
