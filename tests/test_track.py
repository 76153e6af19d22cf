"""Tracking with the small bundle over LiteRT: cost, interruption, late objects, directions, streams."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from render import click_point, render_clip

from labeler import bundle as bundles
from labeler.clip import Clip, Snapshot, label_video
from labeler.errors import BundleError, SeedError, UsageError
from labeler.masks import decode
from labeler.runtime import LiteRtRuntime
from labeler.sam2 import Sam2
from labeler.track import Tracked, Tracker, as_annotations, memory_layout
from labeler.types import Annotation, Array, Point, Rgb, Runtime, Seed

HEIGHT, WIDTH, COUNT = 96, 128, 9
Results = list[tuple[int, tuple[Tracked, ...]]]


class CountingRuntime:
    """Counts the runs of each graph."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self.bundle = runtime, runtime.bundle
        self.runs: Counter[str] = Counter()

    def run(self, graph: str, /, **parts: Array) -> dict[str, Array]:
        self.runs[graph] += 1
        return self._runtime.run(graph, **parts)


class ListFrames:
    """A clip held in memory."""

    def __init__(self, frames: Sequence[Rgb]) -> None:
        self._frames = frames
        self.height, self.width = frames[0].shape[:2]

    def __len__(self) -> int:
        return len(self._frames)

    def read(self, indices: range) -> Iterator[Rgb]:
        return (self._frames[index] for index in indices)


@pytest.fixture(scope="module")
def litert() -> Iterator[LiteRtRuntime]:
    folder = Path(__file__).resolve().parent.parent / "models" / "mini"
    runtime = LiteRtRuntime(bundles.load(folder), threads=1)
    yield runtime
    runtime.close()


@pytest.fixture
def runtime(litert: LiteRtRuntime) -> CountingRuntime:
    return CountingRuntime(litert)


@pytest.fixture
def model(runtime: CountingRuntime) -> Sam2:
    return Sam2(runtime)


@pytest.fixture(scope="module")
def alone(litert: LiteRtRuntime, frames: ListFrames) -> Results:
    """Object 1, clicked on frame 0, followed to the end."""
    return list(Clip(Sam2(litert), frames, [seed(1)]))


@pytest.fixture(scope="module")
def scene() -> tuple[ListFrames, list[Array]]:
    """A rendered clip and the object numbers of its pixels."""
    rendered = list(render_clip("crossing", 3, COUNT, HEIGHT, WIDTH))
    return ListFrames([rgb for rgb, _ in rendered]), [labels for _, labels in rendered]


@pytest.fixture(scope="module")
def frames(scene: tuple[ListFrames, list[Array]]) -> ListFrames:
    return scene[0]


def seed(object_id: int, *, frame: int = 0) -> Seed:
    """A click on a place of its own for each of three objects; what lies there does not matter to these tests."""
    x, y = [(30, 30), (90, 40), (60, 75)][object_id - 1]
    return Seed(object_id, (Point(x, y),), category=f"kind {object_id}", frame=frame)


def ids(results: Sequence[Tracked | Annotation]) -> list[int]:
    return [one.seed.object_id if isinstance(one, Tracked) else one.object_id for one in results]


def test_three_objects_cost_one_encode_per_frame(runtime: CountingRuntime, model: Sam2, frames: ListFrames) -> None:
    found = list(Clip(model, frames, [seed(1), seed(2), seed(3)]))
    assert [(index, ids(results)) for index, results in found] == [(t, [1, 2, 3]) for t in range(COUNT)]
    assert runtime.runs["encode"] == COUNT
    assert runtime.runs["decode"] == runtime.runs["memorize"] == 3 * COUNT
    assert runtime.runs["memcond2"] == 3 * 2
    assert runtime.runs["memcond7"] == 3 * (COUNT - 3)


def test_two_slots_only(runtime: CountingRuntime, model: Sam2, frames: ListFrames) -> None:
    assert len(list(Clip(model, frames, [seed(1)], memory=2))) == COUNT
    assert runtime.runs["memcond2"] == COUNT - 1
    assert runtime.runs["memcond7"] == 0


def test_the_smallest_graph_equals_the_largest_to_rounding(runtime: CountingRuntime, frames: ListFrames) -> None:
    """With two filled slots, memcond2 and a masked memcond7 give the same features."""
    model = Sam2(runtime)
    (first, second) = (model.encode(frame) for frame in frames.read(range(2)))
    tracker = Tracker(model)
    tracker.click(seed(1), first, height=HEIGHT, width=WIDTH)
    tracker.follow(seed(1), 1, second)
    bank = tracker._banks[1]
    small = bank.inputs(2)
    bank._layout = replace(bank._layout, slots=(7,))
    large = bank.inputs(2)
    assert (small.slots, large.slots) == (2, 7)
    found, wanted = model.recall(second, small), model.recall(second, large)
    assert np.abs(wanted).max() > 0.5
    assert np.abs(found - wanted).max() < 2e-3 * np.abs(wanted).max()


