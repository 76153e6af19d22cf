"""The library's generator over any iterator of frames: no files, memory that does not grow, faults told."""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import films
import numpy as np
import pytest
from PIL import Image

import labeler
from labeler.errors import SeedError, SourceError, UsageError
from labeler.sam2 import Sam2
from labeler.types import Array, Point, Runtime, Seed


@pytest.fixture(scope="module")
def model(mini_dir: Path) -> Sam2:
    return labeler.load_model(mini_dir, task="videos", threads=1)


def seed(shown: films.Shots, number: int, frame: int = 0) -> Seed:
    return Seed(number, (Point(*map(float, films.click(shown, number, frame))),), frame=frame)


class Watching:
    """A runtime that counts graph runs, and what it gave that somebody still holds."""

    def __init__(self, runtime: Runtime) -> None:
        self.bundle = runtime.bundle
        self.runs: Counter[str] = Counter()
        self._runtime = runtime
        self._given: list[weakref.ref[Any]] = []

    def run(self, graph: str, /, **parts: Array) -> dict[str, Array]:
        self.runs[graph] += 1
        out = self._runtime.run(graph, **parts)
        whole = {id(array.base): array.base for array in out.values()}
        assert all(array is not None for array in whole.values()), "parts are views of what the graph wrote"
        self._given += map(weakref.ref, whole.values())
        return out

    @property
    def held(self) -> int:
        """Bytes."""
        return sum(array.nbytes for ref in self._given if (array := ref()) is not None)


def test_any_iterator_of_pictures_or_arrays_will_do(
    model: Sam2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = films.shots(frames=3)
    seeds = [seed(shown, 1), seed(shown, 2, 1)]
    arrays = list(labeler.label_video((rgb for rgb, _ in shown), seeds, model))
    pictures = list(labeler.label_video([Image.fromarray(rgb) for rgb, _ in shown], seeds, model))
    assert arrays == pictures
    assert [[each.object_id for each in found] for _, found in arrays] == [[1], [1, 2], [1, 2]]
    assert all(each.area and each.rle["size"] == [films.HEIGHT, films.WIDTH] for _, found in arrays for each in found)
    assert os.listdir(tmp_path) == []  # noqa: PTH208  # hidden names too


def test_nothing_grows_over_a_live_iterator(model: Sam2) -> None:
    """Pointers are kept for 15 frames, memories for fewer: from then on it is the same on every frame."""
    shown = films.shots(frames=3)
    runtime = Watching(model.runtime)
    given: list[weakref.ref[Any]] = []

    def camera() -> Iterator[Any]:
        while True:
            for rgb, _ in shown:
                frame = rgb.copy()
                given.append(weakref.ref(frame))
                yield frame
                del frame

    held = []
    for index, _ in labeler.label_video(camera(), [seed(shown, 1)], Sam2(runtime), memory=2):
        held.append(runtime.held)
        assert sum(ref() is not None for ref in given) <= 1, "the frame that was given last"
        if index == 21:
            break
    assert held[16] == held[-1] == max(held[16:])
    assert held[-1] > 0
    assert runtime.runs["encode"] == len(held)
    assert runtime.runs["decode"] == runtime.runs["memorize"] == len(held)


def test_three_objects_cost_one_encode_a_frame(model: Sam2) -> None:
    shown = films.shots("camera_motion", frames=3)
    runtime = Watching(model.runtime)
    list(labeler.label_video((rgb for rgb, _ in shown), [seed(shown, n) for n in (1, 2, 3)], Sam2(runtime)))
    assert runtime.runs == {"encode": 3, "decode": 9, "memorize": 9, "memcond2": 6}


def test_seeds_outside_the_frames_are_refused_before_anything_runs(model: Sam2) -> None:
    shown = films.shots(frames=3)
    runtime = Watching(model.runtime)
    outside = Seed(2, (Point(float(films.WIDTH), 3.0),), frame=2)
    with pytest.raises(SeedError, match=r"object 2 on frame 2: points\[0\]: \(96, 3\) is outside"):
        next(labeler.label_video((rgb for rgb, _ in shown), [seed(shown, 1), outside], Sam2(runtime)))
    assert not runtime.runs


def test_a_frame_of_another_size_is_told(model: Sam2) -> None:
    shown = films.shots(frames=2)
    frames = [shown[0][0], np.ascontiguousarray(shown[1][0][:, 1:])]
    with pytest.raises(SourceError, match="frame 1 is 95 x 72, the first 96 x 72"):
        list(labeler.label_video(frames, [seed(shown, 1)], model))


def test_a_model_loaded_for_pictures_is_refused(one_click_dir: Path) -> None:
    shown = films.shots(frames=2)
    with pytest.raises(UsageError, match='load it with task="videos"'):
        next(labeler.label_video([shown[0][0]], [seed(shown, 1)], labeler.load_model(one_click_dir, threads=1)))
