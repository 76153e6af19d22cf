"""Snapshot files: where a clip stands between two of its frames, so that a killed run goes on from there."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from labeler.clip import Snapshot
from labeler.journal import Journal
from labeler.types import Record

FOLDER = ".snapshots"
"""In the output folder; a clip's snapshot is removed at the clip's end."""


def name(key: str) -> str:
    """The snapshot file of a clip, relative to the output folder."""
    return f"{FOLDER}/{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz"


def dump(snapshot: Snapshot, last: Record) -> bytes:
    """A file's content. `last`: the last record that it covers."""
    content = io.BytesIO()
    covered = [last.fingerprint, last.frame, [annotation.object_id for annotation in last.annotations]]
    state = json.dumps({"covered": covered, "state": dict(snapshot.state)})
    np.savez(content, allow_pickle=False, state=np.array(state), **snapshot.arrays)
    return content.getvalue()


def load(path: Path, work: str) -> Snapshot | None:
    """The snapshot of work with that fingerprint, or None."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        if _covered(arrays)[0] != work:
            return None
        state = json.loads(str(arrays["state"]))["state"]
        return Snapshot({name: arrays[name] for name in arrays.files if name != "state"}, state)


def drop_stray(path: Path, journal: Journal, key: str, work: str) -> None:
    """Remove a snapshot of other work than `work`, a damaged one, and one that covers more than the journal holds.

    The last happens where a journal was lost, restored from a copy or moved aside, or where other work came between:
    the frames before the snapshot would never be made again.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            made, frame, objects = _covered(arrays)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        path.unlink()
        return
    if made != work or not set(objects) <= set(journal.objects(key, frame, work)):
        path.unlink()


def _covered(arrays: Mapping[str, Any]) -> tuple[str, int, list[int]]:
    """Of the last record that a snapshot covers: fingerprint, frame, objects."""
    work, frame, objects = json.loads(str(arrays["state"]))["covered"]
    return work, frame, objects
