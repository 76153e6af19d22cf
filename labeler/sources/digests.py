"""What identifies an input's content in a fingerprint."""

from __future__ import annotations

import hashlib
from pathlib import Path

from labeler.sources.opening import open_regular, translated
from labeler.sources.scan import frame_files


def file_sha256(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes. Raises SourceError with the reason where it cannot be read."""
    with open_regular(path) as stream, translated():
        return hashlib.file_digest(stream, "sha256").hexdigest()


def clip_sha256(path: Path) -> str:
    """SHA-256 (hex) of a clip: a file's bytes; for a folder of frames their names and bytes. Raises SourceError."""
    if not path.is_dir():
        return file_sha256(path)
    lines = [f"{frame.name}\0{file_sha256(frame)}\n" for frame in frame_files(path)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
