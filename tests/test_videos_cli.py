"""`sam2label videos` as a user meets it: which frames and objects come out, what is refused, what is left alone."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import av
import command
import films
import labels
import numpy as np
import psutil
import pytest
from command import coco, listing, records, write_seeds
from films import document, save, seed, shots
from PIL import Image
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from labeler import outputs
from labeler.errors import SeedError, UsageError
from labeler.journal import JournalReader
from labeler.types import WHOLE_CLIP


def videos(root: Path, out: Path, *options: object) -> int:
    """The command in this process; returns its exit code."""
    return labels.command("videos", root, "-o", out, "--workers", "1", "--threads", "1", *options).exit_code


def frames_of(out: Path) -> dict[str, dict[int, dict[int, Any]]]:
    """Per clip and frame of annotations.json, the annotations by object."""
    loaded = coco(out)
    images = {image["id"]: image for image in loaded["images"]}
    names = {video["id"]: video["name"] for video in loaded["videos"]}
    found: dict[str, dict[int, dict[int, Any]]] = defaultdict(dict)
    for image in images.values():
        assert image["frame_index"] not in found[names[image["video_id"]]], "each frame once"
        found[names[image["video_id"]]][image["frame_index"]] = {}
    for each in loaded["annotations"]:
        image = images[each["image_id"]]
        found[names[image["video_id"]]][image["frame_index"]][each["track_id"]] = each
    return dict(found)


def objects_of(out: Path, name: str) -> dict[int, list[int]]:
    """The objects that the journal has on each frame of a clip, seen or not; a frame's newest record counts."""
    return {
        record["frame"]: [each["object_id"] for each in record["annotations"]]
        for record in records(out)
        if record["key"] == name and record["frame"] != WHOLE_CLIP
    }


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A folder with one clip of eight frames."""
    return save(tmp_path / "clips" / "a.mp4", shots()).parent


# The clips that the command runs on

SAID = re.compile(
    r"using the small bundle .*|9 clips, workers: 2, threads each: 1|failed: \w+\.mp4: .*|\d+/\d+ frames, .*"
    r"|\d+ frames, \d+ absences of an object|6 clips labelled \(0 of them earlier\), 3 failed; .*"
    r"|labels: .*|failures: .*"
)
TURNED = {90: (1, 0), -90: (1, 0), 0: (0, 1)}


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.slow), 12])
def test_every_file_of_the_corpus_ends_done_or_failed_with_a_reason(
    tmp_path: Path, corpus_dir: Path, stride: int
) -> None:
    root, out = corpus_dir / "videos", tmp_path / "labels"
    expected = json.loads((root / "expected.json").read_text(encoding="utf-8"))
    assert len(expected) == 9
    before = listing(root)
    points = write_seeds(tmp_path / "seeds.json", {name: [[100, 100]] for name in expected})
    ended = command.videos(root, out, "--points", str(points), "--stride", str(stride), "--memory", "2", workers=2)
    assert ended.code == 1, ended.text
    assert [line for line in ended.lines if not SAID.fullmatch(line)] == []
    ends = {record["key"]: record for record in records(out) if record["frame"] == WHOLE_CLIP}
    assert ends.keys() == expected.keys()
    loaded, sizes = coco(out), {}
    times: dict[str, list[float]] = defaultdict(list)
    for image in loaded["images"]:
        name = image["file_name"].rpartition("/")[0]
        assert image["frame_index"] == stride * len(times[name])
        times[name].append(image["time_s"])
        sizes[name] = image["height"], image["width"]
    decodes = {name for name, entry in expected.items() if entry["decodes"]}
    assert times.keys() == decodes == {video["name"] for video in loaded["videos"]}
    for name in decodes:
        entry = expected[name]
        assert ends[name]["status"] == "done"
        assert len(times[name]) == len(range(0, entry["frames"], stride))
        wanted = entry["first_times"][::stride]
        assert times[name][: len(wanted)] == pytest.approx(wanted, abs=6e-4)
        stored = entry["stored_height"], entry["stored_width"]
        assert sizes[name] == tuple(stored[axis] for axis in TURNED[entry["rotation"]]), name
    for name in expected.keys() - decodes:
        assert ends[name]["status"] == "failed"
        assert "unexpected" not in ends[name]["error"]
        assert f"failed: {name}: {ends[name]['error']}" in ended.lines
    assert listing(root) == before


# What comes out


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Clips of every kind below one folder, with seeds in every place where they may lie, and their labels."""
    root = tmp_path_factory.mktemp("several") / "clips"
    shown = shots(frames=3)
    for name in ("a.mp4", "a.gif", "sub/a.webp", "sub/a.mkv", "walk", "deep/er/walk", "anim.png"):
        save(root / name, shown)
    both = [seed(shown, 1, category="ball"), seed(shown, 2, frame=1, category="pear")]
    one, box = [seed(shown, 1)], [seed(shown, 2, category="box")]
    write_seeds(root / "a.seeds.json", document({"a.mp4": both, "a.gif": box}))
    write_seeds(root / "sub" / "a.mkv.seeds.json", {"a.mkv": [films.click(shown, 1), films.click(shown, 2)]})
    write_seeds(root / "deep" / "er" / "walk.seeds.json", document({"walk": one}))
    rest = {"sub/a.webp": one, "walk": one, "anim.png": [seed(shown, 1, time_s=0.1)]}
    write_seeds(root / "seeds.json", document(rest))
    before = listing(root)
    out = root.with_name("labels")
    assert videos(root, out, "--memory", 2) == 0
    assert listing(root) == before
    return root, out


