"""What identifies an input's content in a fingerprint."""

from __future__ import annotations

import hashlib
from pathlib import Path

from labeler.errors import SourceError


def file_sha256(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes. Raises SourceError with the reason where it cannot be read."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        raise SourceError(getattr(error, "strerror", None) or str(error)) from error
