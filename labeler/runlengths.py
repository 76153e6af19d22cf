"""Read COCO's compressed run lengths: sizes, boxes and single pixels without the picture-sized mask.

The text is pycocotools' own (`rleFrString` of its maskApi.c): groups of 5 bits, low ones first, from the fourth run on
as the difference to the run before last. Nothing malformed is handed on to C code, which trusts it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Runs = NDArray[np.int64]
"""Lengths of runs of zeros and ones in turn, zeros first, column by column."""

_MOST_GROUPS = 7
"""Groups of 5 bits of one number: enough for 2^34 pixels."""


def parse(text: str, *, height: int, width: int) -> Runs:
    """The runs of a mask of `height` x `width`. Raises ValueError saying what is wrong with the text."""
    runs = _undifferenced(_numbers(text))
    if (runs < 0).any():
        raise ValueError(f"run {int(np.argmax(runs < 0))} is negative")
    if (total := int(runs.sum())) != height * width:
        raise ValueError(f"the runs cover {total} pixels, {height} x {width} are {height * width}")
    return runs


def area(runs: Runs) -> int:
    """Pixels of the mask."""
    return int(runs[1::2].sum())


def bbox(runs: Runs, *, height: int) -> tuple[float, float, float, float]:
    """Tight x, y, width, height; zeros if empty."""
    bounds = np.cumsum(runs)
    ends = bounds[1::2]
    starts = bounds[0::2][: len(ends)]
    ones = starts < ends
    return span_box(starts[ones], ends[ones], height=height)


def span_box(starts: Runs, ends: Runs, *, height: int) -> tuple[float, float, float, float]:
    """Tight box of non-empty runs of ones given as flat column-major places, `ends` one past."""
    if not len(starts):
        return 0.0, 0.0, 0.0, 0.0
    left, right = int(starts[0] // height), int((ends[-1] - 1) // height)
    crosses = bool(np.any(starts // height != (ends - 1) // height))
    top = 0 if crosses else int((starts % height).min())
    bottom = height - 1 if crosses else int(((ends - 1) % height).max())
    return float(left), float(top), float(right - left + 1), float(bottom - top + 1)


def holds(runs: Runs, *, row: int, column: int, height: int) -> bool:
    """Whether a pixel is in the mask."""
    return bool(np.searchsorted(np.cumsum(runs), column * height + row, side="right") % 2)


def _numbers(text: str) -> Runs:
    """The signed numbers that the text spells."""
    codes = np.frombuffer(text.encode("utf-8"), np.uint8).astype(np.int64) - ord("0")
    if ((codes < 0) | (codes > 63)).any():
        raise ValueError(f"character {int(np.argmax((codes < 0) | (codes > 63)))} does not belong there")
    closing = np.flatnonzero((codes & 0x20) == 0)
    if not len(closing) or closing[-1] != len(codes) - 1:
        raise ValueError("it is empty or cut short")
    opening = np.concatenate([[0], closing[:-1] + 1])
    groups = closing - opening + 1
    if groups.max() > _MOST_GROUPS:
        raise ValueError(f"run {int(np.argmax(groups > _MOST_GROUPS))} is too long for any picture")
    shifts = 5 * (np.arange(len(codes)) - np.repeat(opening, groups))
    values: Runs = np.add.reduceat((codes & 0x1F) << shifts, opening)
    negative = (codes[closing] & 0x10) != 0
    return values - np.where(negative, np.int64(1) << (5 * groups), 0)


def _undifferenced(numbers: Runs) -> Runs:
    runs = numbers.copy()
    runs[1::2] = np.cumsum(numbers[1::2])
    runs[2::2] = np.cumsum(numbers[2::2])
    return runs
