"""One bar on a terminal; plain lines, few of them, anywhere else."""

from __future__ import annotations

import sys
import time
from typing import NoReturn

from tqdm import tqdm

from labeler.cli.errors import say
from labeler.types import Record
from labeler.workers import Plan

EVERY_SECONDS = 60.0


class Bar:
    """Rate, time left, failures. Failures are told one by one, as they come."""

    def __init__(self, unit: str, *, step: str) -> None:
        """`unit`: what the inputs are called. `step`: what the bar counts: the inputs too, or frames of clips."""
        self._unit, self._step = unit, step
        self._failed = 0
        self._bar: tqdm[NoReturn] | None = None
        self._total = self._gone = self._earlier = 0
        self._told = self._started = time.monotonic()

    def note(self, text: str) -> None:
        if self._bar is not None:
            self._bar.clear()
        say(text)

    def start(self, *, total: int, items: int, plan: Plan) -> None:
        self.note(f"{items} {self._unit}, workers: {plan.workers}, threads each: {plan.threads}")
        self._total, self._started = total, time.monotonic()
        if sys.stderr.isatty():
            self._bar = tqdm(total=total, unit=f" {self._step}", dynamic_ncols=True, smoothing=0.05)

    def tick(self, record: Record | None, *, ended: bool, steps: int) -> None:
        if record is not None and record.status == "failed":
            self._failed += 1
            self.note(f"failed: {record.key}: {record.error}")
        self._gone += steps
        self._earlier += steps if ended else 0  # not made now: done before, or given up
        if self._bar is not None:
            self._bar.update(steps)
            self._bar.set_postfix(failed=self._failed, refresh=False)
        elif time.monotonic() - self._told > EVERY_SECONDS:
            self._told = time.monotonic()
            say(self._line())

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _line(self) -> str:
        rate = (self._gone - self._earlier) / (time.monotonic() - self._started)
        left = (self._total - self._gone) / rate if rate else 0.0
        return f"{self._gone}/{self._total} {self._step}, {rate:.2f}/s, {left / 60:.0f} min left, {self._failed} failed"