def test_seeds_are_found_beside_clips_and_in_one_file_of_the_folder(several: tuple[Path, Path]) -> None:
    found = frames_of(several[1])
    tracks = {name: {frame: sorted(objects) for frame, objects in clip.items()} for name, clip in found.items()}
    always = {0: [1], 1: [1], 2: [1]}
    assert tracks == {
        "a.mp4": {0: [1], 1: [1, 2], 2: [1, 2]},
        "a.gif": {0: [2], 1: [2], 2: [2]},
        "sub/a.mkv": {0: [1, 2], 1: [1, 2], 2: [1, 2]},
        "deep/er/walk": always,
        "sub/a.webp": always,
        "walk": always,
        "anim.png": {1: [1], 2: [1]},
    }


def test_pycocotools_loads_one_image_per_frame(several: tuple[Path, Path]) -> None:
    loaded = COCO(str(several[1] / "annotations.json"))
    assert loaded.getImgIds() == list(range(1, 21))
    assert loaded.getAnnIds() == list(range(1, 26))
    assert [video["id"] for video in loaded.dataset["videos"]] == list(range(1, 8))
    names = {video["id"]: video["name"] for video in loaded.dataset["videos"]}
    assert len({image["file_name"] for image in loaded.imgs.values()}) == 20, "the same stem elsewhere is another name"
    for image in loaded.imgs.values():
        name, frame = names[image["video_id"]], image["frame_index"]
        assert image["file_name"] == f"{name}/{frame:05}.jpg"
        assert image["time_s"] == (None if "walk" in name else pytest.approx(frame / films.RATE))
        assert (image["height"], image["width"]) == (films.HEIGHT, films.WIDTH)
    for annotation in loaded.loadAnns(loaded.getAnnIds()):
        mask = loaded.annToMask(annotation)
        assert annotation["area"] == mask.sum() > 0
        assert annotation["bbox"] == list(coco_mask.toBbox(annotation["segmentation"]))
        assert annotation["attributes"]["visible"]
        assert annotation["attributes"]["object_id"] == annotation["track_id"]


def test_each_object_keeps_its_category_and_its_clicks_their_frame(several: tuple[Path, Path]) -> None:
    categories = {each["id"]: each["name"] for each in coco(several[1])["categories"]}
    assert list(categories.values()) == ["ball", "box", "object", "pear"]
    clip = frames_of(several[1])["a.mp4"]
    assert {categories[each[1]["category_id"]] for each in clip.values()} == {"ball"}
    assert {categories[each[2]["category_id"]] for frame, each in clip.items() if frame} == {"pear"}
    shown = shots(frames=3)
    clicked = {(frame, track): each[track]["attributes"]["points"] for frame, each in clip.items() for track in each}
    assert {place: points for place, points in clicked.items() if points} == {
        (0, 1): [[*films.click(shown, 1), 1]],
        (1, 2): [[*films.click(shown, 2, 1), 1]],
    }


