"""Tracking J on the rendered clips of examples/: one click on the first frame, against what needs no memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from labeler import masks, prompts
from labeler.clip import Clip
from labeler.memory import Entry, MemoryBank
from labeler.sam2 import Sam2
from labeler.segment import decide
from labeler.track import ABSENT, memory_layout, memory_mask
from labeler.types import Array, Features, Mask, Point, Rgb, Seed
from models.recipe.baselines import iou
from models.recipe.sets import deepest, examples

HEIGHT, WIDTH = 240, 320
NAMES = ("tracked", "tracked_from_true", "repeat_own", "repeat_true", "click_each_frame")


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    """A rendered clip as the labeler reads one."""

    frames: tuple[Rgb, ...]
    labels: tuple[np.ndarray, ...]
    height: int = HEIGHT
    width: int = WIDTH

    def __len__(self) -> int:
        return len(self.frames)

    def read(self, indices: range) -> Iterator[Rgb]:
        return (self.frames[i] for i in indices)


def tracking(model: Sam2, *, clips: int, frames: int) -> dict[str, dict[str, float]]:
    """Mean J over frames 1.. of every object, by kind of clip and over all; `clips` of each kind.

    J is the IoU of a frame's mask with the true one, 1 where both are empty.
    """
    rows: dict[str, list[dict[str, float]]] = {}
    for kind in examples().KINDS:
        for seed in range(clips):
            pairs = list(examples().render_clip(kind, 700 + seed, frames, HEIGHT, WIDTH))
            clip = _Loaded(tuple(rgb for rgb, _ in pairs), tuple(labels for _, labels in pairs))
            rows.setdefault(kind, []).extend(_objects(model, clip))
    rows["all"] = [row for kind in list(rows) for row in rows[kind]]
    return {kind: {n: float(np.mean([row[n] for row in each])) for n in each[0]} for kind, each in rows.items()}


def _objects(model: Sam2, clip: _Loaded) -> Iterator[dict[str, float]]:
    numbers = [int(n) for n in np.unique(clip.labels[0]) if n]
    truth = {n: [labels == n for labels in clip.labels] for n in numbers}
    seeds = [Seed(n, (deepest(truth[n][0]),)) for n in numbers]
    tracked: dict[int, list[Mask]] = {n: [] for n in numbers}
    visible: dict[int, list[bool]] = {n: [] for n in numbers}
    for _, results in Clip(model, clip, seeds):
        for one in results:
            tracked[one.seed.object_id].append(_full(one.logits_hw))
            visible[one.seed.object_id].append(one.visible)
    features = [model.encode(rgb) for rgb in clip.frames]
    for seed in seeds:
        true, own = truth[seed.object_id], tracked[seed.object_id]
        each_frame = [_clicked(model, f, seed.points[0]) for f in features]
        from_true = [own[0], *_follow_true(model, features, true[0], seed)]
        every = (own, from_true, [own[0]] * len(true), [true[0]] * len(true), each_frame)
        row = {name: _mean(answers, true) for name, answers in zip(NAMES, every, strict=True)}
        said = visible[seed.object_id]
        right = [shown == bool(mask.any()) for shown, mask in zip(said[1:], true[1:], strict=True)]
        yield row | {"visible_right": float(np.mean(right))}


def _mean(answers: list[Mask], true: list[Mask]) -> float:
    return float(np.mean([iou(a, b) for a, b in zip(answers[1:], true[1:], strict=True)]))


def _clicked(model: Sam2, features: Features, point: Point) -> Mask:
    candidates, candidate, _ = decide(features, Seed(1, (point,)), model, height=HEIGHT, width=WIDTH)
    return _full(candidates.logits_nhw[candidate])


def _follow_true(model: Sam2, features: list[Features], mask: Mask, seed: Seed) -> Iterator[Mask]:
    """The tracker's loop with the first mask given: what memory alone is worth."""
    bundle = model.runtime.bundle
    bank = MemoryBank(memory_layout(bundle))
    side_h, side_w = bundle.graphs["memorize"].input("mask").shape
    low = masks.upsample(np.where(mask, np.float32(10), np.float32(-10)), height=side_h, width=side_w)
    prompt = model.prompt(seed.points, height=HEIGHT, width=WIDTH)
    first = model.decode(features[0], prompt)
    pointer = first.pointers_nc[prompts.choose(first, ambiguous=True).candidate].copy()
    bank.condition(
        0, Entry(model.memorize(features[0], np.where(low > 0, 10, -10).astype(np.float32), occluded=False), pointer)
    )
    for frame, each in enumerate(features[1:], 1):
        found = model.decode(each, model.no_prompt(), pix=model.recall(each, bank.inputs(frame)))
        choice = prompts.choose(found, ambiguous=True).candidate
        visible = found.object_score > 0
        logits = found.logits_nhw[choice].copy() if visible else np.full_like(found.logits_nhw[0], ABSENT)
        memory = model.memorize(
            each, memory_mask(logits, height=side_h, width=side_w, clicked=False), occluded=not visible
        )
        bank.remember(frame, Entry(memory, found.pointers_nc[choice] * visible))
        yield _full(logits)


def _full(logits_hw: Array) -> Mask:
    return masks.upsample(logits_hw, height=HEIGHT, width=WIDTH) > 0
