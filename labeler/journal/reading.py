"""Read a journal: only the places of its records are held in memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from labeler.errors import JournalError

SCHEMA = "sam2label/journal/1"
NAME = "journal.jsonl"


@dataclass(frozen=True, slots=True)
class Header:
    """What the records of one journal have in common."""

    kind: str
    """images or videos"""
    program: str
    bundle: str
    """Digest of the bundle."""
    options: Mapping[str, Any]
    """Options that change masks."""

    def document(self) -> dict[str, Any]:
        return {"schema": SCHEMA} | asdict(self)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies, and what is needed to decide whether to make it again."""

    fingerprint: str
    status: str
    offset: int


class Places(dict[tuple[str, int], Place]):
    """The newest place of every (key, frame). Work with another fingerprint replaces all frames of its key."""

    def __init__(self) -> None:
        self._frames: dict[str, list[int]] = {}

    def add(self, key: str, frame: int, place: Place) -> None:
        frames = self._frames.setdefault(key, [])
        if frames and self[key, frames[-1]].fingerprint != place.fingerprint:
            for old in frames:
                del self[key, old]
            frames.clear()
        if (key, frame) not in self:
            frames.append(frame)
        self[key, frame] = place


@dataclass(slots=True)
class Scan:
    """What a journal holds."""

    header: Header | None = None
    places: Places = field(default_factory=Places)
    outputs: set[str] = field(default_factory=set)
    """sha256 of every output file that a run was about to put in place."""
    end: int = 0
    """Of the last whole line."""


class JournalReader:
    """Random access to the newest record of every (key, frame), without a lock. Raises JournalError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream = open_journal(path)
        found = scan(path, self._stream)
        if found.header is None:
            raise JournalError(f"{path}: is empty; run sam2label images or videos first")
        self.header, self.places = found.header, found.places

    def records(self, *, status: str | None = None) -> Iterator[dict[str, Any]]:
        """The newest records, sorted by key and frame."""
        for _, place in sorted(self.places.items()):
            if status is None or place.status == status:
                yield self.read(place)

    def read(self, place: Place) -> dict[str, Any]:
        """The record that lies at a place."""
        self._stream.seek(place.offset)
        record: dict[str, Any] = json.loads(self._stream.readline())
        return record

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> JournalReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_journal(path: Path) -> BinaryIO:
    """Open it for reading. Raises JournalError."""
    try:
        return path.open("rb")
    except OSError as error:
        raise JournalError(f"{path}: cannot be read ({error.strerror})") from None


def scan(path: Path, stream: BinaryIO) -> Scan:
    """Go through a journal line by line. Raises JournalError naming the line that is damaged."""
    found = Scan()
    for number, line in enumerate(stream, start=1):
        if not line.endswith(b"\n"):
            break  # torn by a kill: the work is done again
        try:
            _take(found, json.loads(line), first=number == 1)
        except (ValueError, KeyError, TypeError):
            raise JournalError(
                f"{path}: line {number} is damaged; restore the file from a copy, or give --restart to begin anew "
                "(the old labels are moved aside)"
            ) from None
        found.end += len(line)
    return found


def _take(found: Scan, document: Mapping[str, Any], *, first: bool) -> None:
    if first:
        if document["schema"] != SCHEMA:
            raise ValueError(document["schema"])
        found.header = Header(**{name: document[name] for name in ("kind", "program", "bundle", "options")})
    elif "output" in document:
        found.outputs.add(document["output"]["sha256"])
    else:
        place = Place(sys.intern(document["fingerprint"]), sys.intern(document["status"]), found.end)
        found.places.add(sys.intern(document["key"]), document["frame"], place)
