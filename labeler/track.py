"""Follow objects from frame to frame: one step for a clicked frame, one for a tracked frame.

Mirrors `Sam2VideoModel.forward` of transformers (checked against it in tests), with two intended differences: a
memory keeps the precision of the runtime instead of bfloat16, and a click on one object does not binarise the memory
of others on that frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from labeler import masks, prompts
from labeler.annotate import annotation
from labeler.bundle import Bundle, read_constant
from labeler.errors import BundleError, UsageError
from labeler.memory import Entry, MemoryBank, MemoryLayout
from labeler.sam2 import Sam2
from labeler.segment import decide
from labeler.types import Annotation, Array, Candidates, Features, Seed

ABSENT = -1024.0
"""Logit of every pixel of an object that is not on the frame (`NO_OBJ_SCORE`)."""
MEMORY_SCALE = 10.0
"""Masks enter memory as values in -10..10 (`sigmoid_scale_for_mem_enc` 20, `sigmoid_bias_for_mem_enc` -10)."""


@dataclass(frozen=True, slots=True, eq=False)
class Tracked:
    """One object on one frame."""

    seed: Seed
    """The seed that was clicked on this frame, or else the object's first one."""
    frame: int
    prompted: bool
    logits_hw: Array
    """[256, 256]; -1024 everywhere if the object is not visible."""
    iou_n: Array
    candidate: int
    rule: str
    object_score: float

    @property
    def visible(self) -> bool:
        return self.object_score > 0


class Tracker:
    """The memory banks of some objects, and the steps that fill them. `memory`: slots of the largest memory graph.

    Raises BundleError if the bundle cannot track, UsageError if it has no graph of `memory` slots or `model` was loaded
    for pictures.
    """

    def __init__(self, model: Sam2, *, memory: int | None = None) -> None:
        bundle = model.runtime.bundle
        if (model.encode_role, model.decode_role) != ("encode", "decode"):
            raise UsageError('model: was loaded for pictures; load it with task="videos"')
        self._model = model
        self._layout = memory_layout(bundle, memory=memory)
        self._mask_height, self._mask_width = bundle.graphs["memorize"].input("mask").shape
        self._no_object = read_constant(bundle, "no_object_pointer")["no_object_pointer"]
        self._no_prompt = model.no_prompt()
        self._banks: dict[int, MemoryBank] = {}

    def click(self, seed: Seed, features: Features, *, height: int, width: int) -> Tracked:
        """Answer a seed on its frame, upright and of `height` x `width`, without any memory, and remember it."""
        candidates, candidate, rule = decide(features, seed, self._model, height=height, width=width)
        tracked = _tracked(candidates, candidate, rule, seed=seed, frame=seed.frame, prompted=True)
        # Candidate 0 is what several clicks ask for: its token makes the pointer even when another mask is shown.
        token = 0 if rule == prompts.UNSTABLE else candidate
        self._bank(seed.object_id).condition(seed.frame, self._entry(tracked, features, candidates, token))
        return tracked

    def follow(self, seed: Seed, frame: int, features: Features, *, reverse: bool = False) -> Tracked:
        """Find the object of `seed`, an earlier click, on a frame that nobody clicked, and remember it.

        `reverse`: frames are visited from the last to the first.
        """
        bank = self._bank(seed.object_id)
        pix = self._model.recall(features, bank.inputs(frame, reverse=reverse))
        candidates = self._model.decode(features, self._no_prompt, pix=pix)
        choice = prompts.choose(candidates, ambiguous=True)
        tracked = _tracked(candidates, choice.candidate, choice.rule, seed=seed, frame=frame, prompted=False)
        bank.remember(frame, self._entry(tracked, features, candidates, choice.candidate))
        return tracked

    def forget_recent(self) -> None:
        """Keep the clicked frames only: the next frame starts a new direction."""
        for bank in self._banks.values():
            bank.forget_recent()

    def snapshot(self) -> dict[str, Array]:
        """All banks as arrays that `numpy.savez` takes, keyed `<object id>.<array>`."""
        return {
            f"{object_id}.{name}": array
            for object_id, bank in self._banks.items()
            for name, array in bank.snapshot().items()
        }

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Continue from a snapshot of a tracker of the same model and `memory`."""
        by_object: dict[int, dict[str, Array]] = {}
        for key, array in arrays.items():
            object_id, _, name = key.partition(".")
            by_object.setdefault(int(object_id), {})[name] = array
        self._banks = {object_id: MemoryBank.restore(self._layout, bank) for object_id, bank in by_object.items()}

    def _bank(self, object_id: int) -> MemoryBank:
        if object_id not in self._banks:
            self._banks[object_id] = MemoryBank(self._layout)
        return self._banks[object_id]

    def _entry(self, tracked: Tracked, features: Features, candidates: Candidates, token: int) -> Entry:
        assert candidates.pointers_nc is not None
        mask = memory_mask(
            tracked.logits_hw, height=self._mask_height, width=self._mask_width, clicked=tracked.prompted
        )
        memory = self._model.memorize(features, mask, occluded=not tracked.visible)
        pointer = candidates.pointers_nc[token] if tracked.visible else self._no_object
        return Entry(memory, pointer.astype(memory.dtype))  # astype copies: the decoder's whole output can go


def memory_layout(bundle: Bundle, *, memory: int | None = None) -> MemoryLayout:
    """Sizes and constants of a bundle's memory graphs of up to `memory` slots (None: all of them)."""
    scores = {"iou", "pointers", "object_score"}
    if not bundle.tracks or not all(bundle.graphs["decode"].has_output(name) for name in scores):
        raise BundleError(
            f"{bundle.folder}: cannot track clips; needs the graphs encode, decode (with scores), memcond and memorize"
        )
    slots = bundle.memory_slots
    if memory is not None and memory not in slots:
        raise UsageError(f"memory: {memory} slots wanted; {bundle.name} has {' or '.join(map(str, slots))}")
    graph = bundle.graphs[f"memcond{slots[0]}"]
    _, tokens, channels = graph.input("memory").shape
    time = read_constant(bundle, "pointer_time")
    return MemoryLayout(
        slots=tuple(count for count in slots if memory is None or count <= memory),
        tokens=tokens,
        channels=channels,
        pointer_tokens=graph.input("pointers").shape[0],
        temporal=read_constant(bundle, "temporal")["temporal"],
        time_weight=time["weight"],
        time_bias=time["bias"],
    )


