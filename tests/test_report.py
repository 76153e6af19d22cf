"""What the report counts, against journals whose content is known."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labels import HEIGHT, WIDTH, annotation, command, done, failed, rectangle, write

from labeler import report
from labeler.errors import UsageError
from labeler.journal import Header, Journal
from labeler.toplists import First, Most
from labeler.types import WHOLE_CLIP

NOTHING = np.zeros((HEIGHT, WIDTH), bool)
RUN = {"bundle": {"name": "mini", "version": "3"}, "unmatched": ["x.jpg", "y.jpg"], "unseeded": 4, "counts": {}}


def filled(folder: Path) -> Path:
    box = rectangle(4, 5, 10, 8, hole=True)
    return write(
        folder,
        [
            done("a.jpg", [annotation(box, points=((5.0, 6.0, 1), (9.0, 9.0, 1), (20.4, 6.0, 0)))], seconds=0.5),
            done(
                "b.jpg", [annotation(box, 1, predicted_iou=0.2), annotation(NOTHING, 2, predicted_iou=0.1)], seconds=2
            ),
            done("c.jpg", [annotation(box, 1, stability=0.3), annotation(box, 2, chosen=False, stability=0.1)]),
            done(
                "d.jpg",
                [annotation(box, category="cup", visible=False, object_score=-2.0)],
                notes=("first frame of 3",),
            ),
            failed("e.jpg", "is cut short"),
            done("f.jpg"),
        ],
        run=RUN,
    )


def test_pictures(tmp_path: Path) -> None:
    found = report.summarize(filled(tmp_path))
    assert (found.items, found.done, found.annotations) == (6, 5, 5)
    assert found.categories == {"cup": 1, "thing": 4}
    assert found.failures.shown == ({"key": "e.jpg", "error": "is cut short"},)
    assert found.notes.shown == ({"key": "d.jpg", "note": "first frame of 3"},)
    assert found.empty_masks.shown == ({"key": "b.jpg", "object_id": 2},)
    assert found.absent.shown == ({"key": "d.jpg", "object_id": 1, "object_score": -2.0},)
    assert [member["predicted_iou"] for member in found.lowest_predicted_iou] == [0.2, 0.9, 0.9, 0.9]
    assert [member["key"] for member in found.lowest_stability][:2] == ["c.jpg", "a.jpg"], "runners-up do not count"
    assert found.seeds_astray.shown == ({"key": "a.jpg", "object_id": 1, "point": (9.0, 9.0, 1)},)
    assert (found.unmatched.total, found.unseeded, found.bundle) == (2, 4, "mini 3")
    assert found.suspicious.total == 0


def test_timing(tmp_path: Path) -> None:
    seconds = [0.1 * i for i in range(1, 101)]
    write(tmp_path, [done(f"{i:03}.jpg", seconds=s) for i, s in enumerate(seconds)])
    timing = report.summarize(tmp_path, show=2).timing
    assert timing is not None
    assert (timing.total, timing.mean) == (pytest.approx(505.0), pytest.approx(5.05))
    assert (timing.median, timing.p95) == tuple(pytest.approx(q) for q in np.percentile(seconds, (50, 95)))
    assert [member["key"] for member in timing.slowest] == ["099.jpg", "098.jpg"]


@pytest.mark.parametrize(
    ("point", "astray"),
    [
        ((4, 5, 1), False),
        ((3.49, 5, 1), True),
        ((3.5, 5, 1), False),  # a whole coordinate is a pixel's centre
        ((13.49, 12.49, 1), False),
        ((13.5, 12, 1), True),
        ((9, 9, 0), False),  # in the hole
        ((4, 5, 0), True),
        ((WIDTH - 0.1, HEIGHT - 0.1, 0), False),
    ],
)
def test_points_astray(point: tuple[float, float, int], astray: bool) -> None:
    entry = annotation(rectangle(4, 5, 10, 8, hole=True), points=(point,))
    record = json.loads(json.dumps({"rle": dict(entry.rle), "points": entry.points}))
    assert bool(report.points_astray(record, height=HEIGHT, width=WIDTH)) == astray


def test_clips_have_absences_and_suspicions(tmp_path: Path) -> None:
    def frame(key: str, index: int, *annotations: Any) -> Any:
        return done(key, annotations, frame=index, time_s=index / 10)

    still = [
        frame("a.mp4", i, annotation(rectangle(4, 5, 6, 6)), annotation(rectangle(12, 5, 6, 6), 2)) for i in range(4)
    ]
    lost = frame(
        "a.mp4", 4, annotation(rectangle(4, 5, 6, 6)), annotation(NOTHING, 2, visible=False, object_score=-3.0)
    )
    other = frame("b.mp4", 0, annotation(rectangle(20, 9, 4, 4)))
    ends = [done("a.mp4", frame=WHOLE_CLIP, seconds=99), failed("b.mp4", "is damaged at frame 1", frame=WHOLE_CLIP)]
    killed = frame("c.mp4", 0, annotation(rectangle(20, 9, 4, 4)))
    found = report.summarize(write(tmp_path, [*still, lost, other, *ends, killed], kind="videos"))
    assert (found.kind, found.items, found.done, found.frames, found.annotations) == ("videos", 3, 1, 7, 11)
    assert found.failures.shown == ({"key": "b.mp4", "error": "is damaged at frame 1"},)
    assert found.unfinished.shown == ({"key": "c.mp4"},)
    assert found.timing is not None
    assert found.timing.total == pytest.approx(0.7)
    assert found.absent.shown == ({"key": "a.mp4", "frame": 4, "object_id": 2, "object_score": -3.0},)
    assert found.empty_masks.total == 0, "an absent object's mask is empty as it should be"
    assert found.suspicious.total == 1
    assert found.suspicious.shown[0] | {"reason": ""} == {"key": "a.mp4", "frame": 4, "object_id": 2, "reason": ""}
    text = command("report", tmp_path).stdout
    assert "3 clips: 1 done, 1 failed; 7 frames" in text
    assert "suspicious frames: 1" in text


def test_text_and_json_say_the_same(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    text = command("report", folder, "--show", 1).stdout
    for line in (
        "6 pictures: 5 done, 1 failed",
        "5 annotations: cup 1, thing 4",
        "failed: 1",
        "  e.jpg, is cut short",
        "entries of the seeds file without an input: 2",
        "  ... and 1 more (--show N)",
        "pictures without seeds: 4",
        "seed points outside their mask, or negative ones inside: 1",
    ):
        assert line in text.splitlines(), text
    whole = json.loads(command("report", folder, "--json").stdout)
    assert whole["seeds_astray"] == {
        "total": 1,
        "shown": [{"key": "a.jpg", "object_id": 1, "point": [9.0, 9.0, 1]}],
    }
    assert whole["timing"]["slowest"][0] == {"key": "b.jpg", "seconds": 2}


def test_a_run_that_did_not_end(tmp_path: Path) -> None:
    write(tmp_path, [done("a.jpg")])
    assert report.summarize(tmp_path).unseeded is None
    assert "no run.json: no run has ended yet" in command("report", tmp_path).stdout


def test_nothing_done(tmp_path: Path) -> None:
    write(tmp_path, [failed("a.jpg", "is cut short")])
    assert report.summarize(tmp_path).timing is None
    assert "1 pictures: 0 done, 1 failed" in command("report", tmp_path).stdout


def test_failures_that_never_became_items(tmp_path: Path) -> None:
    filled(tmp_path)
    lines = [
        {"key": "e.jpg", "error": "old"},
        {"key": "locked", "error": "cannot be looked into"},
    ]
    (tmp_path / "failures.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [failure["key"] for failure in report.summarize(tmp_path).failures.shown] == ["e.jpg", "locked"]


def test_what_is_not_an_output_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no journal"):
        command("report", tmp_path)
    filled(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UsageError, match=r"run\.json: is not JSON"):
        report.summarize(tmp_path)


def test_memory_does_not_grow_with_what_records_hold(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).random((HEIGHT, WIDTH)) < 0.5
    heavy = [annotation(noise, i) for i in range(1, 21)]
    with Journal(tmp_path, Header("images", "0.1.0", "b" * 64, {})) as journal:
        for i in range(400):
            journal.append(done(f"{i}.jpg", heavy))
    assert (tmp_path / "journal.jsonl").stat().st_size > 4e6
    tracemalloc.start()
    try:
        found = report.summarize(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.annotations == 8_000
    assert peak < 1e6


def test_lists_that_stay_short() -> None:
    first, most = First(2), Most(3)
    for i, value in enumerate([5.0, 1.0, 7.0, 7.0, 3.0, 6.0]):
        first.add({"i": i})
        most.add(value, {"i": i})
    assert (first.listed().total, [member["i"] for member in first.listed().shown]) == (6, [0, 1])
    assert [member["i"] for member in most.members()] == [2, 3, 5]
    none = Most(0)
    none.add(1.0, {})
    assert none.members() == ()
