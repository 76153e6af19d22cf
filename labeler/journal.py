"""The waist: an append-only file of records, from which every output is made.

`journal.jsonl` is UTF-8, one JSON object per line, keys sorted; the first line is a header. The newest record of
a (key, frame) counts. A torn last line (the process was killed while writing it) is cut off on opening; damage
anywhere else is an error with its line number. Only places of records are held in memory.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from labeler.errors import JournalError, OutputError
from labeler.types import Record

SCHEMA = "sam2label/journal/1"
NAME = "journal.jsonl"
SYNC_SECONDS = 2.0
"""After a power cut at most this much work is lost; after a kill, none."""


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
class _Scan:
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
        self._stream = _open(path)
        scan = _scan(path, self._stream)
        if scan.header is None:
            raise JournalError(f"{path}: is empty; run sam2label images or videos first")
        self.header, self.places = scan.header, scan.places

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


class Journal:
    """The one writer. Raises JournalError if another run holds it or it belongs to another kind of run."""

    def __init__(self, folder: Path, header: Header, *, prepare: Callable[[], None] = lambda: None) -> None:
        """`prepare` is called once no other run can write to the folder, before the journal is looked at."""
        self.path = folder / NAME
        self._lock = _lock(folder)
        try:
            prepare()
            scan = _resume(self.path, header)
            self.places, self.outputs, self._end = scan.places, scan.outputs, scan.end
            self._fd = _open_for_append(self.path, scan.end)
            self._synced = time.monotonic()
            if scan.end == 0:
                self._write(_line(header.document()))
        except BaseException:
            self._lock.release()
            raise

    def done(self, key: str, frame: int, fingerprint: str) -> Place | None:
        """The record of this very work, done or failed, or None."""
        place = self.places.get((key, frame))
        return place if place is not None and place.fingerprint == fingerprint else None

    def append(self, record: Record) -> None:
        """Write one record and hand it to the operating system. Raises OutputError if the disk is full."""
        offset = self._end
        self._write(_line(asdict(record)))
        self.places.add(record.key, record.frame, Place(record.fingerprint, record.status, offset))

    def announce(self, name: str, sha256: str) -> None:
        """Note that an output file with this hash is about to be put in place: it is ours and may be replaced."""
        if sha256 not in self.outputs:
            self._write(_line({"output": {"name": name, "sha256": sha256}}))
            self.outputs.add(sha256)

    def close(self) -> None:
        os.fsync(self._fd)
        os.close(self._fd)
        self._lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: TracebackType | BaseException | None) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
            if time.monotonic() - self._synced > SYNC_SECONDS:
                os.fsync(self._fd)
                self._synced = time.monotonic()
        except OSError as error:
            raise OutputError(
                f"{self.path}: cannot be written ({error.strerror}); make room and run the same command again, "
                "what is done is kept"
            ) from None
        self._end += len(line)


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _lock(folder: Path) -> FileLock:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".journal.lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise JournalError(
            f"{folder}: another sam2label run is writing here; wait for it or choose another -o"
        ) from None
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror}); choose another folder with -o") from None
    return lock


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise JournalError(f"{path}: cannot be read ({error.strerror})") from None


def _resume(path: Path, header: Header) -> _Scan:
    """What is in a journal that `header` may go on with; nothing if there is none yet."""
    if not path.exists():
        return _Scan()
    with _open(path) as stream:
        scan = _scan(path, stream)
    for name in ("kind", "bundle", "options") if scan.header else ():
        if (old := getattr(scan.header, name)) != (new := getattr(header, name)):
            raise JournalError(
                f"{path}: was made with {name} {_short(old)}, this run has {_short(new)}; repeat the first command, "
                "choose another -o, or give --restart to begin anew (the old labels are moved aside)"
            )
    return scan


def _short(value: Any) -> str:
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping) else f"{value:.12}"


def _open_for_append(path: Path, end: int) -> int:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        os.ftruncate(fd, end)
        os.lseek(fd, end, os.SEEK_SET)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror})") from None
    return fd


def _scan(path: Path, stream: BinaryIO) -> _Scan:
    scan = _Scan()
    for number, line in enumerate(stream, start=1):
        if not line.endswith(b"\n"):
            break  # torn by a kill: the work is done again
        try:
            _take(scan, json.loads(line), first=number == 1)
        except (ValueError, KeyError, TypeError):
            raise JournalError(
                f"{path}: line {number} is damaged; restore the file from a copy, or give --restart to begin anew "
                "(the old labels are moved aside)"
            ) from None
        scan.end += len(line)
    return scan


def _take(scan: _Scan, document: Mapping[str, Any], *, first: bool) -> None:
    if first:
        if document["schema"] != SCHEMA:
            raise ValueError(document["schema"])
        scan.header = Header(**{name: document[name] for name in ("kind", "program", "bundle", "options")})
    elif "output" in document:
        scan.outputs.add(document["output"]["sha256"])
    else:
        place = Place(sys.intern(document["fingerprint"]), sys.intern(document["status"]), scan.end)
        scan.places.add(sys.intern(document["key"]), document["frame"], place)
