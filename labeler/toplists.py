"""Lists that stay short however much is added: the first few members, or those with the largest value."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Listed:
    """How many there are, and the first or worst few of them."""

    total: int
    shown: tuple[Entry, ...]


@dataclass(slots=True)
class First:
    """Counts, and keeps the first few."""

    show: int
    total: int = 0
    members: list[Entry] = field(default_factory=list)

    def add(self, member: Entry) -> None:
        self.total += 1
        if len(self.members) < self.show:
            self.members.append(member)

    def listed(self) -> Listed:
        return Listed(self.total, tuple(self.members))


@dataclass(slots=True)
class Most:
    """Keeps the few with the largest value; of equal ones the earliest."""

    show: int
    heap: list[tuple[float, int, Entry]] = field(default_factory=list)
    seen: int = 0

    def add(self, value: float, member: Entry) -> None:
        self.seen += 1
        push = heapq.heappush if len(self.heap) < self.show else heapq.heappushpop
        if self.show:
            push(self.heap, (value, -self.seen, member))

    def members(self) -> tuple[Entry, ...]:
        return tuple(member for *_, member in sorted(self.heap, key=lambda entry: entry[:2], reverse=True))