def test_seeds_of_one_file_give_the_same_labels(several: tuple[Path, Path], tmp_path: Path) -> None:
    root, out = several
    shown = shots(frames=3)
    items = [
        {"file": "a.mp4", "objects": [seed(shown, 1, category="ball"), seed(shown, 2, time_s=0.1, category="pear")]},
        {"file": "sub/a.webp", "objects": [seed(shown, 1)]},
    ]
    items[0]["objects"][1]["points"] = [films.click(shown, 2, 1)]
    points = tmp_path / "seeds.jsonl"
    points.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    assert videos(root, tmp_path / "labels", "--points", points, "--memory", 2) == 0
    one, other = frames_of(tmp_path / "labels"), frames_of(out)
    assert one.keys() == {"a.mp4", "sub/a.webp"}
    for name, clip in one.items():
        assert {
            (frame, track): each["segmentation"] for frame, found in clip.items() for track, each in found.items()
        } == {
            (frame, track): each["segmentation"]
            for frame, found in other[name].items()
            for track, each in found.items()
        }


def test_a_clip_alone_is_a_path_too(several: tuple[Path, Path], tmp_path: Path) -> None:
    root, out = several
    assert videos(root / "deep" / "er" / "walk", tmp_path / "labels", "--memory", 2) == 0
    walked = frames_of(tmp_path / "labels")["walk"]
    assert [each[1]["segmentation"] for each in walked.values()] == [
        each[1]["segmentation"] for each in frames_of(out)["deep/er/walk"].values()
    ]


def test_a_later_click_corrects_its_object(film: Path, tmp_path: Path) -> None:
    shown = shots()
    other = films.click(shown, 2, 5)
    objects = [seed(shown, 1), {"id": 1, "frame": 5, "points": [other]}]
    assert videos(film, tmp_path / "x", "--points", write_seeds(tmp_path / "s.json", document({"a.mp4": objects}))) == 0
    clip = frames_of(tmp_path / "x")["a.mp4"]
    assert [frame for frame, found in clip.items() if found[1]["attributes"]["points"]] == [0, 5]
    there = {frame: films.click(shown, 2, frame) for frame in (0, 5, 6)}
    covered = {frame: coco_mask.decode(clip[frame][1]["segmentation"])[y, x] for frame, (x, y) in there.items()}
    assert covered == {0: 0, 5: 1, 6: 1}, "it is followed from its new place"


SPANS = {
    "frames": (["--start", "2", "--end", "7", "--stride", "2"], [2, 4, 6]),
    "seconds": (["--start", "0.2s", "--end", "0.4s"], [2, 3]),
    "an end behind the clip's": (["--start", "6", "--end", "90"], [6, 7]),
    "a frame and a time": (["--start", "3", "--end", ".5s"], [3, 4]),
}


@pytest.mark.parametrize(("options", "wanted"), SPANS.values(), ids=SPANS)
def test_part_of_a_clip(film: Path, tmp_path: Path, options: list[str], wanted: list[int]) -> None:
    points = write_seeds(tmp_path / "s.json", document({"a.mp4": [seed(shots(), 1, wanted[0])]}))
    assert videos(film, tmp_path / "x", "--points", points, "--memory", 2, *options) == 0
    images = coco(tmp_path / "x")["images"]
    assert [image["frame_index"] for image in images] == wanted
    assert [image["time_s"] for image in images] == pytest.approx([frame / films.RATE for frame in wanted])
    assert [image["file_name"] for image in images] == [f"a.mp4/{frame:05}.jpg" for frame in wanted]


DIRECTIONS = {
    "forward": {2: [1], 3: [1], 4: [1, 2], 5: [1, 2]},
    "backward": {0: [1, 2], 1: [1, 2], 2: [1, 2], 3: [2], 4: [2]},
    "both": {frame: [1, 2] for frame in range(6)},
}


