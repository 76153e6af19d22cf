"""Before the first frame is encoded: which clip gets which seeds, and everything that is wrong, all at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from labeler import seeds as seed_files
from labeler.bundle import Bundle
from labeler.clips import ClipOptions, ClipTask, resolve
from labeler.errors import SeedError, SourceError, UsageError
from labeler.passes import plan
from labeler.seeds import SeedFile
from labeler.segment import unservable
from labeler.sources.clips import open_clip
from labeler.sources.scan import find_clips
from labeler.sources.span import frame_range
from labeler.types import Item, Seed

SIDECAR = ".seeds.json"
SHARED = "seeds.json"


@dataclass(frozen=True, slots=True)
class ClipPlan:
    """The work, and what did not fit together."""

    tasks: tuple[ClipTask, ...]
    unmatched: tuple[tuple[str, str | None], ...]
    """Entries of the seeds files that name no clip, with the nearest name that exists."""
    unseeded: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...]
    """Folders that could not be looked into, with the reason."""
    seeds: SeedFile
    """Where the seeds came from; of several files, the first one's path and a hash over all."""

    @property
    def items(self) -> tuple[Item, ...]:
        """The clips that have seeds."""
        return tuple(task.item for task in self.tasks)


def plan_clips(root: Path, points: Path | None, out: Path, *, bundle: Bundle, options: ClipOptions) -> ClipPlan:
    """Match clips below `root` with their seeds, and check every seed against its clip's size and frames.

    `points`: one file for all; None: `seeds.json` in `root` and `<clip>.seeds.json` beside each clip. A clip that
    cannot be read stays in the plan: it ends as a failed record. Raises SeedError with all faults, UsageError if
    nothing can be labelled.
    """
    scan = find_clips(root)
    seed_file = seed_files.load(points) if points is not None else _gather(root, scan.items)
    match = seed_files.match(seed_file, [item.key for item in scan.items])
    items = [item for item in scan.items if item.key in match.seeds]
    if not items:
        there = f"{len(scan.items)} clips below it, the first is {scan.items[0].key!r}" if scan.items else "no clips"
        raise UsageError(
            f"{root}: none of the {len(seed_file.entries)} entries of {seed_file.path} names a clip ({there})"
        )
    faults = list[str]()
    tasks = tuple(_task(item, match.seeds[item.key], out, bundle, options, faults) for item in items)
    if faults:
        raise SeedError(faults)
    return ClipPlan(tasks, match.unmatched, match.unseeded, scan.faults, seed_file)


def sidecars(item: Item) -> Iterator[Path]:
    """Where a clip's own seeds may lie: `cat.mp4.seeds.json` or `cat.seeds.json`."""
    for name in dict.fromkeys((item.path.name, item.path.stem)):
        path = item.path.with_name(name + SIDECAR)
        if path.is_file():
            yield path


def _gather(root: Path, items: Iterable[Item]) -> SeedFile:
    """All seeds files below `root` as one, with keys relative to `root`."""
    shared = root / SHARED
    found: dict[Path, str] = {shared: ""} if shared.is_file() else {}
    for item in items:
        folder = PurePosixPath(item.key).parent.as_posix()
        found |= dict.fromkeys(sidecars(item), "" if folder == "." else f"{folder}/")
    if not found:
        raise UsageError(
            f"{root}: has neither {SHARED} nor <clip>{SIDECAR} beside a clip; name a seeds file with --points"
        )
    entries: dict[str, tuple[Seed, ...]] = {}
    digest, faults = hashlib.sha256(), list[str]()
    for path, prefix in found.items():
        try:
            loaded = seed_files.load(path)
        except SeedError as error:
            faults += error.faults
            continue
        digest.update(loaded.sha256.encode())
        for key, seeds in loaded.entries.items():
            if prefix + key in entries:
                faults.append(f"{path}: {key!r}: has seeds in another file too; put them into one")
            entries[prefix + key] = seeds
    if faults:
        raise SeedError(faults)
    first = next(iter(found))
    return SeedFile(first, entries, loaded.sha256 if len(found) == 1 else digest.hexdigest())


def _task(
    item: Item, seeds: tuple[Seed, ...], out: Path, bundle: Bundle, options: ClipOptions, faults: list[str]
) -> ClipTask:
    """A clip's task. What is wrong with its seeds is added to `faults`; what is wrong with it, its record tells."""
    told = [fault for seed in seeds if (fault := unservable(seed, bundle, "decode"))]
    visits = 0
    try:
        with open_clip(item.path, exif=options.exif, max_pixels=options.max_pixels) as source:
            index = source.index
        indices = frame_range(index.times_s, start=options.start, end=options.end, stride=options.stride)
        faults += seed_files.check_inside(seeds, height=index.height, width=index.width, where=repr(item.key))
        found, lost = resolve(seeds, index, indices)
        told += lost if index.problem is None else ()  # else the record tells: their frames may be among the lost ones
        places = [(seed.frame, seed.object_id) for seed in found]
        visits = sum(len(walk.indices) for walk in plan(places, direction=options.direction, count=len(indices)))
    except SourceError:
        pass
    faults += (f"{item.key!r}: {fault}" for fault in told)
    return ClipTask(item, seeds, out, visits)
