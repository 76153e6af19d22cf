"""Seconds by stage, each stage without the stages that it calls. Functions are timed where their callers find them."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np

from labeler.bundle import Bundle
from labeler.runtime import LiteRtRuntime, _Compiled
from labeler.types import Array


class Stopwatch:
    """`wall` and `cpu` hold every stay in a stage, in seconds. Time outside all stages is nobody's."""

    def __init__(self) -> None:
        self.wall: dict[str, list[float]] = defaultdict(list)
        self.cpu: dict[str, list[float]] = defaultdict(list)
        self._inner: list[list[float]] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._inner.append([0.0, 0.0])
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            spent = time.perf_counter() - wall, time.process_time() - cpu
            inner = self._inner.pop()
            self.wall[name].append(spent[0] - inner[0])
            self.cpu[name].append(spent[1] - inner[1])
            for i in range(2) if self._inner else ():
                self._inner[-1][i] += spent[i]

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.stage(name):
                return function(*args, **kwargs)

        return call

    @contextmanager
    def watching(self, places: Sequence[tuple[Any, str, str]]) -> Iterator[None]:
        """Time (owner, attribute, stage)s."""
        with ExitStack() as stack:
            for owner, attribute, name in places:
                stack.enter_context(mock.patch.object(owner, attribute, self.timed(name, getattr(owner, attribute))))
            yield

    def clear(self) -> None:
        self.wall.clear()
        self.cpu.clear()


GRAPH = "graph "


class TimingRuntime:
    """A runtime that tells the graphs' own runs, one stage each, from what it takes to move their tensors."""

    def __init__(self, runtime: LiteRtRuntime, watch: Stopwatch) -> None:
        self._runtime, self._watch = runtime, watch

    @property
    def bundle(self) -> Bundle:
        return self._runtime.bundle

    def run(self, graph: str, /, **parts: Array) -> dict[str, Array]:
        run = self._watch.timed(GRAPH + graph, _Compiled.run)
        with self._watch.stage("tensors in and out"), mock.patch.object(_Compiled, "run", run):
            return self._runtime.run(graph, **parts)


def table(watch: Stopwatch, *, items: int) -> Iterator[str]:
    """A line for every stage: ms per item, ms per call (median, p95), its part of all stages by either clock."""
    wall, cpu = (sum(map(sum, times.values())) for times in (watch.wall, watch.cpu))
    yield f"  {'stage':22} {'ms/item':>9} {'calls':>6} {'median ms':>10} {'p95 ms':>8} {'wall':>7} {'cpu':>7}"
    for name in sorted(watch.wall, key=lambda name: -sum(watch.wall[name])):
        times = watch.wall[name]
        median, p95 = np.percentile(times, (50, 95)) * 1e3
        yield (
            f"  {name:22} {sum(times) / items * 1e3:9.2f} {len(times) // items:6} {median:10.3f} {p95:8.3f} "
            f"{sum(times) / wall:7.2%} {sum(watch.cpu[name]) / cpu:7.2%}"
        )


def host_share(watch: Stopwatch) -> tuple[float, float]:
    """The part of all stages that is not inside a graph, by the wall clock and by processor time."""
    shares = []
    for times in (watch.wall, watch.cpu):
        graphs = sum(sum(stays) for name, stays in times.items() if name.startswith(GRAPH))
        shares.append(1 - graphs / sum(map(sum, times.values())))
    return shares[0], shares[1]


def seconds(work: Callable[[], Any]) -> float:
    """By the wall clock."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
