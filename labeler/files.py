"""Write a file whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from labeler.errors import OutputError


@contextmanager
def replacing(path: Path, *, before: Callable[[Path], None] = lambda _: None) -> Iterator[IO[str]]:
    """Open a temporary sibling for UTF-8 text; on success it takes `path`'s place, otherwise it is removed.

    `before` is called with the finished temporary file. Raises OutputError if it cannot be written.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        before(temporary)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OutputError(
                f"{path}: cannot be written ({error.strerror}); make room and run the same command again, what is done is kept"
            ) from None
        raise


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a file whole. Raises OutputError if it cannot be written."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(f"{path}: cannot be written ({error.strerror}); make room and run the same command again") from None
