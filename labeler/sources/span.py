"""Which frames of a clip are meant: `--start`, `--end`, `--stride`, and seeds that give a time."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from labeler.errors import SeedError, SourceError, UsageError

TIME_TOLERANCE_S = 0.001
"""A time this little before a frame's means that frame: files write times with three decimals."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a clip: one of the two is set."""

    frame: int | None = None
    seconds: float | None = None


def parse_place(text: str, *, option: str) -> Place:
    """`12` is a frame (0-based), `3.5s` seconds since the clip's start. Raises UsageError naming the option."""
    found = re.fullmatch(r"(?P<frame>[0-9]+)|(?P<seconds>[0-9]+(\.[0-9]*)?|\.[0-9]+)\s*s", text.strip())
    if not found:
        raise UsageError(f'{option}: {text!r} is neither a frame ("12") nor a time ("3.5s")')
    return Place(int(found["frame"])) if found["frame"] else Place(seconds=float(found["seconds"]))


def frame_range(times_s: Sequence[float | None], *, start: Place | None, end: Place | None, stride: int) -> range:
    """Indices from `start` on and before `end`, each `stride`-th of them; an end behind the clip's is the clip's.

    Raises UsageError for a stride below 1, SourceError where no frame of this clip is meant, or times are meant and
    the clip has none.
    """
    if stride < 1:
        raise UsageError(f"--stride: {stride} is below 1")
    first = _first_at(times_s, start) if start else 0
    behind = _first_at(times_s, end) if end else len(times_s)
    if first >= min(behind, len(times_s)):
        raise SourceError(f"no frame lies between --start and --end: the clip has {len(times_s)}")
    return range(first, min(behind, len(times_s)), stride)


def _first_at(times_s: Sequence[float | None], place: Place) -> int:
    """Index of the first frame at or behind a place; the clip's length where there is none."""
    if place.frame is not None:
        return place.frame
    known = _known_times(times_s)
    at = place.seconds or 0.0
    return next((index for index, time in enumerate(known) if time >= at - TIME_TOLERANCE_S), len(known))


def frame_at(times_s: Sequence[float | None], time_s: float) -> int:
    """The frame on show at a time: the last that begins at or before it, to a millisecond.

    Raises SeedError for a time before the first frame, or later than one frame after the last one begins.
    """
    known = _known_times(times_s)
    index = bisect_right(known, time_s + TIME_TOLERANCE_S) - 1
    last = 2 * known[-1] - known[-2] if len(known) > 1 else math.inf
    if not math.isfinite(time_s) or index < 0 or time_s > last + TIME_TOLERANCE_S:
        raise SeedError(
            f"time_s: {time_s:g} s is outside the clip, whose frames begin at {known[0]:g} to {known[-1]:g} s"
        )
    return index


def _known_times(times_s: Sequence[float | None]) -> list[float]:
    """All times of a clip. Raises SourceError where it has none."""
    known = [time for time in times_s if time is not None]
    if len(known) != len(times_s) or not known:
        raise SourceError("its frames have no times: give frame numbers")
    return known
