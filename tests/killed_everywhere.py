"""A run killed at every one of its calls into the operating system, each time followed by the same run.

`python tests/killed_everywhere.py FOLDER fresh|edited|restart` prints how many moments there were. It fails at the
first after which the outputs differ from those of an uninterrupted run or something that lay there before is lost.
The run is real but for the labelling, so that it can be forked by the hundred.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import BuiltinFunctionType, FrameType
from typing import Any

from labeler import runs, workers
from labeler.journal import Header, Journal
from labeler.types import Annotation, Record

STARTS = ("fresh", "edited", "restart")
"""An empty folder; one where a picture is left to do and the labels were edited by hand; the same begun anew."""
HEADER = Header("images", "0", "b" * 64, {"exif": "apply"})
RESULTS = ("annotations.json", "failures.jsonl")
EDITED = b'{"edited": "by hand"}\n'
SYSTEM = ("posix", "fcntl", "_io", "io")
"""Modules whose C functions and methods reach the operating system, or may."""


def annotation(number: int) -> Annotation:
    rle = {"size": [4, 5], "counts": "54000000Z0"}
    return Annotation(number, "dog", 0, rle, 9, (0.0, 0.0, 3.0, 3.0), 0.5, 0.9, 1.0, True, 0, "first", ())


def label(task: int) -> Iterator[Record]:
    """Task 2 fails."""
    if task == 2:
        yield Record("2", 0, "print", "failed", error="broken")
    else:
        yield Record(str(task), 0, "print", "done", height=4, width=5, annotations=(annotation(1), annotation(2)))


def settled(task: int, journal: Journal, retry_failed: bool) -> bool:
    return not retry_failed and journal.done(str(task), 0, "print") is not None


class Silent:
    def note(self, text: str) -> None: ...
    def start(self, *, total: int, items: int, plan: workers.Plan) -> None: ...
    def tick(self, record: Record | None, *, ended: bool, steps: int) -> None: ...


def run(out: Path, *, restart: bool) -> Counter[str]:
    job = runs.Job(
        HEADER,
        tasks=range(4),
        stream=label,
        settled=settled,
        lost=lambda task, why: Record(str(task), 0, "print", "failed", error=why),
        keys=frozenset("0123"),
        failures=(),
        provenance={},
    )
    options = runs.RunOptions(restart=restart)
    return runs.execute(job, out, plan=workers.Plan(1, 1), options=options, progress=Silent())


class Killer:
    """A profiler that kills its process at a given call; one that it does not reach only counts."""

    def __init__(self, moment: int) -> None:
        self.calls, self.moment = 0, moment

    def __call__(self, _: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and self._reaches_system(called):
            self.calls += 1
            if self.calls == self.moment:
                os.kill(os.getpid(), signal.SIGKILL)

    def _reaches_system(self, called: BuiltinFunctionType) -> bool:
        return (called.__module__ or type(called.__self__).__module__) in SYSTEM


def in_child(out: Path, *, restart: bool, moment: int) -> int:
    """Run in a forked child. Returns 0 if it was killed, else the calls that it made."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        killer = Killer(moment)
        sys.setprofile(killer)
        run(out, restart=restart)
        sys.setprofile(None)
        os.write(writing, str(killer.calls).encode())
        os._exit(0)
    os.close(writing)
    calls = int(os.read(reading, 20) or 0)
    os.close(reading)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (0 if calls else -signal.SIGKILL), f"the run ended with {status}"
    return calls


def prepare(out: Path, start: str) -> list[bytes]:
    """Leave the folder as `start` says. Returns what may not be lost."""
    shutil.rmtree(out, ignore_errors=True)
    if start == "fresh":
        return []
    run(out, restart=False)
    (out / RESULTS[0]).write_bytes(EDITED)
    journal = (out / "journal.jsonl").read_bytes()
    if start == "restart":
        return [EDITED, journal]
    lines = journal.splitlines(keepends=True)
    (out / "journal.jsonl").write_bytes(b"".join(lines[:3] + lines[5:]))  # one picture is to be done
    return [EDITED]


def main(folder: Path, start: str) -> int:
    restart = start == "restart"
    prepare(whole := folder / "whole", start)
    calls = in_child(whole, restart=restart, moment=0)
    wanted = {name: (whole / name).read_bytes() for name in RESULTS}
    for moment in range(1, calls + 1):
        keep = prepare(out := folder / "killed", start)
        assert in_child(out, restart=restart, moment=moment) == 0
        assert in_child(out, restart=restart, moment=0) > 0
        assert {name: (out / name).read_bytes() for name in RESULTS} == wanted, f"killed at call {moment}"
        held = [path.read_bytes() for path in out.rglob("*") if path.is_file()]
        assert all(any(kept in content for content in held) for kept in keep), f"lost, killed at call {moment}"
        assert not list(out.rglob("*.tmp")), f"left over, killed at call {moment}"
    return calls


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), sys.argv[2]))  # noqa: T201  # the answer