@pytest.mark.parametrize(("direction", "wanted"), DIRECTIONS.items())
def test_directions_go_from_each_objects_seed(
    film: Path, tmp_path: Path, direction: str, wanted: dict[int, list[int]]
) -> None:
    shown = shots()
    points = write_seeds(tmp_path / "s.json", document({"a.mp4": [seed(shown, 1, 2), seed(shown, 2, 4)]}))
    options = ("--points", points, "--direction", direction, "--memory", 2, "--end", 6)
    assert videos(film, tmp_path / "x", *options) == 0
    assert dict(sorted(objects_of(tmp_path / "x", "a.mp4").items())) == wanted
    assert list(frames_of(tmp_path / "x")["a.mp4"]) == list(wanted)
    assert {frame for frame, found in frames_of(tmp_path / "x")["a.mp4"].items() if len(found) == 2} == {
        frame for frame, found in wanted.items() if len(found) == 2
    }, "the true masks are large: none may be missing"


def test_memory_of_seven_and_of_two_frames(film: Path, tmp_path: Path) -> None:
    points = write_seeds(tmp_path / "s.json", document({"a.mp4": [seed(shots(), 1)]}))
    made = {}
    for memory in (2, 7):
        out = tmp_path / f"labels-{memory}"
        assert videos(film, out, "--points", points, "--memory", memory, "--end", 6) == 0
        assert coco(out)["info"]["options"]["memory"] == memory
        made[memory] = [found[1]["segmentation"]["counts"] for found in frames_of(out)["a.mp4"].values()]
    assert made[2][:2] == made[7][:2], "as long as two frames are remembered it makes no difference"
    assert made[2] != made[7]
    with pytest.raises(UsageError, match="5 slots wanted; mini has 2 or 7"):
        videos(film, tmp_path / "x", "--points", points, "--memory", 5)


def test_absent_and_empty_objects_are_counted_and_no_annotations(tmp_path: Path) -> None:
    mask, nothing = labels.rectangle(2, 2, 5, 5), np.zeros((labels.HEIGHT, labels.WIDTH), bool)
    seen = labels.annotation(mask, 1)
    gone = labels.annotation(nothing, 2, visible=False, object_score=-1.0)
    empty = labels.annotation(nothing, 3)
    frames = [labels.done("a.mp4", [seen, gone, empty], frame=0), labels.done("a.mp4", [gone], frame=1)]
    out = labels.write(tmp_path, [*frames, labels.done("a.mp4", frame=WHOLE_CLIP)], kind="videos")
    assert {frame: list(found) for frame, found in frames_of(out)["a.mp4"].items()} == {0: [1], 1: []}
    with JournalReader(out / "journal.jsonl") as reader:
        counts = outputs.count(reader, {"a.mp4"})
    assert (counts["frames"], counts["done"], counts["annotations"]) == (2, 1, 1)
    assert (counts["absent"], counts["empty_masks"]) == (2, 1)
    text = labels.command("report", out).stdout
    assert "objects that the model takes for absent: 2" in text
    assert "empty masks: 1" in text


# What is refused


def test_all_faults_of_all_clips_are_told_before_anything_is_labelled(tmp_path: Path) -> None:
    shown = shots()
    root = save(tmp_path / "clips" / "a.mp4", shown).parent
    save(root / "walk", shots(frames=3))
    bad = [
        seed(shown, 1, 3),
        {"id": 2, "frame": 1, "points": [[3, 3]]},
        {"id": 3, "frame": 40, "points": [[3, 3]]},
        {"id": 4, "time_s": 9.0, "points": [[3, 3]]},
        {"id": 5, "frame": 2, "points": [[films.WIDTH, 3]]},
        {"id": 6, "frame": 4, "box": [1, 1, 9, 9]},
        {"id": 7, "frame": 6, "points": [[3, 3]]},
        {"id": 8, "time_s": 0.4, "points": [[3, 3]]},
        {"id": 8, "frame": 4, "points": [[4, 3]]},
    ]
    points = write_seeds(tmp_path / "s.json", document({"a.mp4": bad, "walk": [seed(shown, 1, time_s=0.1)]}))
    out = tmp_path / "labels"
    options = ("--points", str(points), "--start", "2", "--end", "6", "--stride", "2")
    with pytest.raises(SeedError) as error:
        videos(root, out, *options)
    which = r"--start, --end and --stride leave 2 to 4 by 2; move the seed"
    wanted = [
        rf"'a\.mp4': object 1: frame 3 is not read: {which}",
        rf"'a\.mp4': object 2: frame 1 is not read: {which}",
        r"'a\.mp4': object 3: frame 40 is not read: the clip has 8 frames",
        r"'a\.mp4': object 4: time_s: 9 s is outside the clip, whose frames begin at 0 to 0\.7 s",
        r"'a\.mp4': object 5 on frame 2: points\[0\]: \(96, 3\) is outside",
        r"'a\.mp4': object 6: has a box",
        rf"'a\.mp4': object 7: frame 6 is not read: {which}",
        r"'a\.mp4': object 8: has two seeds on frame 4; put their points into one",
        r"'walk': object 1: its frames have no times: give frame numbers",
    ]
    for pattern in wanted:
        assert sum(bool(re.match(pattern, fault)) for fault in error.value.faults) == 1, (pattern, error.value.faults)
    assert len(error.value.faults) == len(wanted)
    assert not out.exists()
    ended = command.videos(root, out, *options)
    assert ended.code == 2, "that is how it looks from outside"
    assert sum(line.startswith("error: ") for line in ended.lines) == len(wanted)


