"""Remember how each object looked: one bank per object, and what it gives the memory graph.

Mirrors `Sam2VideoModel._gather_memory_frame_outputs`, `_get_object_pointers` and `_process_object_pointers` of
transformers (checked against its own loop in tests).

The slot rule, for a memory graph of `limit` slots and a temporal table of `rows` rows:

1. Conditioning frames (those that a person clicked) come first. At most `limit - 1` are taken, so that the recent
   past always has a place: the nearest behind the frame in the direction of travel, the nearest ahead of it, then
   the nearest of the rest. A graph of one slot takes one.
2. The remaining slots go to the frames behind, at most `min(rows, limit) - 1` frames away, newest first: tracked
   ones, and conditioning frames that rule 1 left out. A frame without the object leaves no gap.
3. Pointers: the conditioning frames of rule 1 that lie behind, nearest first, then the same recent frames up to
   `pointer_count - 1` away, newest first, while tokens last.

As long as conditioning frames, recent frames and pointers all fit, this is exactly what the reference attends to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeler.types import Array

NEVER = -1e9
"""Added to the attention logits of keys that hold nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class MemoryInputs:
    """What the memory graph of `slots` slots takes beside the frame's features."""

    slots: int
    memory: Array
    """[slots, tokens, channels]; zeros where empty."""
    temporal: Array
    """[slots, channels]: the temporal row of each slot."""
    pointers: Array
    """[pointer tokens, channels]"""
    pointer_positions: Array
    """[pointer tokens, channels]"""
    key_mask: Array
    """[slots * tokens + pointer tokens]: 0 for keys that hold something, -1e9 for the rest."""


