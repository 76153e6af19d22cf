"""Opens files and pictures, and turns every way in which that fails into a SourceError of one line.

The text names no path (the record that carries it has the key), so that outputs do not depend on where a folder lies.
"""

from __future__ import annotations

import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from PIL import Image, ImageFile

from labeler.errors import SourceError
from labeler.sources.formats import PICTURE_FORMATS

_pillow_limit = threading.Lock()


def open_regular(path: Path) -> BufferedReader:
    """Opens a regular file for reading. Raises SourceError for all else (a named pipe would block for ever)."""
    with translated():
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise SourceError("is a directory, not a file" if stat.S_ISDIR(mode) else "is not a regular file")
        return path.open("rb")


@contextmanager
def opened_picture(path: Path, *, max_pixels: int) -> Iterator[tuple[ImageFile.ImageFile, BinaryIO]]:
    """A picture whose header was read, and its file. Raises SourceError, also where it has more than `max_pixels`."""
    with open_regular(path) as fp:
        with translated():
            try:
                image = _identify(fp)
            except Image.DecompressionBombError:
                with _lifted_limit():
                    image = _identify(fp)
        check_pixels(image.height, image.width, max_pixels=max_pixels)
        yield image, fp


def check_pixels(height: int, width: int, *, max_pixels: int) -> None:
    """Raises SourceError where a picture or frame is larger than the limit."""
    if height * width > max_pixels:
        raise SourceError(
            f"{width} x {height} is {width * height} pixels, more than the limit of {max_pixels}: "
            "raise --max-pixels to label it"
        )


def load(image: ImageFile.ImageFile) -> None:
    """Decodes the current frame, past Pillow's process-wide limit (ours was checked)."""
    limit = Image.MAX_IMAGE_PIXELS
    above = limit is not None and image.width * image.height > limit
    with translated(), _lifted_limit() if above else nullcontext():
        image.load()


@contextmanager
def translated() -> Iterator[None]:
    """Whatever is raised over damaged bytes (Pillow's plugins raise nearly everything) as one SourceError."""
    try:
        yield
    except SourceError:
        raise
    except MemoryError as error:
        raise SourceError("not enough memory to decode it") from error
    except OSError as error:
        raise SourceError(one_line(error.strerror or error)) from error
    except struct.error as error:
        raise SourceError("the file is cut short") from error
    except Exception as error:
        raise SourceError(one_line(f"{type(error).__name__}: {error}")) from error


def one_line(reason: object) -> str:
    """A foreign message without line breaks, of bounded length."""
    return " ".join(str(reason).split())[:300]


def _identify(fp: BinaryIO) -> ImageFile.ImageFile:
    """`PIL.Image.open` without its process-wide pixel limit, over the formats of our table only.

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
    raise SourceError("not a picture that can be read" + "".join(f"; {one_line(reason)}" for reason in reasons))


@contextmanager
def _lifted_limit() -> Iterator[None]:
    """Pillow's limit off, for pictures above it only: some plugins ask it again while they decode."""
    with _pillow_limit:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = limit
