"""A clip at full size through LiteRT beside the loop of transformers in PyTorch, both in float32, frame by frame."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import standin
from fullsize import Export
from torch_runtime import ArrayFrames, Reference, with_slots

from labeler import bundle as bundles
from labeler import preprocess
from labeler.clip import Clip
from labeler.runtime import LiteRtRuntime
from labeler.sam2 import Sam2
from labeler.types import Array, Point, Rgb, Seed
from labeler.workers import usable_cores

pytestmark = pytest.mark.slow

COUNT = 10
"""Frames compared: with the seventh and later ones the bank is full."""
LENGTH = 16
"""Frames of the clip: the reference measures a pointer's distance in time by the length of shorter ones."""
HEIGHT, WIDTH = 720, 1280
SEED = Seed(1, (Point(500, 300),))

Results = Mapping[int, tuple[Array, float]]
"""Logits [256, 256] and object score per frame."""


@pytest.fixture(scope="module")
def frames() -> list[Rgb]:
    """A window that moves over a scene."""
    scene = standin.picture(HEIGHT + 6 * LENGTH, WIDTH + 12 * LENGTH, seed=4)
    return [np.ascontiguousarray(scene[6 * t :, 12 * t :][:HEIGHT, :WIDTH]) for t in range(LENGTH)]


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Any:
    from transformers import Sam2VideoModel

    return Sam2VideoModel.from_pretrained(checkpoint).eval()


@pytest.fixture(scope="module")
def reference(model: Any, frames: Sequence[Rgb]) -> Results:
    return theirs(model, frames)


@pytest.fixture(scope="module")
def exactly(fp32: Export, frames: Sequence[Rgb]) -> Results:
    """Ours with the fp32 bundle."""
    return ours(bundles.load(fp32.folder), frames)


def theirs(model: Any, frames: Sequence[Rgb], *, count: int = COUNT, bfloat16_memory: bool = False) -> Results:
    side = model.config.image_size
    inputs = [preprocess.model_input(rgb, height=side, width=side) for rgb in frames]
    loop = Reference(model, inputs, bfloat16_memory=bfloat16_memory)
    loop.click([SEED], height=HEIGHT, width=WIDTH)
    return {frame: by_id[SEED.object_id] for frame, by_id in loop.propagate(start=0, count=count).items()}


def ours(bundle: bundles.Bundle, frames: Sequence[Rgb], *, count: int = COUNT, memory: int | None = None) -> Results:
    runtime = LiteRtRuntime(bundle, threads=usable_cores())
    clip = Clip(Sam2(runtime), ArrayFrames(frames[:count]), [SEED], memory=memory)
    found = {frame: (one.logits_hw, one.object_score) for frame, (one,) in clip}
    runtime.close()
    return found


def compare(name: str, found: Results, wanted: Results) -> tuple[list[float], list[float]]:
    """Mask IoU and difference of the object score per frame, which are printed too."""
    assert list(found) == list(wanted)[: len(found)]
    pairs = [(found[t], wanted[t]) for t in found]
    ious = [iou(a[0] > 0, b[0] > 0) for a, b in pairs]
    scores = [abs(a[1] - b[1]) for a, b in pairs]
    sys.stdout.write(f"{name}: IoU {told(ious, '.5f')}; object score within {told(scores, '.1e')}\n")
    return ious, scores


def iou(mask: Any, other: Any) -> float:
    return float((mask & other).sum() / (mask | other).sum())


def told(values: Sequence[float], form: str) -> str:
    return " ".join(format(value, form) for value in values)


def test_an_fp32_clip_equals_the_reference_on_every_frame(exactly: Results, reference: Results) -> None:
    ious, scores = compare("fp32", exactly, reference)
    assert len(ious) == COUNT
    assert min(ious) >= 0.998
    assert max(scores) <= 0.001


def test_the_reference_gives_masks_that_can_be_compared(reference: Results) -> None:
    """Neither empty nor full, of a visible object, and not the same on all frames."""
    areas = [float(np.mean(logits > 0)) for logits, _ in reference.values()]
    assert min(areas) > 0.02
    assert max(areas) < 0.98
    assert min(score for _, score in reference.values()) > 0
    assert iou(reference[0][0] > 0, reference[COUNT - 1][0] > 0) < 0.9


def test_a_smaller_bank_would_be_noticed(fp32: Export, frames: Sequence[Rgb], reference: Results) -> None:
    """Else equal masks would say nothing about seven memories."""
    ious, _ = compare("fp32, two memories", ours(bundles.load(fp32.folder), frames, memory=2), reference)
    assert min(ious[:3]) >= 0.998
    assert max(ious[3:]) < 0.995


def test_an_fp16_clip_is_near_the_reference(fp16: Export, frames: Sequence[Rgb], reference: Results) -> None:
    """Weights rounded to fp16 are a slightly other model, and memory adds up what it does differently."""
    ious, scores = compare("fp16", ours(bundles.load(fp16.folder), frames), reference)
    assert ious[0] >= 0.999
    assert min(ious) >= 0.99
    assert max(scores) <= 0.01


def test_bfloat16_memory_is_a_small_difference(model: Any, frames: Sequence[Rgb], reference: Results) -> None:
    """The reference rounds memories to bfloat16, we do not: here this is switched on."""
    rounded = theirs(model, frames, count=4, bfloat16_memory=True)
    ious, scores = compare("bfloat16 memory", rounded, reference)
    assert ious[0] == 1
    assert 0.99 <= min(ious) < 1
    assert max(scores) <= 0.001


def test_the_graph_of_two_memories_equals_that_of_seven(fp32: Export, frames: Sequence[Rgb], exactly: Results) -> None:
    """To rounding, and the sums are of other lengths. Both have the filled slots only to attend to."""
    large = ours(with_slots(bundles.load(fp32.folder), 7), frames, count=3)
    for frame, (logits, score) in large.items():
        assert np.abs(logits - exactly[frame][0]).max() <= 1e-3 * np.abs(logits).max()
        assert abs(score - exactly[frame][1]) <= 1e-3
