"""Errors become one message on stderr and an exit code."""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from labeler.errors import LabelerError

FAILED_ITEMS, USAGE, BUG, INTERRUPTED = 1, 2, 3, 130


class InterruptError(Exception):
    """Ctrl-C, on its way to the exit code."""


@contextmanager
def explained() -> Iterator[None]:
    """Print an error's lines and leave with its exit code; a bug leaves its traceback in a file."""
    try:
        yield
    except LabelerError as error:
        for line in str(error).splitlines():
            say(f"error: {line}")
        sys.exit(USAGE)
    except (KeyboardInterrupt, InterruptError):
        say("interrupted; the same command goes on from here")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(USAGE)
    except Exception as error:  # noqa: BLE001  # the outermost place: nothing may end in a traceback on the terminal
        with tempfile.NamedTemporaryFile("w", prefix="sam2label-", suffix=".txt", delete=False) as log:
            traceback.print_exc(file=log)
        say(f"bug: {type(error).__name__}: {error} (traceback in {Path(log.name)}; please report it)")
        sys.exit(BUG)


def say(text: str) -> None:
    """One line on stderr."""
    typer.echo(text, err=True)
