"""Frames of a clip that a person should look at, each with the reason. Pure: records in, suspicions out.

Tracking fails in few ways that show: the mask jumps in area or place, the score falls, the object gets lost or comes
back. Everything else can be trusted without looking.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

AREA_FACTOR = 2.0
"""An area that doubles or halves from one frame to the next is a jump."""
PLACE_SHIFT = 0.75
"""A box centre that moves by more than this part of the box's mean side, before or after, is a jump. The smaller of
the two counts: a mask that falls into two places has a large box."""
LOW_IOU = 0.5
SCORE_FALL = 0.25
"""A predicted IoU that falls by more than this from one frame to the next."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One object on one frame of a clip, and why it should be looked at."""

    key: str
    frame: int
    object_id: int
    reason: str


def suspicions(records: Iterable[Mapping[str, Any]]) -> Iterator[Suspicion]:
    """Go through the done records of clips, sorted by key and frame (as the journal gives them)."""
    key, last = None, dict[int, Mapping[str, Any]]()
    for record in records:
        if record["key"] != key:
            key, last = record["key"], {}
        for annotation in record["annotations"]:
            object_id = annotation["object_id"]
            if reason := _reason(last.get(object_id), annotation):
                yield Suspicion(record["key"], record["frame"], object_id, reason)
            last[object_id] = annotation


def _reason(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> str | None:
    here = now["visible"] and now["area"] > 0
    was = before is not None and before["visible"] and before["area"] > 0
    if not here:
        return "lost" if was or before is None else None
    if before is not None and not was:
        return "came back"
    reasons = [*_jumps(before, now)] if before is not None else []
    reasons += _low(before, now)
    return ", ".join(reasons) or None


def _jumps(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    factor = now["area"] / before["area"]
    if not 1 / AREA_FACTOR < factor < AREA_FACTOR:
        yield f"area x {factor:.2f}"
    (x0, y0, w0, h0), (x1, y1, w1, h1) = before["bbox"], now["bbox"]
    shift = ((x1 + w1 / 2 - x0 - w0 / 2) ** 2 + (y1 + h1 / 2 - y0 - h0 / 2) ** 2) ** 0.5
    side = min(w0 + h0, w1 + h1) / 2
    if shift > PLACE_SHIFT * side:
        yield f"moved by {shift / side:.2f} of its size"


def _low(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> Iterator[str]:
    iou = now["predicted_iou"]
    if iou is None:
        return
    fell = 0.0 if before is None or before["predicted_iou"] is None else before["predicted_iou"] - iou
    if fell > SCORE_FALL:
        yield f"predicted IoU fell by {fell:.2f} to {iou:.2f}"
    elif iou < LOW_IOU and (before is None or before["predicted_iou"] >= LOW_IOU):
        yield f"predicted IoU below {LOW_IOU}: {iou:.2f}"
