"""Find the inputs that a seeds file speaks of, and say what was nearly meant."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from posixpath import basename, splitext
from unicodedata import normalize

from labeler.seeds.native import SeedFile
from labeler.types import Seed

_REACH = 2
"""Neighbours compared on each side, in two orders of the names: many misses times many names would be too much."""


@dataclass(frozen=True, slots=True)
class Match:
    """Which inputs have seeds."""

    seeds: Mapping[str, tuple[Seed, ...]]
    """By the input's own key, in the order of the keys."""
    unmatched: tuple[tuple[str, str | None], ...]
    """Entries of the seeds file that no input has, each with the nearest existing key."""
    unseeded: tuple[str, ...]
    """Inputs that the seeds file does not name."""


def match(seed_file: SeedFile, keys: Collection[str]) -> Match:
    """Pair the file's entries with the inputs' keys: exactly, then by Unicode's composed form (NFC).

    The second way serves names that another system spelled decomposed, or with backslashes inside.
    """
    entries = seed_file.entries
    entry_of = {key: key for key in keys if key in entries}
    missing = [entry for entry in entries if entry not in entry_of]
    if missing:
        composed = _by_composed(key for key in keys if key not in entry_of)
        entry_of |= {key: entry for entry in reversed(missing) if (key := composed.get(_composed(entry)))}
        paired = set(entry_of.values())
        missing = [entry for entry in missing if entry not in paired]
    names = _Names(keys if missing else ())
    return Match(
        seeds={key: entries[entry_of[key]] for key in keys if key in entry_of},
        unmatched=tuple((entry, names.nearest(entry)) for entry in missing),
        unseeded=tuple(key for key in keys if key not in entry_of),
    )


def _by_composed(keys: Iterable[str]) -> dict[str, str]:
    """Keys by their composed form, those left out that share one: nobody could say which was meant."""
    found: dict[str, str] = {}
    shared = set()
    for key in keys:
        if found.setdefault(_composed(key), key) != key:
            shared.add(_composed(key))
    return {name: key for name, key in found.items() if name not in shared}


def _composed(key: str) -> str:
    return normalize("NFC", key.replace("\\", "/"))


class _Names:
    """Existing keys, case-folded, in the order of their beginnings and in the order of their ends."""

    def __init__(self, keys: Collection[str]) -> None:
        self._forward = sorted((key.casefold(), key) for key in keys)
        self._backward = sorted((_backwards(name), name, key) for name, key in self._forward)

    def nearest(self, entry: str) -> str | None:
        """The key most like `entry`: the same file name, else the same but for its extension, else alike to difflib."""
        meant = entry.casefold()
        near = dict(_around(self._forward, meant) + _around(self._backward, _backwards(meant)))
        for part in (basename, _bare):
            if alike := [name for name in near if part(name) == part(meant)]:
                return near[alike[0] if len(alike) == 1 else get_close_matches(meant, alike, n=1, cutoff=0)[0]]
        return next((near[name] for name in get_close_matches(meant, near, n=1)), None)


def _bare(name: str) -> str:
    return splitext(basename(name))[0]


def _backwards(name: str) -> str:
    return splitext(name)[0][::-1]


def _around(names: Sequence[tuple[str, ...]], name: str) -> list[tuple[str, str]]:
    """Folded and own form of the keys that sort near `name`."""
    place = bisect_left(names, (name,))
    return [(found[-2], found[-1]) for found in names[max(place - _REACH, 0) : place + _REACH]]
