"""Our tracker over PyTorch modules in float64 equals the reference's own loop in float64, frame by frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch_runtime import (
    SIDE,
    ArrayFrames,
    Reference,
    TorchRuntime,
    TorchSam2,
    disc_centres,
    moving_frames,
    small_model,
    with_slots,
    write_bundle,
)
from transformers import Sam2VideoModel

from labeler import masks, memory, preprocess, track
from labeler.bundle import Bundle
from labeler.clip import Clip, label_video
from labeler.passes import Direction
from labeler.track import Tracked
from labeler.types import Array, Point, Seed

COUNT = 20
"""Frames: more than the 6 memories and the 15 pointers that are kept, so both windows roll."""
SIZE = {"height": SIDE, "width": SIDE}

Results = dict[int, dict[int, tuple[Array, float]]]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model() -> Sam2VideoModel:
    return small_model()


@pytest.fixture(scope="module")
def bundle(model: Sam2VideoModel, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return write_bundle(model, tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module")
def one_object(model: Sam2VideoModel) -> Results:
    """The reference for object 1, clicked on frame 0."""
    return theirs(model, [seed(1)])


def seed(object_id: int, *, frame: int = 0, extra: Sequence[Point] = ()) -> Seed:
    """A click on the middle of a disc of `moving_frames`."""
    x, y = disc_centres(frame, COUNT)[object_id - 1]
    return Seed(object_id, (Point(x, y), *extra), frame=frame)


def ours(
    sam2: TorchSam2, seeds: Sequence[Seed], *, count: int = COUNT, **options: Any
) -> dict[int, dict[int, Tracked]]:
    clip = Clip(sam2, ArrayFrames(moving_frames(COUNT)[:count]), seeds, **options)
    return {frame: {one.seed.object_id: one for one in results} for frame, results in clip}


def theirs(
    model: Sam2VideoModel, seeds: Sequence[Seed], *, start: int = 0, reverse: bool = False, count: int = COUNT
) -> Results:
    loop = Reference(model, inputs(count))
    loop.click(seeds, **SIZE)
    return loop.propagate(start=start, reverse=reverse)


def inputs(count: int = COUNT, *, side: int = SIDE) -> list[Array]:
    frames = moving_frames(COUNT, height=side, width=side)[:count]
    return [preprocess.model_input(frame, **SIZE) for frame in frames]


def largest_difference(found: dict[int, dict[int, Tracked]], wanted: Results) -> float:
    assert {t: list(by_id) for t, by_id in found.items()} == {t: list(by_id) for t, by_id in wanted.items()}
    pairs = [(one, *wanted[t][i]) for t, by_id in found.items() for i, one in by_id.items()]
    return max(max(np.abs(one.logits_hw - logits).max(), abs(one.object_score - score)) for one, logits, score in pairs)


CASES: dict[str, tuple[list[Seed], int, Direction]] = {
    "one object": ([seed(1)], 7, "forward"),
    "three objects together": ([seed(1), seed(2), seed(3)], 7, "forward"),
    "a second click later": ([seed(1), seed(1, frame=8)], 8, "forward"),
    "two slots": ([seed(2)], 2, "forward"),
    "backward": ([seed(3, frame=COUNT - 1)], 7, "backward"),
    "backward with an earlier click": ([seed(1, frame=11), seed(1, frame=COUNT - 1)], 8, "backward"),
    "starts in the middle": ([seed(2, frame=7)], 7, "forward"),
    "two clicks in one seed": ([seed(1, extra=[Point(5, 120, positive=False)])], 7, "forward"),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_the_reference_loop(case: str, model: Sam2VideoModel, bundle: Bundle) -> None:
    seeds, slots, direction = CASES[case]
    found = ours(TorchSam2(TorchRuntime(model, bundle)), seeds, memory=slots, direction=direction)
    ends = [one.frame for one in seeds]
    reverse = direction == "backward"
    with two_memories(model) if slots == 2 else patch.object(model, "num_maskmem", 7):
        wanted = theirs(model, seeds, start=max(ends) if reverse else min(ends), reverse=reverse)
    assert list(found) == (list(range(COUNT - 1, -1, -1)) if reverse else list(range(min(ends), COUNT)))
    assert largest_difference(found, wanted) < 1e-6
    areas = [np.mean(one.logits_hw > 0) for by_id in found.values() for one in by_id.values()]
    assert min(areas) > 0.02
    assert max(areas) < 0.98


def two_memories(model: Sam2VideoModel) -> Any:
    """The reference with a bank of one clicked and one recent frame, which have the first and the last temporal row."""
    rows = torch.nn.Parameter(model.memory_temporal_positional_encoding[[0, -1]])
    return patch.multiple(model, num_maskmem=2, memory_temporal_positional_encoding=rows)


def test_equals_the_reference_loop_while_objects_come_and_go(tmp_path: Path) -> None:
    model = small_model(score=0.47)
    seeds = [seed(1), seed(2), seed(3)]
    found = ours(TorchSam2(TorchRuntime(model, write_bundle(model, tmp_path))), seeds)
    assert largest_difference(found, theirs(model, seeds)) < 1e-6
    tracked = [[by_id[i].visible for by_id in list(found.values())[1:]] for i in (1, 2, 3)]
    assert any(True in row[row.index(False) :] for row in tracked if False in row), "some object must come back"
    hidden = [one for by_id in found.values() for one in by_id.values() if not one.visible]
    assert all(np.all(one.logits_hw == -1024) for one in hidden)


def test_clicks_on_two_points_use_the_single_mask_token(model: Sam2VideoModel, bundle: Bundle) -> None:
    """The case above is only worth its name if the clicked frame showed another mask than candidate 0."""
    seeds, _, _ = CASES["two clicks in one seed"]
    found = ours(TorchSam2(TorchRuntime(model, bundle)), seeds, count=1)
    assert found[0][1].candidate != 0


def test_a_stream_equals_the_streaming_reference(model: Sam2VideoModel, bundle: Bundle) -> None:
    """Frames of the decoder's own size, so that its logits are not upsampled and masks compare pixel by pixel."""
    side = SIDE // 4
    frames = moving_frames(COUNT, height=side, width=side)
    seeds = [_on(side, seed(1)), _on(side, seed(1, frame=8))]
    sam2 = TorchSam2(TorchRuntime(model, with_slots(bundle, 2, 8)))
    loop = Reference(model)
    found = list(label_video(iter(frames), seeds, sam2))
    assert [index for index, _ in found] == list(range(COUNT))
    for (index, (one,)), frame in zip(found, inputs(side=side), strict=True):
        if here := [each for each in seeds if each.frame == index]:
            loop.add(here, height=side, width=side)
        logits, score = loop.next(frame)[1]
        assert np.array_equal(masks.decode(dict(one.rle)), logits > 0)
        assert one.object_score == pytest.approx(score, abs=1e-6)


