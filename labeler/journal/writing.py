"""Append to a journal: one writer, torn tails cut off, nothing written twice."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from labeler.errors import JournalError, OutputError
from labeler.journal.reading import NAME, Header, Place, Scan, open_journal, scan
from labeler.types import Record

SYNC_SECONDS = 2.0
"""After a power cut at most this much work is lost; after a kill, none."""


class Journal:
    """The one writer. Raises JournalError if another run holds it or it belongs to another kind of run."""

    def __init__(self, folder: Path, header: Header, *, prepare: Callable[[], None] = lambda: None) -> None:
        """`prepare` is called once no other run can write to the folder, before the journal is looked at."""
        self.path = folder / NAME
        self._lock = _lock(folder)
        try:
            prepare()
            found = _resume(self.path, header)
            self.places, self.outputs, self._end = found.places, found.outputs, found.end
            self._fd = _open_for_append(self.path, found.end)
            self._synced = time.monotonic()
            if found.end == 0:
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
        self._put(record, asdict(record))

    def add(self, record: Record) -> None:
        """Append a record unless it says nothing new.

        A clip that goes on from a snapshot makes some frames again, and in its way back meets frames again with other
        objects: the newest record of a frame holds the objects of all.
        """
        place = self.done(record.key, record.frame, record.fingerprint)
        document = asdict(record)
        if place is not None and place.status == record.status == "done":
            earlier = self._read(place)["annotations"]
            known = {annotation["object_id"] for annotation in earlier}
            fresh = [annotation for annotation in document["annotations"] if annotation["object_id"] not in known]
            if not fresh:
                return
            document["annotations"] = sorted([*earlier, *fresh], key=lambda annotation: annotation["object_id"])
        self._put(record, document)

    def _put(self, record: Record, document: Mapping[str, Any]) -> None:
        place = Place(sys.intern(record.fingerprint), sys.intern(record.status), self._end)
        self._write(_line(document))
        self.places.add(sys.intern(record.key), record.frame, place)

    def _read(self, place: Place) -> dict[str, Any]:
        with self.path.open("rb") as stream:
            stream.seek(place.offset)
            record: dict[str, Any] = json.loads(stream.readline())
        return record

    def objects(self, key: str, frame: int, fingerprint: str) -> list[int]:
        """Ids of the objects in the record of this very work."""
        place = self.done(key, frame, fingerprint)
        return [] if place is None else [annotation["object_id"] for annotation in self._read(place)["annotations"]]

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


def _resume(path: Path, header: Header) -> Scan:
    """What is in a journal that `header` may go on with; nothing if there is none yet."""
    if not path.exists():
        return Scan()
    with open_journal(path) as stream:
        found = scan(path, stream)
    for name in ("kind", "bundle", "options") if found.header else ():
        if (old := getattr(found.header, name)) != (new := getattr(header, name)):
            raise JournalError(
                f"{path}: was made with {name} {_short(old)}, this run has {_short(new)}; repeat the first command, "
                "choose another -o, or give --restart to begin anew (the old labels are moved aside)"
            )
    return found


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
