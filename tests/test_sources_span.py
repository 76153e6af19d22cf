"""Which frames are meant by frames, seconds and strides."""

from __future__ import annotations

import math

import pytest

from labeler.errors import SeedError, SourceError, UsageError
from labeler.sources.span import Place, frame_at, frame_range, parse_place

TIMES = (0.0, 0.04, 0.08, 0.4, 0.42, 0.9)
THIRDS = tuple(index / 30 for index in range(30))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("0", Place(frame=0)),
        ("12", Place(frame=12)),
        ("3.5s", Place(seconds=3.5)),
        (" 3 s", Place(seconds=3.0)),
        (".5s", Place(seconds=0.5)),
        ("0s", Place(seconds=0.0)),
    ],
)
def test_places(text: str, place: Place) -> None:
    assert parse_place(text, option="--start") == place


@pytest.mark.parametrize("text", ["", "-1", "3.5", "s", "1e3s", "nans", "infs", "1:20", "12f", "٣", "3 5s", "+1"])
def test_what_is_no_place_names_its_option(text: str) -> None:
    with pytest.raises(UsageError, match=r"--end: .* is neither a frame"):
        parse_place(text, option="--end")


@pytest.mark.parametrize(
    ("start", "end", "stride", "frames"),
    [
        (None, None, 1, [0, 1, 2, 3, 4, 5]),
        ("2", "5", 1, [2, 3, 4]),
        ("1", None, 2, [1, 3, 5]),
        ("0.08s", "0.9s", 1, [2, 3, 4]),
        ("0.05s", "0.41s", 1, [2, 3]),
        ("3", "0.9s", 1, [3, 4]),
        (None, "99", 5, [0, 5]),
        (None, "99s", 4, [0, 4]),
    ],
)
def test_ranges(start: str | None, end: str | None, stride: int, frames: list[int]) -> None:
    places = [text and parse_place(text, option="--start") for text in (start, end)]
    assert list(frame_range(TIMES, start=places[0] or None, end=places[1] or None, stride=stride)) == frames


def test_a_written_time_means_the_frame_it_was_written_for() -> None:
    for index, time in enumerate(THIRDS):
        place = Place(seconds=float(f"{time:.3f}"))
        assert frame_range(THIRDS, start=place, end=None, stride=1)[0] == index
        assert frame_at(THIRDS, float(f"{time:.3f}")) == index
        assert frame_at(THIRDS, time + 0.03) == index


@pytest.mark.parametrize(("start", "end"), [(Place(6), None), (Place(3), Place(3)), (Place(seconds=1.0), None)])
def test_a_range_without_a_frame_is_this_clips_fault(start: Place, end: Place | None) -> None:
    with pytest.raises(SourceError, match="no frame lies between --start and --end: the clip has 6"):
        frame_range(TIMES, start=start, end=end, stride=1)


def test_strides_and_clips_without_times() -> None:
    with pytest.raises(UsageError, match="--stride"):
        frame_range(TIMES, start=None, end=None, stride=0)
    with pytest.raises(SourceError, match="no times"):
        frame_range((None, None), start=Place(seconds=1.0), end=None, stride=1)
    with pytest.raises(SourceError, match="no times"):
        frame_at((None, None), 0.0)


@pytest.mark.parametrize(
    ("time_s", "frame"), [(0.0, 0), (0.039, 1), (0.0399, 1), (0.038, 0), (0.3, 2), (0.9, 5), (1.3, 5)]
)
def test_the_frame_on_show_at_a_time(time_s: float, frame: int) -> None:
    assert frame_at(TIMES, time_s) == frame


@pytest.mark.parametrize("time_s", [-0.01, 1.5, math.nan, math.inf])
def test_a_time_outside_the_clip_is_a_fault_of_the_seed(time_s: float) -> None:
    with pytest.raises(SeedError, match=r"outside the clip, whose frames begin at 0 to 0\.9 s"):
        frame_at(TIMES, time_s)