def _on(side: int, one: Seed) -> Seed:
    points = tuple(Point(point.x * side / SIDE, point.y * side / SIDE, point.positive) for point in one.points)
    return Seed(one.object_id, points, frame=one.frame)


@pytest.mark.parametrize("slots", [(7,), (8,)])
def test_the_smallest_graph_equals_larger_ones(slots: tuple[int, ...], model: Sam2VideoModel, bundle: Bundle) -> None:
    """The torch runtime leaves masked keys out, so this compares what the banks hand over; graphs: test_track."""
    count = 6
    small, large = (TorchRuntime(model, with_slots(bundle, *which)) for which in ((2, 7), slots))
    found, same = (ours(TorchSam2(runtime), [seed(1)], count=count) for runtime in (small, large))
    assert small.runs["memcond2"] == 2
    assert large.runs["memcond2"] == 0
    for t in range(count):
        assert np.array_equal(found[t][1].logits_hw, same[t][1].logits_hw)


def test_bfloat16_memory_is_a_small_difference(model: Sam2VideoModel, one_object: Results) -> None:
    """The reference rounds memories to bfloat16, we do not.

    With logits of -1..1 the first tracked frame changes by 0.003 and not in a pixel. These random weights then amplify
    it to 0.2 and 2% of the pixels over 20 frames, as they would any last digit.
    """
    loop = Reference(model, inputs(), bfloat16_memory=True)
    loop.click([seed(1)], **SIZE)
    rounded = loop.propagate(start=0)
    change, pixels = differences(rounded, one_object)
    assert change[0] == 0
    assert 1e-5 < change[1] < 0.01
    assert pixels[1] < 0.005
    assert max(pixels) < 0.05


def test_binarised_neighbours_are_a_small_difference(model: Sam2VideoModel) -> None:
    """A click on object 2 makes the streaming reference remember a hard mask of object 1 on that frame; we do not.

    Offline the reference tracks object 1 on that frame again, so that there the difference does not exist. Here the
    next frame's logits of -1..1 change by 0.1, and 4% of its pixels.
    """
    loop, alone = Reference(model), Reference(model)
    together: Results = {}
    apart: Results = {}
    for t, frame in enumerate(inputs()):
        if t == 0:
            loop.add([seed(1)], **SIZE)
            alone.add([seed(1)], **SIZE)
        if t == 8:
            loop.add([seed(2, frame=8)], **SIZE)
        together[t], apart[t] = loop.next(frame), alone.next(frame)
    change, pixels = differences(together, apart)
    assert max(change[:9]) == 0
    assert 0.01 < change[9] < 0.3
    assert max(pixels) < 0.1


def differences(found: Results, wanted: Results) -> tuple[list[float], list[float]]:
    """Of object 1, per frame: largest change of a logit, share of pixels that change sides."""
    pairs = [(found[t][1][0], wanted[t][1][0]) for t in wanted]
    return (
        [float(np.abs(a - b).max()) for a, b in pairs],
        [float(np.mean((a > 0) != (b > 0))) for a, b in pairs],
    )


def _rows_reversed(layout: memory.MemoryLayout, *rest: Any) -> memory.MemoryInputs:
    return _assemble(replace(layout, temporal=layout.temporal[::-1]), *rest)


_assemble = memory._assemble
_memory_mask = track.memory_mask
MISTAKES: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "temporal rows in the wrong order": (memory, "_assemble", _rows_reversed),
    "no pointers": (memory, "_assemble", lambda layout, slots, _: _assemble(layout, slots, [])),
    "cosines before sines": (memory, "sine", lambda away, *, channels: np.roll(_sine(away, channels=channels), 128, 1)),
    "soft mask after a click": (
        track,
        "memory_mask",
        lambda logits, **how: _memory_mask(logits, **how | {"clicked": 0}),
    ),
    "hard mask after tracking": (
        track,
        "memory_mask",
        lambda logits, **how: _memory_mask(logits, **how | {"clicked": 1}),
    ),
}
_sine = memory.sine


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_comparison_notices_a_mistake(
    mistake: str, model: Sam2VideoModel, bundle: Bundle, one_object: Results
) -> None:
    place, name, wrong = MISTAKES[mistake]
    with patch.object(place, name, wrong):
        found = ours(TorchSam2(TorchRuntime(model, bundle)), [seed(1)], count=4)
    assert largest_difference(found, {t: one_object[t] for t in range(4)}) > 1e-4
