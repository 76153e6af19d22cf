"""Plan a clip: which object is wanted on which frame, in which walk over the frames. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from labeler.errors import SeedError
from labeler.types import Seed

Direction = Literal["forward", "backward", "both"]


@dataclass(frozen=True, slots=True)
class Pass:
    """One walk over a clip."""

    indices: range
    spans: Mapping[int, range]
    """The frames, ascending, on which each object is wanted in this pass."""

    @property
    def reverse(self) -> bool:
        return self.indices.step < 0

    def wanted(self, index: int) -> list[int]:
        """Ids of the objects wanted on a frame."""
        return [object_id for object_id, span in self.spans.items() if index in span]


def by_place(seeds: Iterable[Seed], *, count: int | None = None) -> dict[tuple[int, int], Seed]:
    """Seeds by (frame, object id), ascending. Raises SeedError for two on one place or one past `count` frames."""
    places: dict[tuple[int, int], Seed] = {}
    faults = []
    for seed in seeds:
        place = seed.frame, seed.object_id
        if place in places:
            faults.append(f"object {seed.object_id}: has two seeds on frame {seed.frame}; put their points into one")
        if count is not None and not 0 <= seed.frame < count:
            faults.append(f"object {seed.object_id}: frame {seed.frame} is outside the clip's {count} frames")
        places[place] = seed
    if faults:
        raise SeedError(faults)
    return dict(sorted(places.items()))


def plan(places: Iterable[tuple[int, int]], *, direction: Direction, count: int) -> list[Pass]:
    """The passes that `direction` asks for, over `count` frames, for clicks at (frame, object id)."""
    frames: dict[int, list[int]] = {}
    for frame, object_id in sorted(places, key=lambda place: place[::-1]):
        frames.setdefault(object_id, []).append(frame)
    if not frames:
        return []
    starts = {object_id: clicked[0] for object_id, clicked in frames.items()}
    ends = {object_id: clicked[-1] for object_id, clicked in frames.items()}
    forward = Pass(range(min(starts.values()), count), {i: range(start, count) for i, start in starts.items()})
    if direction == "forward":
        return [forward]
    if direction == "backward":
        return [Pass(range(max(ends.values()), -1, -1), {i: range(end + 1) for i, end in ends.items()})]
    return [forward, Pass(range(max(starts.values()) - 1, -1, -1), {i: range(start) for i, start in starts.items()})]