def memory_mask(logits_hw: Array, *, height: int, width: int, clicked: bool) -> Array:
    """The mask as memory takes it, [height, width] in -10..10: hard after a click, soft after tracking."""
    high = masks.upsample(logits_hw, height=height, width=width)
    if clicked:
        scale = high.dtype.type(MEMORY_SCALE)
        return np.where(high > 0, scale, -scale)
    # 20 * sigmoid(x) - 10 is 10 * tanh(x / 2), which cannot overflow.
    high *= 0.5
    np.tanh(high, out=high)
    high *= MEMORY_SCALE
    return high


def as_annotations(tracked: Iterable[Tracked], *, height: int, width: int) -> tuple[Annotation, ...]:
    """JSON-ready annotations on an upright frame of `height` x `width`."""
    return tuple(
        annotation(
            Candidates(one.logits_hw[None], one.iou_n, None, one.object_score),
            one.candidate,
            rule=one.rule,
            seed=one.seed,
            height=height,
            width=width,
            frame=one.frame,
            prompted=one.prompted,
            logits_hw=one.logits_hw,
        )
        for one in tracked
    )


def _tracked(candidates: Candidates, candidate: int, rule: str, *, seed: Seed, frame: int, prompted: bool) -> Tracked:
    assert candidates.iou_n is not None
    assert candidates.object_score is not None
    shown = candidates.logits_nhw[candidate]
    return Tracked(
        seed=seed,
        frame=frame,
        prompted=prompted,
        logits_hw=shown.copy() if candidates.object_score > 0 else np.full_like(shown, ABSENT),
        iou_n=candidates.iou_n.copy(),
        candidate=candidate,
        rule=rule,
        object_score=candidates.object_score,
    )
