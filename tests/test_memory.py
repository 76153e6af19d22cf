"""The memory bank: which frames it hands over, in which rows, and that it stays small."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Sam2VideoModel
from transformers.models.sam2_video.modeling_sam2_video import get_1d_sine_pe

from labeler.memory import Entry, MemoryBank, MemoryInputs, MemoryLayout, choose_conditioning, sine
from labeler.types import Array

TOKENS, CHANNELS, SPLIT = 3, 4, 2
LAYOUT = MemoryLayout(
    slots=(2, 7),
    tokens=TOKENS,
    channels=CHANNELS,
    pointer_tokens=16 * SPLIT,
    temporal=np.repeat(np.arange(1.0, 8.0), CHANNELS).reshape(7, CHANNELS),
    time_weight=np.zeros((CHANNELS, SPLIT * CHANNELS)),
    time_bias=np.zeros(CHANNELS),
)
"""Row i of the temporal table holds i + 1; pointer positions are all 0."""


def entry(frame: int, dtype: type = np.float64) -> Entry:
    """An entry that shows which frame it is of."""
    return Entry(np.full((TOKENS, CHANNELS), frame, dtype), np.full(SPLIT * CHANNELS, frame, dtype))


def filled(
    clicked: tuple[int, ...], tracked: range | tuple[int, ...] = (), layout: MemoryLayout = LAYOUT
) -> MemoryBank:
    bank = MemoryBank(layout)
    for frame in clicked:
        bank.condition(frame, entry(frame))
    for frame in tracked:
        bank.remember(frame, entry(frame))
    return bank


def slots(inputs: MemoryInputs) -> list[tuple[int, int]]:
    """(frame, temporal row counted from 1) of each slot that is not masked."""
    keys = inputs.key_mask[: inputs.slots * TOKENS].reshape(inputs.slots, TOKENS)
    used = int((keys[:, 0] == 0).sum())
    assert np.array_equal(keys, np.where(np.arange(inputs.slots) < used, 0, -1e9)[:, None].repeat(TOKENS, 1))
    assert not inputs.memory[used:].any()
    return [(int(inputs.memory[i, 0, 0]), int(inputs.temporal[i, 0])) for i in range(used)]


def pointers(inputs: MemoryInputs) -> list[int]:
    """The frame of each pointer that is not masked."""
    keys = inputs.key_mask[inputs.slots * TOKENS :]
    used = int((keys == 0).sum())
    assert np.array_equal(keys, np.where(np.arange(len(keys)) < used, 0, -1e9))
    assert not inputs.pointers[used:].any()
    return inputs.pointers[:used:SPLIT, 0].astype(int).tolist()


def test_one_click_and_a_full_window() -> None:
    inputs = filled((0,), range(1, 20)).inputs(20)
    assert inputs.slots == 7
    assert slots(inputs) == [(0, 7), (14, 6), (15, 5), (16, 4), (17, 3), (18, 2), (19, 1)]
    assert pointers(inputs) == [0, *range(19, 4, -1)]


def test_the_smallest_graph_that_holds_the_filled_slots() -> None:
    assert [filled((0,), range(1, t)).inputs(t).slots for t in range(1, 10)] == [2, 2, 7, 7, 7, 7, 7, 7, 7]


def test_in_reverse_the_later_frames_are_behind() -> None:
    inputs = filled((30,), range(29, 10, -1)).inputs(10, reverse=True)
    assert slots(inputs) == [(30, 7), (16, 6), (15, 5), (14, 4), (13, 3), (12, 2), (11, 1)]
    assert pointers(inputs) == [30, *range(11, 26)]


def test_a_click_inside_the_window_takes_no_recent_slot() -> None:
    """As in the reference: a clicked frame is not among the tracked ones, and nothing moves up into its place."""
    inputs = filled((0, 8), (*range(1, 8), 9, 10)).inputs(11)
    assert slots(inputs) == [(0, 7), (8, 7), (5, 6), (6, 5), (7, 4), (9, 2), (10, 1)]
    assert pointers(inputs) == [8, 0, 10, 9, *range(7, 0, -1)]


def test_a_later_click_serves_earlier_frames_but_its_pointer_does_not() -> None:
    inputs = filled((0, 30), range(1, 5)).inputs(5)
    assert slots(inputs) == [(0, 7), (30, 7), (1, 4), (2, 3), (3, 2), (4, 1)]
    assert pointers(inputs) == [0, 4, 3, 2, 1]


def test_several_clicks_leave_the_rest_to_the_newest_frames() -> None:
    inputs = filled((0, 10, 40), range(11, 30)).inputs(30)
    assert slots(inputs) == [(0, 7), (10, 7), (40, 7), (26, 4), (27, 3), (28, 2), (29, 1)]


def test_many_clicks_leave_one_slot_to_the_past_and_the_left_out_may_fill_it() -> None:
    clicked = (0, 2, 4, 6, 8, 10, 12, 14)
    inputs = filled(clicked, (9,)).inputs(11)
    assert slots(inputs) == [(4, 7), (6, 7), (8, 7), (10, 7), (12, 7), (14, 7), (9, 2)]
    assert pointers(inputs) == [10, 8, 6, 4, 9, 2, 0], "0 and 2 are left out as conditioning, and near enough"


@pytest.mark.parametrize(("reverse", "expected"), [(False, 0), (True, 20)])
def test_two_slots_take_the_click_behind(reverse: bool, expected: int) -> None:
    inputs = filled((0, 20), (9,) if not reverse else (11,), replace(LAYOUT, slots=(2,))).inputs(10, reverse=reverse)
    assert slots(inputs) == [(expected, 7), (11 if reverse else 9, 1)]


def test_one_slot_takes_the_nearest_click_only() -> None:
    assert slots(filled((0, 4), range(5, 9), replace(LAYOUT, slots=(1,))).inputs(9)) == [(4, 7)]


def test_conditioning_pointers_come_before_recent_ones_when_both_do_not_fit() -> None:
    assert pointers(filled((0, 1), range(2, 30)).inputs(30)) == [1, 0, *range(29, 15, -1)]


def test_positions_are_the_projected_sine_of_time() -> None:
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(CHANNELS, SPLIT * CHANNELS)), rng.normal(size=CHANNELS)
    bank = filled((0,), (5, 6), replace(LAYOUT, time_weight=weight, time_bias=bias))
    away = torch.tensor([7, 1, 2]) / 15
    expected = get_1d_sine_pe(away, SPLIT * CHANNELS).double().numpy() @ weight.T + bias
    found = bank.inputs(7).pointer_positions
    assert np.allclose(found[: 3 * SPLIT], expected.repeat(SPLIT, 0), atol=1e-6)


@settings(deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=20), st.sampled_from([4, 64, 256]))
def test_sine_equals_the_reference(times: list[float], channels: int) -> None:
    expected = get_1d_sine_pe(torch.tensor(times), channels).numpy()
    assert np.allclose(sine(np.array(times), channels=channels), expected, atol=1e-6)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 60), unique=True, min_size=1, max_size=15),
    st.integers(0, 60),
    st.integers(2, 8),
    st.booleans(),
)
def test_conditioning_frames_equal_the_reference(clicked: list[int], frame: int, most: int, reverse: bool) -> None:
    clicked = [t for t in clicked if t != frame]
    selected, _ = Sam2VideoModel._select_closest_cond_frames(None, frame, dict.fromkeys(clicked), most)
    assert set(choose_conditioning(frame, clicked, most=most, reverse=reverse)) == set(selected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_that_of_the_entries(dtype: type) -> None:
    bank = MemoryBank(LAYOUT)
    bank.condition(0, entry(0, dtype))
    inputs = bank.inputs(1)
    arrays = (inputs.memory, inputs.temporal, inputs.pointers, inputs.pointer_positions, inputs.key_mask)
    assert {array.dtype for array in arrays} == {np.dtype(dtype)}


def test_arrays_are_new_with_every_call() -> None:
    """A runtime does not copy an array again that it was handed before."""
    bank = filled((0,), (1,))
    first, second = bank.inputs(2), bank.inputs(2)
    assert not np.shares_memory(first.memory, second.memory)
    assert not np.shares_memory(first.key_mask, second.key_mask)


def test_a_bank_stays_small() -> None:
    short, long = (sum(array.nbytes for array in filled((0,), range(1, n)).snapshot().values()) for n in (20, 20_000))
    assert short == long


def test_forgetting_keeps_the_clicks() -> None:
    bank = filled((0, 9), range(1, 9))
    bank.forget_recent()
    inputs = bank.inputs(5)
    assert slots(inputs) == [(0, 7), (9, 7)]
    assert pointers(inputs) == [0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tracked", [0, 3, 40])
def test_a_snapshot_gives_back_the_same_bits(tracked: int, dtype: type) -> None:
    rng = np.random.default_rng(tracked)
    make = lambda: Entry(  # noqa: E731
        rng.normal(size=(TOKENS, CHANNELS)).astype(dtype), rng.normal(size=SPLIT * CHANNELS).astype(dtype)
    )
    bank = MemoryBank(LAYOUT)
    for frame in (0, 50):
        bank.condition(frame, make())
    for frame in range(1, tracked + 1):
        bank.remember(frame, make())
    file = io.BytesIO()
    np.savez(file, **bank.snapshot())
    file.seek(0)
    restored = MemoryBank.restore(LAYOUT, np.load(file))
    assert same_bits(restored.inputs(tracked + 1), bank.inputs(tracked + 1))
    later = make()
    for each in (bank, restored):
        each.remember(tracked + 1, later)
    assert same_bits(restored.inputs(tracked + 2), bank.inputs(tracked + 2))


def same_bits(one: MemoryInputs, other: MemoryInputs) -> bool:
    names = ("memory", "temporal", "pointers", "pointer_positions", "key_mask")
    pairs: list[tuple[Array, Array]] = [(getattr(one, name), getattr(other, name)) for name in names]
    return one.slots == other.slots and all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)
