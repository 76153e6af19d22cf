"""Label one clip: every clicked frame first, then the frames in between, in one or both directions.

As in SAM2VideoPredictor, all clicked frames are answered before any other, so a later click serves the frames before
it too. `label_video` is the causal form for frames that come one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from labeler.errors import SeedError, SourceError
from labeler.passes import Direction, Pass, by_place, plan
from labeler.sam2 import Sam2
from labeler.seeds import check_inside
from labeler.track import Tracked, Tracker, as_annotations
from labeler.types import Annotation, Array, Features, Rgb, Seed

if TYPE_CHECKING:
    from PIL import Image

CACHE_BYTES = 256 * 1024**2
"""Default budget for features that a later visit to the same frame needs: 16 frames of SAM 2.1."""


class Frames(Protocol):
    """The frames of one clip: upright RGB, all of one size."""

    height: int
    width: int

    def __len__(self) -> int: ...

    def read(self, indices: range) -> Iterator[Rgb]:
        """The frames of a range, ascending or descending, one at a time. Raises SourceError at one that is damaged."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Where a clip stands between two frames: `arrays` for numpy.savez, `state` for JSON."""

    arrays: Mapping[str, Array]
    state: Mapping[str, Any]


class Clip:
    """A generator of one clip's results that can be stopped between two frames and continued bit for bit.

    Iterating gives (frame, results by object id). `forward` goes from each object's first seed to the end,
    `backward` from its last seed to the start, `both` from its first seed to the end and then to the start: a frame
    between two objects' first seeds comes twice, each time with other objects. Features are encoded once per frame for
    all objects, and kept for a second visit while `cache_bytes` last. Raises SeedError for seeds past the end.
    """

    def __init__(
        self,
        model: Sam2,
        frames: Frames,
        seeds: Sequence[Seed],
        *,
        direction: Direction = "forward",
        memory: int | None = None,
        cache_bytes: int = CACHE_BYTES,
        snapshot: Snapshot | None = None,
    ) -> None:
        self._model, self._frames = model, frames
        self._seeds = by_place(seeds, count=len(frames))
        self._first = _first_seeds(self._seeds)
        self._passes = plan(self._seeds, direction=direction, count=len(frames))
        self._tracker = Tracker(model, memory=memory)
        self._kept: dict[int, Features] = {}
        self._room = cache_bytes
        self._clicked: dict[tuple[int, int], Tracked] = {}
        self._pass = self._done = 0
        if snapshot is not None:
            self._restore(snapshot)

    def __iter__(self) -> Iterator[tuple[int, tuple[Tracked, ...]]]:
        if not self._clicked:
            self._answer_seeds()
        while self._pass < len(self._passes):
            yield from self._walk(self._passes[self._pass])
            self._pass, self._done = self._pass + 1, 0

    def snapshot(self) -> Snapshot:
        """Where the iteration stands: everything up to the last frame it gave is in it."""
        clicked = [
            {"frame": frame, "object_id": object_id, "candidate": one.candidate, "rule": one.rule}
            | {"object_score": one.object_score}
            for (frame, object_id), one in self._clicked.items()
        ]
        arrays = {f"bank.{key}": array for key, array in self._tracker.snapshot().items()}
        if clicked:
            arrays["clicked.logits"] = np.stack([one.logits_hw for one in self._clicked.values()])
            arrays["clicked.iou"] = np.stack([one.iou_n for one in self._clicked.values()])
        return Snapshot(arrays, {"pass": self._pass, "done": self._done, "clicked": clicked})

    def _restore(self, snapshot: Snapshot) -> None:
        arrays, state = snapshot.arrays, snapshot.state
        banks = {key.removeprefix("bank."): array for key, array in arrays.items() if key.startswith("bank.")}
        self._tracker.restore(banks)
        self._pass, self._done = state["pass"], state["done"]
        for i, one in enumerate(state["clicked"]):
            place = one["frame"], one["object_id"]
            self._clicked[place] = Tracked(
                seed=self._seeds[place],
                frame=one["frame"],
                prompted=True,
                logits_hw=arrays["clicked.logits"][i],
                iou_n=arrays["clicked.iou"][i],
                candidate=one["candidate"],
                rule=one["rule"],
                object_score=one["object_score"],
            )

    def _answer_seeds(self) -> None:
        height, width = self._frames.height, self._frames.width
        for index in sorted({frame for frame, _ in self._seeds}):
            (rgb,) = self._frames.read(range(index, index + 1))
            features = self._encode(index, rgb, later=self._passes)
            for place, seed in self._seeds.items():
                if place[0] == index:
                    self._clicked[place] = self._tracker.click(seed, features, height=height, width=width)

    def _walk(self, walk: Pass) -> Iterator[tuple[int, tuple[Tracked, ...]]]:
        if not self._done:
            self._tracker.forget_recent()
        left = walk.indices[self._done :]
        for index, rgb in zip(left, self._frames.read(left), strict=True):
            results = self._visit(index, rgb, walk)
            self._done += 1
            yield index, results

    def _visit(self, index: int, rgb: Rgb, walk: Pass) -> tuple[Tracked, ...]:
        features = self._encode(index, rgb, later=self._passes[self._pass + 1 :]) if self._needs(walk, index) else None
        results = []
        for object_id in walk.wanted(index):
            if (index, object_id) in self._clicked:
                results.append(self._clicked[index, object_id])
            else:
                assert features is not None
                seed = self._first[object_id]
                results.append(self._tracker.follow(seed, index, features, reverse=walk.reverse))
        return tuple(results)

    def _needs(self, walk: Pass, index: int) -> bool:
        """Whether a pass needs a frame's features: some object there was not clicked."""
        return any((index, object_id) not in self._seeds for object_id in walk.wanted(index))

    def _encode(self, index: int, rgb: Rgb, *, later: Sequence[Pass]) -> Features:
        """Features from the cache or the encoder. They stay in the cache until no later pass needs them."""
        features = self._kept.pop(index, None)
        if features is None:
            features = self._model.encode(rgb)
        else:
            self._room += _nbytes(features)
        if _nbytes(features) <= self._room and any(self._needs(walk, index) for walk in later):
            self._kept[index] = features
            self._room -= _nbytes(features)
        return features


