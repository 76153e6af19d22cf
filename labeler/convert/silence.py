"""Keep the converter's chatter (Python's and C++'s, on stdout and stderr) off the terminal."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

TAIL = 2000


@contextmanager
def silence() -> Iterator[None]:
    """Send file descriptors 1 and 2 to a file; if the block fails, its last lines become a note of the exception."""
    with tempfile.TemporaryFile() as log, ExitStack() as restore:
        for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
            stream.flush()
            saved = os.dup(descriptor)
            restore.callback(os.close, saved)
            restore.callback(os.dup2, saved, descriptor)
            restore.callback(stream.flush)
            os.dup2(log.fileno(), descriptor)
        try:
            yield
        except BaseException as error:
            sys.stdout.flush()
            log.seek(max(0, os.fstat(log.fileno()).st_size - TAIL))
            error.add_note(log.read().decode(errors="replace"))
            raise