def test_objects_appear_with_their_first_seed(model: Sam2, frames: ListFrames, alone: Results) -> None:
    """And those that were there before do not change by it."""
    found = list(Clip(model, frames, [seed(2, frame=4), seed(1), seed(3, frame=COUNT - 1)]))
    expected = [[1]] * 4 + [[1, 2]] * 4 + [[1, 2, 3]]
    assert [(index, ids(results)) for index, results in found] == list(enumerate(expected))
    assert same([(index, results[:1]) for index, results in found], alone)


def test_a_correction_serves_frames_before_and_after_it(model: Sam2, frames: ListFrames, alone: Results) -> None:
    found = list(Clip(model, frames, [seed(1), seed(1, frame=6)]))
    assert [index for index, (one,) in found if one.prompted] == [0, 6]
    pairs = zip(found, alone, strict=True)
    changed = [i for (i, (one,)), (_, (other,)) in pairs if not np.array_equal(one.logits_hw, other.logits_hw)]
    assert changed == list(range(1, COUNT))


def test_both_directions_encode_once_while_the_cache_lasts(
    runtime: CountingRuntime, model: Sam2, frames: ListFrames
) -> None:
    """Without a cache a frame is encoded for its click, for other objects there, and for the way back."""
    seeds = [seed(1, frame=2), seed(2, frame=5)]

    def run(**options: Any) -> tuple[Results, int, Clip]:
        runtime.runs.clear()
        clip = Clip(model, frames, seeds, direction="both", memory=2, **options)
        return list(clip), runtime.runs["encode"], clip

    wanted, encodes, clip = run()
    forward = [(t, [1] if t < 5 else [1, 2]) for t in range(2, COUNT)]
    assert [(t, ids(found)) for t, found in wanted] == forward + [
        (t, [2] if t >= 2 else [1, 2]) for t in range(4, -1, -1)
    ]
    assert encodes == COUNT
    assert clip._kept == {}, "nothing is kept for longer than needed"
    found, without_cache, _ = run(cache_bytes=0)
    assert same(found, wanted)
    assert without_cache == 2 + (COUNT - 3) + 5
    one_frame = 4 * (256 * 64 * 64 + 32 * 256 * 256 + 64 * 128 * 128)
    found, some_cache, _ = run(cache_bytes=2 * one_frame)
    assert same(found, wanted)
    assert COUNT < some_cache < without_cache


def test_a_clip_stopped_anywhere_goes_on_bit_for_bit(model: Sam2, frames: ListFrames) -> None:
    """Stopped after the first frame, in each direction, and between the two (after 7 frames)."""
    seeds = [seed(1, frame=2), seed(2, frame=5), seed(1, frame=6)]
    clip = Clip(model, frames, seeds, direction="both")
    wanted, snapshots = [], {}
    for count, result in enumerate(clip, start=1):
        wanted.append(result)
        snapshots[count] = through_files(clip.snapshot())
    assert len(wanted) == 7 + 5
    for stop, more in ((1, 2), (5, 2), (6, 2), (7, 2), (8, 99)):
        again = Clip(model, frames, seeds, direction="both", snapshot=snapshots[stop])
        assert same([result for _, result in zip(range(more), again, strict=False)], wanted[stop : stop + more])
    assert same_snapshot(again.snapshot(), clip.snapshot())


def through_files(snapshot: Snapshot) -> Snapshot:
    file = io.BytesIO()
    np.savez(file, **snapshot.arrays)
    file.seek(0)
    return Snapshot(dict(np.load(file)), json.loads(json.dumps(snapshot.state)))


def same(found: Results, wanted: Results) -> bool:
    def bits(results: Results) -> list[Any]:
        return [
            (index, astuple(replace(one, logits_hw=one.logits_hw.tobytes(), iou_n=one.iou_n.tobytes())))
            for index, by_object in results
            for one in by_object
        ]

    return bits(found) == bits(wanted)


def same_snapshot(one: Snapshot, other: Snapshot) -> bool:
    arrays = {key: array.tobytes() for key, array in one.arrays.items()}
    return one.state == other.state and arrays == {key: array.tobytes() for key, array in other.arrays.items()}


def test_a_snapshot_is_bounded(model: Sam2, frames: ListFrames) -> None:
    clip = Clip(model, frames, [seed(1)])
    sizes = [sum(array.nbytes for array in clip.snapshot().arrays.values()) for _ in clip]
    memory, logits = 4096 * 64 * 4, 256 * 256 * 4
    assert 7 * memory < sizes[-1] < 7 * memory + logits + 32_000
    assert sizes[8] - sizes[7] < 1100, "once the window is full only pointers are added, up to 15"


