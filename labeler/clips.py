"""One clip file becomes a record per frame, snapshots to go on from, and at its end a record of the whole clip."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from labeler import snapshots
from labeler.clip import Clip
from labeler.errors import SeedError, SourceError
from labeler.images import content_identity, fingerprint, reason
from labeler.journal import Journal
from labeler.model import ModelSpec
from labeler.passes import Direction
from labeler.sam2 import Sam2
from labeler.sources.clips import Clip as Source
from labeler.sources.clips import ClipIndex, open_clip
from labeler.sources.pictures import MAX_PIXELS, Exif
from labeler.sources.span import Place, frame_at, frame_range
from labeler.track import Tracked, as_annotations
from labeler.types import WHOLE_CLIP, Item, Record, Rgb, Seed, Snapshot


@dataclass(frozen=True, slots=True)
class ClipOptions:
    """Which frames of a clip are read, how objects are followed, and what is kept."""

    exif: Exif = "apply"
    max_pixels: int = MAX_PIXELS
    direction: Direction = "forward"
    memory: int | None = None
    """Slots of the largest memory graph to use; None: the largest of the bundle."""
    start: Place | None = None
    end: Place | None = None
    stride: int = 1
    frames_out: Path | None = None
    """Folder for the frames that the labels speak of."""
    snapshot_every: int = 32
    """Frames between two snapshots: what a kill can cost."""

    def decisive(self) -> dict[str, Any]:
        """The options that change masks."""
        span = {name: None if place is None else [place.frame, place.seconds] for name, place in self._ends()}
        return span | {"exif": self.exif, "direction": self.direction, "memory": self.memory, "stride": self.stride}

    def _ends(self) -> tuple[tuple[str, Place | None], ...]:
        return ("start", self.start), ("end", self.end)


@dataclass(frozen=True, slots=True)
class ClipTask:
    """A clip, what was said about it, and where its snapshot lies."""

    item: Item
    seeds: tuple[Seed, ...]
    out: Path
    visits: int = 0
    """Frames of all its passes, for the progress bar."""

    @property
    def snapshot_name(self) -> str:
        return snapshots.name(self.item.key)


class ClipLabeler:
    """Labels clips one by one; picklable, loads its model on first use (once per process)."""

    def __init__(self, model: ModelSpec, options: ClipOptions) -> None:
        self.model, self.options = model, options
        self._sam2: Sam2 | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_sam2": None}

    def stream(self, task: ClipTask) -> Iterator[Record | Snapshot]:
        """Label a clip, going on from its snapshot if there is one.

        Whatever goes wrong with the clip is told by its last record, with frame WHOLE_CLIP; frames before a damaged
        one are kept. Raises BundleError if the model cannot be loaded.
        """
        started = time.perf_counter()
        if self._sam2 is None:
            self._sam2 = self.model.load()
        whole = Record(task.item.key, WHOLE_CLIP, self.fingerprint(task), "done")
        try:
            with open_clip(task.item.path, exif=self.options.exif, max_pixels=self.options.max_pixels) as source:
                index = source.index
                whole = replace(whole, height=index.height, width=index.width, exif_orientation=index.orientation)
                yield from self._frames(task, source, self._sam2, whole)
                if index.problem is not None:
                    raise SourceError(index.problem)
        except Exception as error:  # noqa: BLE001  # one bad clip never stops a run; its record tells
            whole = replace(whole, status="failed", error=reason(error))
        yield replace(whole, seconds=round(time.perf_counter() - started, 4))
        yield Snapshot(task.snapshot_name, None)

    def fingerprint(self, task: ClipTask, content: str | None = None) -> str:
        """sha256 over the clip (or its known hash), its seeds, the bundle and the options that change masks."""
        content = content or content_identity(task.item.path)
        return fingerprint(content, task.seeds, self.model.bundle, self.options.decisive())

    def _frames(self, task: ClipTask, source: Source, sam2: Sam2, whole: Record) -> Iterator[Record | Snapshot]:
        frames = SelectedFrames(source, self.options)
        clip = Clip(
            sam2,
            frames,
            _seeds(task, source.index, frames.indices),
            direction=self.options.direction,
            memory=self.options.memory,
            snapshot=snapshots.load(task.out / task.snapshot_name, whole.fingerprint),
        )
        began = time.perf_counter()
        for number, (place, tracked) in enumerate(clip, start=1):
            index = frames.indices[place]
            spent, began = time.perf_counter() - began, time.perf_counter()
            record = _record(whole, index, source.index.times_s[index], tracked, spent)
            yield record
            if number % self.options.snapshot_every == 0:
                yield Snapshot(task.snapshot_name, snapshots.dump(clip.snapshot(), record))

    def drop_stray_snapshot(self, task: ClipTask, journal: Journal) -> None:
        """Remove a snapshot that cannot be gone on from: of other work, damaged, or ahead of the journal."""
        path = task.out / task.snapshot_name
        if path.exists():
            snapshots.drop_stray(path, journal, task.item.key, self.fingerprint(task))


class SelectedFrames:
    """The frames of an open clip between --start and --end, each --stride-th, numbered from 0."""

    def __init__(self, source: Source, options: ClipOptions) -> None:
        index = source.index
        self.height, self.width = index.height, index.width
        self.indices = frame_range(index.times_s, start=options.start, end=options.end, stride=options.stride)
        self._source = source

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, indices: range) -> Iterator[Rgb]:
        """The frames of a range of numbers, ascending or descending. Raises SourceError at one that is damaged."""
        if not indices:
            return
        places = sorted((self.indices[indices[0]], self.indices[indices[-1]]))
        stride = abs(indices.step) * self.indices.step
        for frame in self._source.frames(places[0], places[1] + 1, stride=stride, reverse=indices.step < 0):
            if frame.image is None:
                raise SourceError(f"frame {frame.index}: {frame.error}")
            yield np.asarray(frame.image)


def resolve(seeds: Sequence[Seed], index: ClipIndex, indices: range) -> tuple[list[Seed], list[str]]:
    """Seeds with times turned into frames, and frames into their numbers among `indices`.

    Also gives the faults: frames that are not read, and objects with two seeds on one.
    """
    faults, found = [], dict[tuple[int, int], Seed]()
    for seed in seeds:
        try:
            frame = seed.frame if seed.time_s is None else frame_at(index.times_s, seed.time_s)
        except (SeedError, SourceError) as error:
            faults.append(f"object {seed.object_id}: {error}")
            continue
        if frame not in indices:
            faults.append(f"object {seed.object_id}: frame {frame} is not read{_which(frame, index, indices)}")
        elif (frame, seed.object_id) in found:
            faults.append(f"object {seed.object_id}: has two seeds on frame {frame}; put their points into one")
        else:
            found[frame, seed.object_id] = replace(seed, frame=indices.index(frame), time_s=None)
    return list(found.values()), faults


def _seeds(task: ClipTask, index: ClipIndex, indices: range) -> list[Seed]:
    found, faults = resolve(task.seeds, index, indices)
    if faults and index.problem is not None:
        raise SourceError("; ".join([index.problem, *faults]))
    if faults:
        raise SeedError(faults)
    return found


def _record(whole: Record, index: int, time_s: float | None, tracked: Sequence[Tracked], seconds: float) -> Record:
    annotations = as_annotations(tracked, height=whole.height, width=whole.width)
    return replace(
        whole,
        frame=index,
        time_s=time_s,
        annotations=tuple(replace(annotation, frame=index) for annotation in annotations),
        seconds=round(seconds, 4),
    )


def _which(frame: int, index: ClipIndex, indices: range) -> str:
    if frame >= index.count:
        return f": the clip has {index.count} frames, numbered from 0"
    return f": --start, --end and --stride leave {indices[0]} to {indices[-1]} by {indices.step}; move the seed"
