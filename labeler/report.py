"""What a run made, counted from its journal in one pass: failures, doubts, timing.

Nothing grows with the journal but one number per record; lists keep their first few members and a total.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labeler import runlengths
from labeler.errors import UsageError
from labeler.journal import NAME as JOURNAL
from labeler.journal import JournalReader
from labeler.outputs import FAILURES, RUN
from labeler.suspicion import suspicions
from labeler.toplists import Entry, First, Listed, Most
from labeler.types import WHOLE_CLIP


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per record: a picture, or a frame of a clip."""

    total: float
    mean: float
    median: float
    p95: float
    slowest: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Report:
    """JSON-ready with `dataclasses.asdict`."""

    kind: str
    program: str
    bundle: str
    """Name and version if the run ended, else the digest."""
    items: int
    """Pictures or clips."""
    done: int
    """Of them, those labelled to their end."""
    frames: int | None
    """Labelled frames of clips; None for pictures."""
    annotations: int
    """As many as annotations.json has."""
    categories: Mapping[str, int]
    """Annotations by category."""
    failures: Listed
    unfinished: Listed
    """Clips that the last run had begun and not ended."""
    notes: Listed
    empty_masks: Listed
    absent: Listed
    """Objects that the model takes for absent (object score at most 0). On clips they are no annotations."""
    unmatched: Listed
    """Entries of the seeds file that name no input."""
    unseeded: int | None
    """Inputs without seeds; None while no run has ended."""
    seeds_astray: Listed
    """Positive points outside their own mask, negative ones inside."""
    lowest_predicted_iou: tuple[Mapping[str, Any], ...]
    lowest_stability: tuple[Mapping[str, Any], ...]
    suspicious: Listed
    timing: Timing | None
    """Of what was done; None if nothing was."""


def summarize(folder: Path, *, show: int = 10) -> Report:
    """Read the journal and run.json of a run's output folder. `show`: how many members of each list are kept.

    Raises JournalError, UsageError.
    """
    with JournalReader(folder / JOURNAL) as reader:
        tally = _Tally(clips=reader.header.kind == "videos", show=show)
        done = tally.take(reader.records())
        for suspicion in suspicions(done) if tally.clips else ():
            tally.suspicious.add(asdict(suspicion))
        deque(done, maxlen=0)  # of pictures nothing is asked but to be counted
        for failure in _failures_without_record(folder, reader):
            tally.failures.add(failure)
        return tally.report(reader, _manifest(folder / RUN))