def _twice(root: Path) -> None:
    write_seeds(root / "a.mp4.seeds.json", {"a.mp4": [[3, 3]]})
    write_seeds(root / "seeds.json", {"a.mp4": [[3, 3]]})


NO_SEEDS = {
    "none at all": (lambda _: None, "has neither seeds.json nor <clip>.seeds.json beside a clip"),
    "for another clip": (
        lambda root: write_seeds(root / "seeds.json", {"b.mp4": [[3, 3]]}),
        "none of the 1 entries of .* names a clip .1 clips below it, the first is 'a.mp4'",
    ),
    "in two files": (_twice, "'a.mp4': has seeds in another file too"),
    "a broken one": (lambda root: write_seeds(root / "a.seeds.json", {"a.mp4": [[3]]}), r"a\.seeds\.json: 'a\.mp4'"),
}


@pytest.mark.parametrize(("spoil", "message"), NO_SEEDS.values(), ids=NO_SEEDS)
def test_clips_without_good_seeds_are_refused(film: Path, tmp_path: Path, spoil: Any, message: str) -> None:
    spoil(film)
    with pytest.raises(UsageError, match=message):
        videos(film, tmp_path / "labels")
    assert not (tmp_path / "labels").exists()


# Clips that end too early


def test_the_frames_before_a_damage_are_kept_and_a_repaired_clip_is_labelled(tmp_path: Path) -> None:
    shown = shots()
    root, out = tmp_path / "clips", tmp_path / "labels"
    whole = save(tmp_path / "whole.mp4", shown, options={"movflags": "faststart"}).read_bytes()
    save(root / "walk", shown)
    save(root / "good.gif", shots(frames=2))
    (root / "cut.mp4").write_bytes(whole[: len(whole) * 3 // 4])
    frame = (root / "walk" / "5.png").read_bytes()
    (root / "walk" / "5.png").write_bytes(frame[: len(frame) // 2])
    items = {"cut.mp4": [seed(shown, 1)], "walk": [seed(shown, 1), seed(shown, 2, 3)], "good.gif": [seed(shown, 1)]}
    options = ("--points", write_seeds(tmp_path / "s.json", document(items)), "--memory", 2)
    assert videos(root, out, *options) == 1
    ends = {record["key"]: record for record in records(out) if record["frame"] == WHOLE_CLIP}
    assert {key: end["status"] for key, end in ends.items()} == {
        "cut.mp4": "failed",
        "walk": "failed",
        "good.gif": "done",
    }
    found = frames_of(out)
    (lost,) = re.findall(r"the frames from (\d) on are lost", ends["cut.mp4"]["error"])
    assert 2 <= int(lost) <= 7
    assert list(found["cut.mp4"]) == list(range(int(lost)))
    assert ends["walk"]["error"].startswith("frame 5: ")
    assert list(found["walk"]) == list(range(5))
    failures = [json.loads(line) for line in (out / "failures.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {failure["key"]: failure["error"] for failure in failures} == {
        key: end["error"] for key, end in ends.items() if end["status"] == "failed"
    }
    assert not (out / ".snapshots").exists()

    before = len(records(out))
    assert videos(root, out, *options) == 1
    assert len(records(out)) == before, "nothing changed: nothing is tried"
    assert videos(root, out, *options, "--retry-failed") == 1
    assert len(records(out)) == before + 2, "tried, with the same end: its frames are not written again"
    assert frames_of(out) == found

    (root / "cut.mp4").write_bytes(whole)
    (root / "walk" / "5.png").write_bytes(frame)
    assert videos(root, out, *options, "--retry-failed") == 0
    assert {name: list(clip) for name, clip in frames_of(out).items()} == {
        "cut.mp4": list(range(8)),
        "walk": list(range(8)),
        "good.gif": [0, 1],
    }
    assert not (out / "failures.jsonl").exists()


def test_a_seed_on_a_lost_frame_costs_its_clip_only(tmp_path: Path) -> None:
    shown = shots()
    whole = save(tmp_path / "whole.mp4", shown, options={"movflags": "faststart"}).read_bytes()
    root = save(tmp_path / "clips" / "good.gif", shots(frames=2)).parent
    (root / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    items = {"cut.mp4": [seed(shown, 1), seed(shown, 2, 7)], "good.gif": [seed(shown, 1)]}
    points = write_seeds(tmp_path / "s.json", document(items))
    assert videos(root, tmp_path / "x", "--points", points) == 1
    (failed,) = (record for record in records(tmp_path / "x") if record["status"] == "failed")
    assert re.match(r"the frames from \d on are lost: .*; object 2: frame 7 is not read", failed["error"])
    assert list(frames_of(tmp_path / "x")) == ["good.gif"]


# Frames that the labels speak of


def decoded(path: Path) -> list[Any]:
    with av.open(str(path)) as file:
        return [frame.to_ndarray(format="rgb24").astype(int) for frame in file.decode(video=0)]


def test_frames_are_written_under_the_names_of_the_labels(film: Path, tmp_path: Path) -> None:
    points = write_seeds(tmp_path / "s.json", document({"a.mp4": [seed(shots(), 1, 1)]}))
    out, frames = tmp_path / "labels", tmp_path / "frames"
    options = ("--points", points, "--memory", 2, "--start", 1, "--end", 6, "--stride", 2)
    assert videos(film, out, *options) == 0
    assert not frames.exists()
    made = (out / "journal.jsonl").read_bytes()
    assert videos(film, out, *options, "--frames-out", frames) == 0
    assert (out / "journal.jsonl").read_bytes() == made, "labels that are there are not made again"
    written = {path.relative_to(frames).as_posix() for path in frames.rglob("*.jpg")}
    assert written == {image["file_name"] for image in coco(out)["images"]} == {f"a.mp4/0000{i}.jpg" for i in (1, 3, 5)}
    true = decoded(film / "a.mp4")
    for image in coco(out)["images"]:
        with Image.open(frames / image["file_name"]) as picture:
            shown = np.asarray(picture).astype(int)
        away = [np.abs(shown - frame).mean() for frame in true]
        assert np.argmin(away) == image["frame_index"]
        assert min(away) < 2
    inode = (frames / "a.mp4" / "00001.jpg").stat().st_ino
    (frames / "a.mp4" / "00003.jpg").unlink()
    assert videos(film, out, *options, "--frames-out", frames) == 0
    assert (frames / "a.mp4" / "00003.jpg").exists()
    assert (frames / "a.mp4" / "00001.jpg").stat().st_ino == inode, "what is there is not written again"


def test_frames_of_another_version_of_a_clip_are_replaced(tmp_path: Path) -> None:
    shown = shots(frames=2)
    root, out, frames = tmp_path / "clips", tmp_path / "labels", tmp_path / "frames"
    save(root / "walk", shown)
    points = write_seeds(tmp_path / "s.json", document({"walk": [seed(shown, 1)]}))
    options = ("--points", points, "--memory", 2, "--frames-out", frames)
    assert videos(root, out, *options) == 0
    first = (frames / "walk" / "00000.jpg").read_bytes()
    shutil.rmtree(root / "walk")
    save(root / "walk", shown[::-1])
    assert videos(root, out, *options) == 0
    assert (frames / "walk" / "00001.jpg").read_bytes() == first


def test_frames_are_not_written_where_others_lie_or_among_the_clips(film: Path, tmp_path: Path) -> None:
    points = write_seeds(tmp_path / "s.json", document({"a.mp4": [seed(shots(), 1)]}))
    frames = tmp_path / "frames"
    (frames / "a.mp4").mkdir(parents=True)
    (frames / "a.mp4" / "00000.jpg").write_bytes(b"mine")
    before = listing(film)
    with pytest.raises(UsageError, match="holds what sam2label did not write; choose another --frames-out"):
        videos(film, tmp_path / "x", "--points", points, "--frames-out", frames)
    with pytest.raises(UsageError, match="nothing is ever written there"):
        videos(film, tmp_path / "x", "--points", points, "--frames-out", film / "frames")
    assert (frames / "a.mp4" / "00000.jpg").read_bytes() == b"mine"
    assert listing(film) == before
    assert not (tmp_path / "x").exists()


# What is said


def test_the_bar_counts_frames(tmp_path: Path) -> None:
    root = save(tmp_path / "clips" / "a.mp4", shots()).parent
    (root / "b.mp4").write_bytes(b"no clip")
    points = write_seeds(tmp_path / "s.json", document({"a.mp4": [seed(shots(), 1, 2)], "b.mp4": [seed(shots(), 1)]}))
    arguments = ("videos", root, "-o", tmp_path / "x", "--points", points, "--direction", "both", "--threads", "1")
    text = command.on_a_terminal(*arguments, "--workers", "1")
    bars = [line for line in re.split(r"[\r\n]+", text) if "%|" in line]
    counts = [int(found) for bar in bars for found in re.findall(r"(\d+)/8 ", bar)]
    assert counts == sorted(counts)
    assert len(set(counts)) >= 4, "it moves with the frames"
    assert counts[-1] == 8
    assert "frames/s" in bars[-1]
    assert "failed=1" in bars[-1]
    again = command.on_a_terminal(*arguments, "--workers", "1")
    assert "8/8" in again


def test_the_help_says_where_seeds_are_looked_for() -> None:
    words = " ".join(labels.command("videos", "--help").stdout.split())
    assert "[default: seeds.json in PATH, <clip>.seeds.json beside a clip]" in words


# Long runs


@pytest.mark.slow
def test_memory_stays_flat_over_a_long_clip(tmp_path: Path) -> None:
    count, objects = 1_500, (1, 2, 3)
    shown = shots("camera_motion", frames=count, height=96, width=128)
    root = save(tmp_path / "clips" / "long.mp4", shown).parent
    points = write_seeds(tmp_path / "s.json", document({"long.mp4": [seed(shown, number) for number in objects]}))
    out = tmp_path / "labels"
    process = command.launch(
        "videos", root, "-o", out, "--points", points, "--workers", "1", "--threads", str(os.cpu_count())
    )
    samples: list[tuple[int, int, int]] = []

    def ended() -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            memory = psutil.Process(process.pid).memory_info()
            samples.append((command.lines(out), memory.rss, memory.rss - getattr(memory, "shared", 0)))
        return process.poll() is not None

    command.until(ended, seconds=2400, every=0.2)
    assert command.finished(process).code == 0
    first = np.array([sizes for done, *sizes in samples if 50 <= done < 100])
    last = np.array([sizes for done, *sizes in samples if count - 100 <= done <= count])
    assert min(len(first), len(last)) >= 5
    before, after = np.median(first, 0), np.median(last, 0)
    resident, own = after / before - 1
    print(f"at 50: {before / 1e6} MB, at {count}: {after / 1e6} MB; resident {resident:+.2%}, own {own:+.2%}")  # noqa: T201
    assert resident < 0.02
    # The system may take back pages of mapped files; what the process has allocated stays the same both ways.
    assert abs(own) < 0.02
    lines = (out / "journal.jsonl").read_bytes().splitlines()
    quarter = [sum(map(len, lines[start : start + count // 4])) for start in range(1, count, count // 4)]
    assert max(quarter) < 1.3 * min(quarter), "the journal grows with the frames"
    assert {path.name for path in out.iterdir()} == {".journal.lock", "annotations.json", "journal.jsonl", "run.json"}
