"""Run tasks against a journal: skip what is done, spread the rest, record every result, write the outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from labeler import outputs, workers
from labeler.errors import UsageError
from labeler.files import replace_bytes
from labeler.journal import Header, Journal, JournalReader
from labeler.types import Record, Snapshot

Task = TypeVar("Task")


class Progress(Protocol):
    """What a run tells while it goes on."""

    def note(self, text: str) -> None:
        """One line worth reading."""

    def start(self, *, total: int, items: int, plan: workers.Plan) -> None:
        """So many items are about to be looked at, in `total` steps."""

    def tick(self, record: Record | None, *, ended: bool, steps: int) -> None:
        """A record was made, or a task came to its end (None; without any record before, if it was done earlier).

        `steps`: how much further the run is by it.
        """


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run uses the machine and its output folder. None of it changes masks."""

    workers: int | None = None
    threads: int | None = None
    retry_failed: bool = False
    restart: bool = False
    categories: Mapping[str, int] | None = None


def _one_step(_: object) -> int:
    return 1


def _nothing(*_: object) -> tuple[Mapping[str, Any], ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Job(Generic[Task]):
    """What there is to do, whatever the kind of input."""

    header: Header
    tasks: Sequence[Task]
    stream: Callable[[Task], Iterable[Record | Snapshot]]
    """Labels one task; picklable."""
    settled: Callable[[Task, Journal, bool], bool]
    """Whether a task needs no run; the flag says that failed ones are to be tried again."""
    lost: Callable[[Task, str], Record]
    """The record of a task whose worker died, with the reason."""
    keys: frozenset[str]
    """Items of this run; others in the journal are kept, but their failures are not this run's."""
    failures: tuple[Mapping[str, Any], ...]
    """What could not even become a task."""
    provenance: Mapping[str, Any]
    """For run.json."""
    steps: Callable[[Task], int] = _one_step
    """How many records a task is expected to give, for the progress bar only."""
    prepare: Callable[[Task, Journal], object] = _nothing
    """Called before a task is begun or gone on with."""
    afterwards: Callable[[JournalReader], Iterable[Mapping[str, Any]]] = _nothing
    """What is left to do once the labels are written; gives what failed, in the form of `failures`."""


def execute(job: Job[Task], out: Path, *, plan: workers.Plan, options: RunOptions, progress: Progress) -> Counter[str]:
    """Do the job. Returns counts: tasks, resumed, done, failed (records of this job's items), annotations, empty_masks.

    Raises JournalError, OutputError; KeyboardInterrupt passes through. The journal is left good in every case.
    """
    started = _now()
    with _journal(job.header, out, options, progress) as journal:
        counts = _label(job, journal, out, plan, options, progress)
        with JournalReader(journal.path) as reader:  # one look for all outputs: a journal can be long
            if moved := outputs.write_annotations(out, journal, reader, categories=options.categories):
                progress.note(f"{out / outputs.ANNOTATIONS} had been edited: that version is now {moved.name}")
            counts.update(outputs.count(reader, job.keys))
            failures = [*job.failures, *job.afterwards(reader)]
            counts["failed"] = outputs.write_failures(out, reader, job.keys, failures)
        times = {"started": started, "finished": _now()}
        outputs.write_run(
            out, {**job.provenance, **times, "counts": dict(counts), "workers": plan.workers, "threads": plan.threads}
        )
    return counts


def check_folders(root: Path, out: Path) -> None:
    """Raise UsageError unless `root` exists and `out` lies outside it."""
    if not root.exists():
        raise UsageError(f"{root}: does not exist")
    if out.resolve().is_relative_to(root.resolve()):
        raise UsageError(f"{out}: lies inside {root}, and nothing is ever written there; choose another folder with -o")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is not a folder; choose another with -o")


def _journal(header: Header, out: Path, options: RunOptions, progress: Progress) -> Journal:
    def prepare() -> None:
        if not options.restart:
            outputs.refuse_foreign(out)
        elif aside := outputs.restart(out):
            progress.note(f"the earlier labels are now in {aside}")

    return Journal(out, header, prepare=prepare)


def _label(
    job: Job[Task], journal: Journal, out: Path, plan: workers.Plan, options: RunOptions, progress: Progress
) -> Counter[str]:
    counts = Counter(tasks=len(job.tasks), resumed=0)
    left = {id(task): job.steps(task) for task in job.tasks}
    progress.start(total=sum(left.values()), items=len(job.tasks), plan=plan)

    def unsettled() -> Iterator[Task]:
        for task in job.tasks:
            if job.settled(task, journal, options.retry_failed):
                counts["resumed"] += 1
                progress.tick(None, ended=True, steps=left.pop(id(task)))
            else:
                job.prepare(task, journal)
                yield task

    for task, result in workers.run(job.stream, unsettled(), workers=plan.workers):
        if isinstance(result, Snapshot):
            _save(out / result.name, result.content)
        elif result is None:
            progress.tick(None, ended=True, steps=left.pop(id(task)))
        else:
            record = job.lost(task, result.reason) if isinstance(result, workers.Crash) else result
            journal.add(record)
            steps = min(1, left[id(task)])
            left[id(task)] -= steps
            progress.tick(record, ended=False, steps=steps)
    return counts


def _save(path: Path, content: bytes | None) -> None:
    if content is not None:
        replace_bytes(path, content)
        return
    path.unlink(missing_ok=True)
    with suppress(OSError):  # other clips' snapshots are still there
        path.parent.rmdir()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