class _Tally:
    def __init__(self, *, clips: bool, show: int) -> None:
        self.clips = clips
        self.show = show
        self.items = self.done = self.frames = self.annotations = 0
        self.key: str | None = None
        self.categories: Counter[str] = Counter()
        self.failures, self.unfinished, self.notes = (First(show) for _ in range(3))
        self.empty, self.absent, self.astray, self.suspicious = (First(show) for _ in range(4))
        self.unsure, self.unstable, self.slowest = (Most(show) for _ in range(3))
        self.seconds = array("d")

    def take(self, records: Iterator[Entry]) -> Iterator[Entry]:
        """Count records, sorted by key and frame, and pass on those that are done."""
        for record in records:
            self._take(record)
            if record["status"] == "done":
                yield record

    def _take(self, record: Entry) -> None:
        whole = not self.clips or record["frame"] == WHOLE_CLIP
        if record["key"] != self.key:
            self.items, self.key = self.items + 1, record["key"]
            if not whole:  # a clip's own record comes before those of its frames
                self.unfinished.add({"key": record["key"]})
        for note in record["notes"]:
            self.notes.add(self._place(record) | {"note": note})
        if record["status"] == "failed":
            self.failures.add(self._place(record) | {"error": record["error"]})
            return
        self.done += whole
        if not (self.clips and whole):
            self._measure(record)

    def _measure(self, record: Entry) -> None:
        """A picture or a frame."""
        self.frames += 1
        self.seconds.append(record["seconds"])
        self.slowest.add(record["seconds"], self._place(record) | {"seconds": record["seconds"]})
        for annotation in record["annotations"]:
            self._annotation(record, annotation)

    def _annotation(self, record: Entry, annotation: Entry) -> None:
        place = self._place(record) | {"object_id": annotation["object_id"]}
        absent, empty = not annotation["visible"], annotation["area"] == 0
        if not (empty or (self.clips and absent)):
            self.annotations += 1
            self.categories[annotation["category"]] += 1
        if not annotation["chosen"]:
            return
        if absent:
            self.absent.add(place | {"object_score": annotation["object_score"]})
        elif empty:
            self.empty.add(place)
        if not empty:
            self._judge(place, record, annotation)

    def _judge(self, place: dict[str, Any], record: Entry, annotation: Entry) -> None:
        if (predicted := annotation["predicted_iou"]) is not None:
            self.unsure.add(-predicted, place | {"predicted_iou": predicted})
        self.unstable.add(-annotation["stability"], place | {"stability": annotation["stability"]})
        for point in points_astray(annotation, height=record["height"], width=record["width"]):
            self.astray.add(place | {"point": point})

    def _place(self, record: Entry) -> dict[str, Any]:
        frame = {"frame": record["frame"]} if self.clips and record["frame"] != WHOLE_CLIP else {}
        return {"key": record["key"]} | frame

    def report(self, reader: JournalReader, manifest: Entry | None) -> Report:
        known = manifest or {}
        bundle = known.get("bundle", {})
        unmatched = known.get("unmatched", ())
        return Report(
            kind=reader.header.kind,
            program=reader.header.program,
            bundle=f"{bundle['name']} {bundle['version']}" if bundle else reader.header.bundle,
            items=self.items,
            done=self.done,
            frames=self.frames if self.clips else None,
            annotations=self.annotations,
            categories=dict(sorted(self.categories.items())),
            failures=self.failures.listed(),
            unfinished=self.unfinished.listed(),
            notes=self.notes.listed(),
            empty_masks=self.empty.listed(),
            absent=self.absent.listed(),
            unmatched=Listed(len(unmatched), tuple({"name": name} for name in unmatched[: self.show])),
            unseeded=known.get("unseeded"),
            seeds_astray=self.astray.listed(),
            lowest_predicted_iou=self.unsure.members(),
            lowest_stability=self.unstable.members(),
            suspicious=self.suspicious.listed(),
            timing=self._timing(),
        )

    def _timing(self) -> Timing | None:
        if not self.seconds:
            return None
        values = np.frombuffer(self.seconds, np.float64)
        median, p95 = np.percentile(values, (50, 95))
        return Timing(float(values.sum()), float(values.mean()), float(median), float(p95), self.slowest.members())


def points_astray(annotation: Entry, *, height: int, width: int) -> list[tuple[float, float, int]]:
    """The seed's points (x, y, label) that do not lie where they should: positives in the mask, negatives out of it."""
    if not annotation["points"]:
        return []
    runs = runlengths.parse(annotation["rle"]["counts"], height=height, width=width)
    return [
        (x, y, label)
        for x, y, label in annotation["points"]
        if runlengths.holds(runs, row=_pixel(y, height), column=_pixel(x, width), height=height) != (label == 1)
    ]


def _pixel(place: float, side: int) -> int:
    """The pixel whose centre is nearest: a whole coordinate is a pixel's centre."""
    return min(int(place + 0.5), side - 1)


def _failures_without_record(folder: Path, reader: JournalReader) -> Iterator[Entry]:
    """What could not even become an item, such as a folder that could not be looked into."""
    path, known = folder / FAILURES, {key for key, _ in reader.places}
    if not path.exists():
        return
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            failure = _json(line, path)
            if failure["key"] not in known:
                yield {"key": failure["key"], "error": failure["error"]}


def _manifest(path: Path) -> Entry | None:
    return _json(path.read_text(encoding="utf-8"), path) if path.exists() else None


def _json(text: str, path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path}: is not JSON ({error}); run the same command again to write it anew") from None
    return document
