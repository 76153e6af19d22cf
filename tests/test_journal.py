"""The journal: resume, torn tails, damage, the lock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from labeler.errors import JournalError, OutputError
from labeler.journal import NAME, Header, Journal, JournalReader
from labeler.types import Record

HEADER = Header("images", "0", "b" * 64, {"exif": "apply"})


def record(key: str, *, frame: int = 0, fingerprint: str = "f", status: str = "done") -> Record:
    return Record(key, frame, fingerprint, status, height=4, width=5)  # type: ignore[arg-type]


def filled(folder: Path, keys: str = "abc") -> Path:
    with Journal(folder, HEADER) as journal:
        for key in keys:
            journal.append(record(key))
    return folder / NAME


def test_records_come_back_sorted_and_newest(tmp_path: Path) -> None:
    path = filled(tmp_path, "cab")
    with Journal(tmp_path, HEADER) as journal:
        assert journal.done("a", 0, "f")
        assert not journal.done("a", 0, "other")
        journal.append(record("a", fingerprint="g"))
    with JournalReader(path) as reader:
        found = [(entry["key"], entry["fingerprint"]) for entry in reader.records()]
    assert found == [("a", "g"), ("b", "f"), ("c", "f")]


def test_cut_at_every_byte_of_its_last_two_records_it_goes_on(tmp_path: Path) -> None:
    path = filled(tmp_path)
    whole = path.read_bytes()
    start = whole.rindex(b"\n", 0, whole.rindex(b"\n", 0, len(whole) - 1)) + 1
    for end in range(start, len(whole) + 1):
        path.write_bytes(whole[:end])
        with Journal(tmp_path, HEADER) as journal:
            for key in "abc":
                if not journal.done(key, 0, "f"):
                    journal.append(record(key))
        assert path.read_bytes() == whole


def test_a_header_cut_short_is_a_new_journal(tmp_path: Path) -> None:
    path = filled(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:10])
    filled(tmp_path)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("line", [0, 1, 2])
def test_damage_before_the_end_is_an_error_with_its_line(tmp_path: Path, line: int) -> None:
    path = filled(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line][:7] + b"\xff" + lines[line][8:]
    path.write_bytes(b"".join(lines))
    with pytest.raises(JournalError, match=f"line {line + 1} is damaged"):
        Journal(tmp_path, HEADER)
    assert path.read_bytes() == b"".join(lines), "a damaged journal is left as it is"
    Journal(tmp_path / "lock-is-free", HEADER).close()


@pytest.mark.parametrize(
    "other",
    [
        Header("videos", "0", "b" * 64, {"exif": "apply"}),
        Header("images", "0", "c" * 64, {"exif": "apply"}),
        Header("images", "0", "b" * 64, {"exif": "ignore"}),
    ],
)
def test_another_kind_of_run_is_refused(tmp_path: Path, other: Header) -> None:
    filled(tmp_path)
    with pytest.raises(JournalError, match="--restart"):
        Journal(tmp_path, other)


def test_a_newer_program_goes_on(tmp_path: Path) -> None:
    filled(tmp_path)
    with Journal(tmp_path, Header("images", "9", "b" * 64, {"exif": "apply"})) as journal:
        assert journal.done("a", 0, "f")


def test_one_writer(tmp_path: Path) -> None:
    holder = (
        "import sys, pathlib; from labeler.journal import *; "
        f"j = Journal(pathlib.Path({str(tmp_path)!r}), Header('images', '0', 'b', {{}})); "
        "print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen([sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(JournalError, match="another sam2label run is writing here"):
            Journal(tmp_path, HEADER)
    finally:
        child.kill()
        child.wait()
    Journal(tmp_path / "other", HEADER).close()
    with pytest.raises(JournalError, match="was made with bundle"):  # the lock of a killed run is free
        Journal(tmp_path, HEADER)


def test_lines_are_canonical_utf8_json(tmp_path: Path) -> None:
    path = filled(tmp_path, "ü")
    last = path.read_text(encoding="utf-8").splitlines()[-1]
    assert '"key":"ü"' in last
    document = json.loads(last)
    assert list(document) == sorted(document)


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="choose another folder with -o"):
        Journal(tmp_path / "file" / "out", HEADER)
