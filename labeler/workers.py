"""The same labeler in N spawned processes. Only small messages cross: a task in, records out.

A worker that dies (killed, out of memory, a crash in a library) costs its task only: the task is tried once more
in a fresh worker, then given up with the reason.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Generic, TypeVar

import psutil

from labeler.errors import LabelerError

Task = TypeVar("Task")
Result = TypeVar("Result")

ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """How the machine is shared out."""

    workers: int
    threads: int


@dataclass(frozen=True, slots=True)
class Crash(Generic[Task]):
    """A task whose worker died on every attempt."""

    task: Task
    reason: str


def plan(*, workers: int | None, threads: int | None, items: int, worker_bytes: int) -> Plan:
    """One worker per usable core with one thread each, fewer for few items or little memory; all cores are used.

    `worker_bytes`: resident memory that one worker needs. Explicit numbers are taken as they are.
    """
    cores = usable_cores()
    if workers is None:
        per_threads = max(1, cores // threads) if threads else cores
        workers = max(1, min(per_threads, items, available_bytes() // worker_bytes))
    return Plan(workers, threads or max(1, cores // workers))


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_bytes() -> int:
    """Memory that can be had, within the control group's limit where there is one (a container)."""
    available = int(psutil.virtual_memory().available)
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # no control groups, or no limit ("max")
        free = int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
        available = min(available, free)
    return available


def run(
    labeler: Callable[[Task], Iterable[Result]], tasks: Iterable[Task], *, workers: int
) -> Iterator[tuple[Task, Result | Crash[Task] | None]]:
    """Yield (task, result) for every result of every task, (task, None) after a task's last, in no set order.

    `labeler` must be picklable for `workers` > 1; with 1 it runs in this process. Errors that it raises end the
    run: whatever concerns one item only is the labeler's to report as a result.
    """
    if workers == 1:
        for task in tasks:
            for result in labeler(task):
                yield task, result
            yield task, None
        return
    pool = _Pool(labeler, workers)
    try:
        yield from pool.run(iter(tasks))
    finally:
        pool.close()


class _Worker(Generic[Task]):
    def __init__(self, labeler: Callable[[Task], Iterable[object]]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, child = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(child, labeler), daemon=True)
        with _interrupts_blocked():
            self.process.start()
        child.close()
        self.task: Task | None = None
        self.attempt = 0

    def give(self, task: Task, attempt: int) -> None:
        self.task, self.attempt = task, attempt
        with suppress(BrokenPipeError):  # died while idle: noticed on receiving, the task is tried again
            self.connection.send(task)

    def reason(self) -> str:
        self.process.join()
        code = self.process.exitcode or 0
        if code == -signal.SIGKILL:
            return "the worker was killed (SIGKILL), probably out of memory: try fewer --workers"
        if code < 0:
            return f"the worker crashed ({signal.Signals(-code).name})"
        return f"the worker ended with exit code {code}"


class _Pool(Generic[Task, Result]):
    def __init__(self, labeler: Callable[[Task], Iterable[Result]], workers: int) -> None:
        self._labeler = labeler
        self._most = workers
        self._workers: list[_Worker[Task]] = []

    def run(self, tasks: Iterator[Task]) -> Iterator[tuple[Task, Result | Crash[Task] | None]]:
        for task in islice(tasks, self._most):  # no process is started that has nothing to do
            self._workers.append(_Worker(self._labeler))
            self._workers[-1].give(task, 1)
        while busy := {worker.connection: worker for worker in self._workers if worker.task is not None}:
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]  # wait returns what it was given
                yield from self._receive(worker, tasks)

    def _receive(
        self, worker: _Worker[Task], tasks: Iterator[Task]
    ) -> Iterator[tuple[Task, Result | Crash[Task] | None]]:
        task = worker.task
        assert task is not None
        try:
            kind, value = worker.connection.recv()
        except (EOFError, OSError):  # the latter: killed while it sent a large result
            yield from self._revive(worker, task, tasks)
            return
        if kind == "result":
            yield task, value
        elif kind == "error":
            raise value
        else:
            yield task, None
            self._next(worker, tasks)

    def _revive(
        self, worker: _Worker[Task], task: Task, tasks: Iterator[Task]
    ) -> Iterator[tuple[Task, Crash[Task] | None]]:
        fresh = _Worker[Task](self._labeler)
        self._workers[self._workers.index(worker)] = fresh
        reason = worker.reason()
        worker.connection.close()
        if worker.attempt < ATTEMPTS:
            fresh.give(task, worker.attempt + 1)
            return
        yield task, Crash(task, f"{reason}; tried {ATTEMPTS} times")
        yield task, None
        self._next(fresh, tasks)

    def _next(self, worker: _Worker[Task], tasks: Iterator[Task]) -> None:
        task = next(tasks, None)
        if task is None:
            worker.task = None
        else:
            worker.give(task, 1)

    def close(self) -> None:
        """End all children, busy or not."""
        for worker in self._workers:
            worker.connection.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Children started inside never hear Ctrl-C, which goes to the whole group: the parent ends them.

    A child that heard it while it still imports would write a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its own start unblocks the signal
    with _interrupts_deferred():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Hear an interrupt afterwards: the mask is this thread's only, and other threads (of NumPy, say) take signals too.

    Half a message to a child that starts would make it write a traceback.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield  # only the main thread hears them, and a handler that is not Python's could not be put back
        return
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        signal.raise_signal(signal.SIGINT)


def _serve(connection: Connection, labeler: Callable[[Task], Iterable[object]]) -> None:
    """A worker's main loop: ends when the parent closes the pipe or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where `_interrupts_blocked` can do nothing
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # a worker speaks through its results only
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            task = connection.recv()
            try:
                for result in labeler(task):
                    connection.send(("result", result))
            except LabelerError as error:
                connection.send(("error", error))
                return
            connection.send(("end", None))
