"""Which frames a person is sent to, and why: by hand-made records, and on clips with and without something wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import films
import labels
import numpy as np
import pytest
from command import write_seeds
from films import document, save, seed

from labeler import report
from labeler.suspicion import Suspicion, suspicions
from labeler.types import WHOLE_CLIP


def shown(
    box: tuple[float, float, float, float] = (10, 10, 20, 20), *, area: int = 400, iou: float | None = 0.9
) -> Any:
    return {"object_id": 1, "visible": True, "area": area, "bbox": box, "predicted_iou": iou}


ABSENT = {"object_id": 1, "visible": False, "area": 0, "bbox": (0, 0, 0, 0), "predicted_iou": 0.9}
EMPTY = shown((0, 0, 0, 0), area=0)


def found(*frames: Any, key: str = "a.mp4", start: int = 0) -> list[tuple[int, str]]:
    """Frame and reason of each suspicion, for one object's annotations frame by frame."""
    records = [{"key": key, "frame": start + index, "annotations": [each]} for index, each in enumerate(frames)]
    return [(each.frame, each.reason) for each in suspicions(records)]


REASONS = {
    "nothing": ([shown(), shown(), shown()], []),
    "twice the area": ([shown(), shown(area=799), shown(area=1598)], [(2, "area x 2.00")]),
    "half the area": ([shown(), shown(area=201), shown(area=100)], [(2, "area x 0.50")]),
    "a steady drift": ([shown((10 + 14 * step, 10, 20, 20)) for step in range(4)], []),
    "a leap aside": ([shown(), shown((26, 10, 20, 20))], [(1, "moved by 0.80 of its size")]),
    "a leap across": ([shown(), shown((22, 22, 20, 20))], [(1, "moved by 0.85 of its size")]),
    "the same leap of a large one": ([shown((0, 0, 90, 90)), shown((16, 0, 90, 90))], []),
    "a fall": ([shown(), shown(iou=0.6)], [(1, "predicted IoU fell by 0.30 to 0.60")]),
    "a slow decline": (
        [shown(iou=0.9), shown(iou=0.7), shown(iou=0.51), shown(iou=0.48), shown(iou=0.45), shown(iou=0.2)],
        [(3, "predicted IoU below 0.5: 0.48")],
    ),
    "low at once": ([shown(iou=0.3), shown(iou=0.3)], [(0, "predicted IoU below 0.5: 0.30")]),
    "low, better, low": ([shown(iou=0.3), shown(iou=0.6), shown(iou=0.4)], [(0, "0.30"), (2, "0.40")]),
    "lost and found": ([shown(), ABSENT, ABSENT, shown(), shown()], [(1, "lost"), (3, "came back")]),
    "emptied": ([shown(), EMPTY, EMPTY], [(1, "lost")]),
    "never there": ([ABSENT, ABSENT], [(0, "lost")]),
    "back elsewhere": ([shown(), ABSENT, shown((70, 70, 20, 20))], [(1, "lost"), (2, "came back")]),
    "half of it left behind": (
        [shown((10, 30, 28, 28)), shown((12, 28, 74, 26))],
        [(1, "moved by 0.90 of its size")],
    ),
    "several at once": (
        [shown(), shown((60, 10, 40, 40), area=1600, iou=0.3)],
        [(1, "area x 4.00, moved by 3.04 of its size, predicted IoU fell by 0.60 to 0.30")],
    ),
    "no scores": ([shown(iou=None), shown(iou=None, area=900)], [(1, "area x 2.25")]),
}


@pytest.mark.parametrize(("frames", "wanted"), REASONS.values(), ids=REASONS)
def test_reasons(frames: Sequence[Any], wanted: list[tuple[int, str]]) -> None:
    told = found(*frames)
    assert [frame for frame, _ in told] == [frame for frame, _ in wanted]
    for (_, reason), (_, expected) in zip(told, wanted, strict=True):
        assert reason.endswith(expected) if expected[0].isdigit() else reason == expected


def test_objects_and_clips_are_judged_apart() -> None:
    other = shown((60, 10, 20, 20)) | {"object_id": 2}
    records = [
        {"key": "a.mp4", "frame": WHOLE_CLIP, "annotations": []},
        {"key": "a.mp4", "frame": 0, "annotations": [shown()]},
        {"key": "a.mp4", "frame": 1, "annotations": [shown(), other]},
        {"key": "a.mp4", "frame": 2, "annotations": [shown(area=50), other]},
        {"key": "b.mp4", "frame": 0, "annotations": [other, shown((60, 10, 20, 20), area=50)]},
    ]
    assert list(suspicions(records)) == [Suspicion("a.mp4", 2, 1, "area x 0.12")]


# On clips


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labels of two rendered clips: an undisturbed one, and one in which the objects leap between two frames."""
    folder = tmp_path_factory.mktemp("suspicious")
    steady = films.shots("camera_motion", frames=12, number=1)
    leaping = films.shots("crossing", frames=24, number=1)
    leaping = (*leaping[:3], *leaping[-3:])
    save(folder / "clips" / "steady.mp4", steady)
    save(folder / "clips" / "leaping.mp4", leaping)
    items = {
        "steady.mp4": [seed(steady, number) for number in (1, 2)],
        "leaping.mp4": [seed(leaping, 1)],
    }
    seeds = write_seeds(folder / "seeds.json", document(items))
    out = folder / "labels"
    arguments = ("videos", folder / "clips", "--points", seeds, "-o", out, "--workers", "1", "--threads", "1")
    assert labels.command(*arguments).exit_code == 0
    return out


def test_a_clean_clip_is_hardly_listed_and_a_leap_is(labelled: Path) -> None:
    listed = report.summarize(labelled, show=1000).suspicious
    frames = {(entry["key"], entry["frame"]) for entry in listed.shown}
    assert not [frame for key, frame in frames if key == "steady.mp4"]
    assert ("leaping.mp4", 3) in frames
    assert not frames & {("leaping.mp4", 1), ("leaping.mp4", 2)}


def test_the_report_names_them_with_their_reason(labelled: Path) -> None:
    text = labels.command("report", labelled, "--show", "100").stdout
    (line,) = (line for line in text.splitlines() if line.startswith("suspicious frames: "))
    assert int(line.rpartition(" ")[2]) >= 1
    told = [each for each in text.splitlines() if each.startswith("  leaping.mp4, frame 3, object_id ")]
    reasons = ("moved by", "area x", "predicted IoU", "lost")
    assert any(reason in each for each in told for reason in reasons)


def test_a_mask_that_jumps_is_listed_whatever_made_it(tmp_path: Path) -> None:
    """A recorded clip whose every other mask is good."""
    places = [(3, 3), (4, 3), (5, 3), (18, 12), (6, 3), (7, 3)]
    frames = [
        labels.done("a.mp4", [labels.annotation(labels.rectangle(left, top, 6, 6))], frame=index)
        for index, (left, top) in enumerate(places)
    ]
    out = labels.write(tmp_path, [*frames, labels.done("a.mp4", frame=WHOLE_CLIP)], kind="videos")
    listed = report.summarize(out).suspicious
    assert [entry["frame"] for entry in listed.shown] == [3, 4], "there, and back"
    assert all(entry["reason"].startswith("moved by") for entry in listed.shown)
    assert np.isclose(float(listed.shown[0]["reason"].split()[2]), np.hypot(13, 9) / 6, atol=0.01)