@dataclass(frozen=True, slots=True, eq=False)
class MemoryLayout:
    """Sizes and constants of one model's memory graphs."""

    slots: tuple[int, ...]
    """Slot counts of the graphs that may be used, smallest first."""
    tokens: int
    channels: int
    pointer_tokens: int
    temporal: Array
    """[rows, channels]: row i is for i + 1 frames away, the last row for conditioning frames."""
    time_weight: Array
    """[channels, pointer channels]"""
    time_bias: Array
    """[channels]"""

    @property
    def limit(self) -> int:
        """Slots of the largest graph."""
        return self.slots[-1]

    @property
    def window(self) -> int:
        """How many frames back a spatial memory is still read."""
        return min(len(self.temporal), self.limit) - 1

    @property
    def tokens_per_pointer(self) -> int:
        """A pointer is split into this many tokens."""
        return int(self.time_weight.shape[1]) // self.channels

    @property
    def pointer_count(self) -> int:
        """Pointers that fit; one is meant for a conditioning frame, the others reach as many frames back."""
        return self.pointer_tokens // self.tokens_per_pointer


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One object on one frame, remembered."""

    memory: Array
    """[tokens, channels]"""
    pointer: Array
    """[pointer channels]"""


class MemoryBank:
    """What is remembered of one object. Holds as much at frame 100,000 as at frame 100."""

    def __init__(self, layout: MemoryLayout) -> None:
        self._layout = layout
        self._conditioning: dict[int, Entry] = {}
        self._recent: deque[tuple[int, Array]] = deque(maxlen=layout.window)
        self._pointers: deque[tuple[int, Array]] = deque(maxlen=layout.pointer_count - 1)

    def condition(self, frame: int, entry: Entry) -> None:
        """Remember a frame that a person clicked, for good."""
        self._conditioning[frame] = entry

    def remember(self, frame: int, entry: Entry) -> None:
        """Remember a tracked frame until newer ones push it out."""
        self._recent.append((frame, entry.memory))
        self._pointers.append((frame, entry.pointer))

    def forget_recent(self) -> None:
        """Keep the conditioning frames only: the next frame starts a new direction."""
        self._recent.clear()
        self._pointers.clear()

    def inputs(self, frame: int, *, reverse: bool = False) -> MemoryInputs:
        """Inputs for `frame`, for the smallest graph that holds the filled slots. Needs a conditioning frame.

        `reverse`: the frames behind are the later ones. Arrays are new with every call and of the dtype of the
        remembered entries.
        """
        layout = self._layout
        chosen = choose_conditioning(frame, self._conditioning, most=max(1, layout.limit - 1), reverse=reverse)
        left_out = self._conditioning.keys() - set(chosen)
        memories = dict(self._recent) | {t: self._conditioning[t].memory for t in left_out}
        pointers = dict(self._pointers) | {t: self._conditioning[t].pointer for t in left_out}
        near = _behind(frame, memories, reach=layout.window, reverse=reverse)[: layout.limit - len(chosen)]
        slots = [(self._conditioning[t].memory, -1) for t in chosen]
        slots += [(memories[t], away - 1) for away, t in reversed(near)]
        behind = sorted((away, t) for t in chosen if (away := _distance(frame, t, reverse)) >= 0)
        pointing = [(self._conditioning[t].pointer, away) for away, t in behind]
        pointing += [
            (pointers[t], away) for away, t in _behind(frame, pointers, reach=layout.pointer_count - 1, reverse=reverse)
        ]
        return _assemble(layout, slots, pointing[: layout.pointer_count])

    def snapshot(self) -> dict[str, Array]:
        """The whole bank as arrays that `numpy.savez` takes: `restore` gives back the same bits."""
        conditioning = self._conditioning.values()
        return {
            "conditioning_frames": np.array(list(self._conditioning), np.int64),
            "conditioning_memory": _stack(entry.memory for entry in conditioning),
            "conditioning_pointers": _stack(entry.pointer for entry in conditioning),
            "recent_frames": np.array([frame for frame, _ in self._recent], np.int64),
            "recent_memory": _stack(memory for _, memory in self._recent),
            "pointer_frames": np.array([frame for frame, _ in self._pointers], np.int64),
            "pointers": _stack(pointer for _, pointer in self._pointers),
        }

    @classmethod
    def restore(cls, layout: MemoryLayout, arrays: Mapping[str, Array]) -> MemoryBank:
        """The bank that gave this snapshot."""
        bank = cls(layout)
        remembered = zip(arrays["conditioning_memory"], arrays["conditioning_pointers"], strict=True)
        frames = arrays["conditioning_frames"].tolist()
        bank._conditioning = {frame: Entry(*pair) for frame, pair in zip(frames, remembered, strict=True)}
        bank._recent.extend(zip(arrays["recent_frames"].tolist(), arrays["recent_memory"], strict=True))
        bank._pointers.extend(zip(arrays["pointer_frames"].tolist(), arrays["pointers"], strict=True))
        return bank


def choose_conditioning(frame: int, conditioning: Iterable[int], *, most: int, reverse: bool = False) -> list[int]:
    """The `most` conditioning frames to attend to from `frame`, in the order they were given (rule 1 above).

    Equals `Sam2VideoModel._select_closest_cond_frames` for `most` of two or more.
    """
    frames = list(conditioning)
    if len(frames) <= most:
        return frames
    away = {t: _distance(frame, t, reverse) for t in frames}
    nearest_behind = sorted((t for t in frames if away[t] > 0), key=lambda t: away[t])[:1]
    nearest_ahead = sorted((t for t in frames if away[t] <= 0), key=lambda t: -away[t])[:1]
    first = nearest_behind + nearest_ahead
    rest = sorted((t for t in frames if t not in first), key=lambda t: abs(away[t]))
    chosen = (first + rest)[:most]
    return [t for t in frames if t in chosen]


def sine(away: Array, *, channels: int) -> Array:
    """Sine embedding [n, channels] of times [n]: first all sines, then all cosines (`get_1d_sine_pe`)."""
    half = channels // 2
    period = 10000.0 ** (2 * (np.arange(half) // 2) / half)
    phase = away[:, None] / period
    return np.concatenate([np.sin(phase), np.cos(phase)], axis=1)


def _distance(frame: int, other: int, reverse: bool) -> int:
    """How many frames `other` lies behind `frame` in the direction of travel; negative if ahead."""
    return other - frame if reverse else frame - other


def _behind(frame: int, frames: Iterable[int], *, reach: int, reverse: bool) -> list[tuple[int, int]]:
    """(distance, frame) of those 1..reach behind, newest first."""
    return sorted((away, t) for t in frames if 1 <= (away := _distance(frame, t, reverse)) <= reach)


def _assemble(layout: MemoryLayout, slots: list[tuple[Array, int]], pointers: list[tuple[Array, int]]) -> MemoryInputs:
    """Arrays for the smallest graph that holds `slots`: (memory, temporal row) and (pointer, distance)."""
    count = next(count for count in layout.slots if count >= len(slots))
    dtype = slots[0][0].dtype
    memory = np.zeros((count, layout.tokens, layout.channels), dtype)
    temporal = np.zeros((count, layout.channels), dtype)
    for i, (values, row) in enumerate(slots):
        memory[i], temporal[i] = values, layout.temporal[row]
    tokens, positions = _pointer_tokens(layout, pointers, dtype)
    key_mask = np.full(count * layout.tokens + layout.pointer_tokens, NEVER, dtype)
    key_mask[: len(slots) * layout.tokens] = 0
    key_mask[count * layout.tokens :][: len(pointers) * layout.tokens_per_pointer] = 0
    return MemoryInputs(count, memory, temporal, tokens, positions, key_mask)


def _pointer_tokens(
    layout: MemoryLayout, pointers: list[tuple[Array, int]], dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """Pointers cut into tokens, and a position for each: the projected sine of its distance in time."""
    tokens = np.zeros((layout.pointer_tokens, layout.channels), dtype)
    positions = np.zeros_like(tokens)
    if pointers:
        used = len(pointers) * layout.tokens_per_pointer
        tokens[:used] = np.stack([pointer for pointer, _ in pointers]).reshape(used, layout.channels)
        away = np.array([away for _, away in pointers], np.float64) / (layout.pointer_count - 1)
        embedded = sine(away, channels=layout.time_weight.shape[1]) @ layout.time_weight.T.astype(np.float64)
        positions[:used] = np.repeat(embedded + layout.time_bias, layout.tokens_per_pointer, axis=0)
    return tokens, positions


def _stack(arrays: Iterable[Array]) -> Array:
    found = list(arrays)
    return np.stack(found) if found else np.zeros((0,), np.float32)
