"""Keep the converter's chatter (Python's and C++'s, on stdout and stderr) off the terminal."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout

TAIL = 2000
"""Characters of it that are kept when something fails."""


@contextmanager
def silence() -> Iterator[None]:
    """Send both streams, Python's and the descriptors below them, to a file.

    If the block fails, the last of what was written becomes a note of the exception.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log, ExitStack() as restore:
        for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
            stream.flush()
            saved = os.dup(descriptor)
            restore.callback(os.close, saved)
            restore.callback(os.dup2, saved, descriptor)
            restore.callback(stream.flush)
            os.dup2(log.fileno(), descriptor)
        restore.enter_context(redirect_stdout(log))
        restore.enter_context(redirect_stderr(log))
        try:
            yield
        except BaseException as error:
            log.seek(0)
            error.add_note(log.read()[-TAIL:])
            raise