def label_video(
    frames: Iterable[Image.Image | Rgb], seeds: Sequence[Seed], model: Sam2, *, memory: int | None = None
) -> Iterator[tuple[int, tuple[Annotation, ...]]]:
    """Annotations of every frame as it comes, by object id: a camera, a loader, any iterator of upright RGB frames.

    Causal: a seed changes its own frame and those after it. Frames that were given are not kept. Raises SeedError for
    seeds outside the first frame's size, and at the end for seeds on frames that never came; SourceError for a frame
    of another size.
    """
    tracker = Tracker(model, memory=memory)
    waiting = by_place(seeds)
    known: dict[int, Seed] = {}
    size: tuple[int, int] | None = None
    for index, image in enumerate(frames):
        height, width = image.shape[:2] if isinstance(image, np.ndarray) else (image.height, image.width)
        if size is None and (faults := check_inside(seeds, height=height, width=width, where="seeds")):
            raise SeedError(faults)
        size = size or (height, width)
        if size != (height, width):
            raise SourceError(f"frame {index} is {width} x {height}, the first {size[1]} x {size[0]}")
        here = {object_id: waiting.pop((index, object_id)) for frame, object_id in list(waiting) if frame == index}
        known = dict(sorted((here | known).items()))
        if not known:
            yield index, ()
            continue
        features = model.encode(image)
        results = [
            tracker.click(here[object_id], features, height=height, width=width)
            if object_id in here
            else tracker.follow(seed, index, features)
            for object_id, seed in known.items()
        ]
        yield index, as_annotations(results, height=height, width=width)
    if waiting:
        raise SeedError([f"object {object_id}: frame {frame} never came" for frame, object_id in waiting])


def _first_seeds(places: Mapping[tuple[int, int], Seed]) -> dict[int, Seed]:
    first: dict[int, Seed] = {}
    for (_, object_id), seed in places.items():
        first.setdefault(object_id, seed)
    return first


def _nbytes(features: Features) -> int:
    return sum(array.nbytes for array in (features.pix_chw, features.hi0_chw, features.hi1_chw))
