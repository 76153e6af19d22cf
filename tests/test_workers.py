"""Spawned workers: order-free results, death of a worker, errors, planning."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from labeler import workers
from labeler.errors import UsageError


def square(task: int) -> Iterator[int]:
    yield task * task
    yield os.getpid()


def dies_once(task: tuple[str, int]) -> Iterator[int]:
    flag, number = Path(task[0]), task[1]
    if number == 2 and not flag.exists():
        flag.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    yield number


def always_dies(task: int) -> Iterator[int]:
    if task == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    yield task


def refuses(task: int) -> Iterator[int]:
    if task == 3:
        raise UsageError("no")
    yield task


@pytest.mark.parametrize("count", [1, 3])
def test_every_task_gives_its_results_then_none(count: int) -> None:
    results: dict[int, list[object]] = {}
    for task, result in workers.run(square, range(7), workers=count):
        results.setdefault(task, []).append(result)
    assert {task: found[0] for task, found in results.items()} == {n: n * n for n in range(7)}
    assert all(found[2] is None and len(found) == 3 for found in results.values())
    pids = {found[1] for found in results.values()}
    assert (pids == {os.getpid()}) is (count == 1)


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    tasks = [(str(tmp_path / "flag"), n) for n in range(6)]
    found = [result for _, result in workers.run(dies_once, tasks, workers=2) if result is not None]
    assert sorted(found) == list(range(6))


def test_a_task_that_kills_twice_is_given_up_with_the_reason() -> None:
    found = [result for _, result in workers.run(always_dies, range(4), workers=2) if result is not None]
    crashes = [result for result in found if isinstance(result, workers.Crash)]
    assert sorted(result for result in found if isinstance(result, int)) == [0, 2, 3]
    assert [crash.task for crash in crashes] == [1]
    assert "SIGKILL" in crashes[0].reason
    assert "tried 2 times" in crashes[0].reason


def test_an_error_of_the_labeler_ends_the_run() -> None:
    with pytest.raises(UsageError, match="no"):
        list(workers.run(refuses, range(9), workers=2))


def test_leaving_early_ends_the_children() -> None:
    run = workers.run(square, range(1000), workers=2)
    next(run)
    children = [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]
    assert len(children) == 2
    run.close()
    assert not any(child.is_running() for child in children)


@pytest.mark.parametrize(
    ("cores", "given", "items", "memory", "expected"),
    [
        (8, (None, None), 100, 100, (8, 1)),
        (8, (None, None), 3, 100, (3, 2)),
        (8, (None, None), 100, 2, (2, 4)),
        (8, (None, None), 100, 0, (1, 8)),
        (8, (None, 4), 100, 100, (2, 4)),
        (8, (2, None), 100, 100, (2, 4)),
        (2, (3, 1), 1, 0, (3, 1)),
    ],
)
def test_plan(
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    given: tuple[int | None, int | None],
    items: int,
    memory: int,
    expected: tuple[int, int],
) -> None:
    monkeypatch.setattr(workers, "usable_cores", lambda: cores)
    monkeypatch.setattr(workers, "available_bytes", lambda: memory * 10)
    plan = workers.plan(workers=given[0], threads=given[1], items=items, worker_bytes=10)
    assert (plan.workers, plan.threads) == expected
