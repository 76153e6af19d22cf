"""Which frames a clip is walked over, and who is wanted there."""

from __future__ import annotations

import pytest

from labeler.errors import SeedError
from labeler.passes import Direction, by_place, plan
from labeler.types import Point, Seed

CLICKS = [(2, 1), (7, 1), (5, 2)]
"""(frame, object id): object 1 on frames 2 and 7, object 2 on frame 5; the clip has 9 frames."""


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        ("forward", {2: [1], 3: [1], 4: [1], 5: [1, 2], 6: [1, 2], 7: [1, 2], 8: [1, 2]}),
        ("backward", {7: [1], 6: [1], 5: [1, 2], 4: [1, 2], 3: [1, 2], 2: [1, 2], 1: [1, 2], 0: [1, 2]}),
    ],
)
def test_one_direction(direction: Direction, expected: dict[int, list[int]]) -> None:
    (walk,) = plan(CLICKS, direction=direction, count=9)
    assert {index: walk.wanted(index) for index in walk.indices} == expected
    assert list(walk.indices) == list(expected)
    assert walk.reverse == (direction == "backward")


def test_both_directions_give_every_object_on_every_frame_once() -> None:
    walks = plan(CLICKS, direction="both", count=9)
    assert [walk.reverse for walk in walks] == [False, True]
    found = sorted((index, i) for walk in walks for index in walk.indices for i in walk.wanted(index))
    assert found == [(index, i) for index in range(9) for i in (1, 2)]
    assert list(walks[1].indices) == [4, 3, 2, 1, 0]
    assert walks[1].wanted(3) == [2]


def test_no_clicks_no_passes() -> None:
    assert plan([], direction="both", count=5) == []


def test_clicks_on_the_first_frame_leave_nothing_behind() -> None:
    _, back = plan([(0, 1), (0, 2)], direction="both", count=5)
    assert list(back.indices) == []


def test_all_faulty_seeds_are_listed() -> None:
    click = (Point(1, 1),)
    seeds = [Seed(1, click), Seed(1, click), Seed(2, click, frame=9), Seed(3, click, frame=8)]
    with pytest.raises(SeedError) as caught:
        by_place(seeds, count=9)
    assert caught.value.faults == (
        "object 1: has two seeds on frame 0; put their points into one",
        "object 2: frame 9 is outside the clip's 9 frames",
    )
