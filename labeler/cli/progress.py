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

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._failed = 0
        self._bar: tqdm[NoReturn] | None = None
        self._total = self._ended = self._resumed = 0
        self._told = self._started = time.monotonic()

    def note(self, text: str) -> None:
        if self._bar is not None:
            self._bar.clear()
        say(text)

    def start(self, *, total: int, plan: Plan) -> None:
        self.note(f"{total} {self._unit}, workers: {plan.workers}, threads each: {plan.threads}")
        self._total, self._started = total, time.monotonic()
        if sys.stderr.isatty():
            self._bar = tqdm(total=total, unit=f" {self._unit}", dynamic_ncols=True, smoothing=0.05)

    def tick(self, record: Record | None, *, ended: bool) -> None:
        if record is not None and record.status == "failed":
            self._failed += 1
            self.note(f"failed: {record.key}: {record.error}")
        self._ended += ended
        self._resumed += record is None and ended
        if self._bar is not None:
            self._bar.update(int(ended))
            self._bar.set_postfix(failed=self._failed, refresh=False)
        elif time.monotonic() - self._told > EVERY_SECONDS:
            self._told = time.monotonic()
            say(self._line())

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _line(self) -> str:
        rate = self._ended / (time.monotonic() - self._started)
        left = (self._total - self._ended) / rate if rate else 0.0
        return (
            f"{self._ended}/{self._total} {self._unit}, {rate:.2f}/s, {left / 60:.0f} min left, {self._failed} failed"
        )