def test_a_stream_equals_a_clip_when_all_is_known_at_the_start(model: Sam2, frames: ListFrames, alone: Results) -> None:
    wanted = [(index, as_annotations(found, height=HEIGHT, width=WIDTH)) for index, found in alone]
    assert list(label_video(frames.read(range(COUNT)), [seed(1)], model)) == wanted
    assert [len(one.points) for _, (one,) in wanted] == [1] + [0] * (COUNT - 1)
    assert {(one.category, one.frame == index) for index, (one,) in wanted} == {("kind 1", True)}
    json.dumps([one.rle for _, (one,) in wanted])


def test_a_stream_is_causal(model: Sam2, frames: ListFrames) -> None:
    """Frames before a seed are what they are without it."""
    before = list(label_video(frames.read(range(4)), [seed(1, frame=1)], model))
    found = list(label_video(frames.read(range(6)), [seed(1, frame=1), seed(2, frame=4), seed(1, frame=5)], model))
    assert found[:4] == before
    assert [ids(results) for _, results in found] == [[], [1], [1], [1], [1, 2], [1, 2]]
    assert [bool(results[0].points) for _, results in found[1:]] == [True, False, False, False, True]


def test_a_stream_asks_for_a_frame_only_when_the_last_one_was_given(model: Sam2, frames: ListFrames) -> None:
    asked: list[int] = []
    source = (asked.append(t) or rgb for t, rgb in enumerate(frames.read(range(COUNT))))
    for index, _ in label_video(source, [seed(1)], model):
        assert asked[-1] == index
        if index == 2:
            break
    assert asked == [0, 1, 2]


def test_a_stream_that_ends_before_a_seed_is_an_error(model: Sam2, frames: ListFrames) -> None:
    with pytest.raises(SeedError, match="object 2: frame 40 never came"):
        list(label_video(frames.read(range(2)), [seed(1), seed(2, frame=40)], model))


def test_seeds_past_the_end_are_refused_before_anything_runs(
    runtime: CountingRuntime, model: Sam2, frames: ListFrames
) -> None:
    with pytest.raises(SeedError, match="frame 9 is outside the clip's 9 frames"):
        Clip(model, frames, [seed(1), seed(2, frame=COUNT)])
    assert not runtime.runs


def test_a_memory_size_without_a_graph_is_refused(model: Sam2) -> None:
    with pytest.raises(UsageError, match=r"5 slots wanted; .* has 2 or 7"):
        Tracker(model, memory=5)


@pytest.mark.parametrize("missing", ["memorize", "memcond", "scores"])
def test_a_bundle_that_cannot_track_is_refused(litert: LiteRtRuntime, missing: str) -> None:
    graphs = {role: spec for role, spec in litert.bundle.graphs.items() if not role.startswith(missing)}
    if missing == "scores":
        graphs["decode"] = replace(graphs["decode"], outputs=graphs["decode"].outputs[:1])
    with pytest.raises(BundleError, match="cannot track clips"):
        memory_layout(replace(litert.bundle, graphs=graphs))


def test_an_occluded_object_is_empty_and_comes_back_under_its_id(litert: LiteRtRuntime, frames: ListFrames) -> None:
    """The object score is pushed below 0 on some frames: nothing a small model could be made to do at will."""
    hidden = (4, 5)

    class Hiding(CountingRuntime):
        def run(self, graph: str, /, **parts: Array) -> dict[str, Array]:
            out = super().run(graph, **parts)
            if graph == "memorize":
                occluded.append(bool(parts["occluded"][0]))
            if graph == "decode":
                score = -2.0 if self.runs["decode"] - 1 in hidden else 2.0
                return {**out, "object_score": np.full(1, score, np.float32)}
            return out

    occluded: list[bool] = []
    for index, results in Clip(Sam2(Hiding(litert)), frames, [seed(1)]):
        (one,) = as_annotations(results, height=HEIGHT, width=WIDTH)
        assert one.visible == (index not in hidden)
        assert one.object_id == 1
        assert results[0].logits_hw.max() == -1024 if index in hidden else one.area > 0
        assert (one.area == 0) == (index in hidden)
    assert occluded == [t in hidden for t in range(COUNT)]


def test_masks_follow_a_moving_object(model: Sam2, scene: tuple[ListFrames, list[Array]]) -> None:
    """Better than repeating the first mask, over the clip's objects."""
    frames, labels = scene
    objects = [int(i) for i in np.unique(labels[0]) if i]
    seeds = [Seed(i, (Point(*map(float, click_point(labels[0] == i))),)) for i in objects]
    found, repeated = [], []
    first: dict[int, Array] = {}
    for index, results in Clip(model, frames, seeds):
        for one in as_annotations(results, height=HEIGHT, width=WIDTH):
            mask, truth = decode(dict(one.rle)), labels[index] == one.object_id
            first.setdefault(one.object_id, mask)
            found.append(_iou(mask, truth))
            repeated.append(_iou(first[one.object_id], truth))
    assert np.mean(found) > np.mean(repeated) + 0.1


def _iou(one: Array, other: Array) -> float:
    union = np.count_nonzero(one | other)
    return float(np.count_nonzero(one & other) / union) if union else 1.0
