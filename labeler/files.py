"""Write a file whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from filecmp import cmp
from pathlib import Path
from typing import IO

from labeler.errors import OutputError, UsageError


@contextmanager
def replacing(path: Path, *, before: Callable[[Path], None] = lambda _: None) -> Iterator[IO[str]]:
    """Open a temporary sibling for UTF-8 text; on success it takes `path`'s place, otherwise it is removed.

    `before` is called with the finished temporary file. Raises OutputError if it cannot be written.
    """
    with _temporary(path, before) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def replace_bytes(path: Path, content: bytes, *, before: Callable[[Path], None] = lambda _: None) -> None:
    """Write a file whole, and the folders above it; `before` as in `replacing`. Raises OutputError."""
    with _temporary(path, before) as temporary:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)


def refuse_other(path: Path) -> Callable[[Path], None]:
    """For `replacing`'s `before`: raise UsageError if `path` is there with other content than was written."""

    def check(temporary: Path) -> None:
        if path.exists() and not (path.is_file() and cmp(temporary, path, shallow=False)):
            raise UsageError(f"{path}: is there already, with other content; move it away or choose another with -o")

    return check


@contextmanager
def _temporary(path: Path, before: Callable[[Path], None] = lambda _: None) -> Iterator[Path]:
    temporary = path.with_name(path.name + ".tmp")
    try:
        yield temporary
        before(temporary)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(
            f"{path}: cannot be written ({error.strerror}); make room and run the same command again, "
            "what is done is kept"
        ) from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
