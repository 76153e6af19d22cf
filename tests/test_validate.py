"""Good files are good also to pycocotools; every broken one is told with its place."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labels import HEIGHT, WIDTH, annotation, command, document, done, failed, rectangle, write
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from labeler import validate
from labeler.errors import UsageError

NOTHING = np.zeros((HEIGHT, WIDTH), bool)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return write(
        tmp_path / "pictures",
        [
            done("b/ü 1.jpg", [annotation(rectangle(2, 3, 9, 7, hole=True)), annotation(rectangle(0, 0, 30, 20), 2)]),
            done("a.png", [annotation(rectangle(29, 19, 1, 1), category="other", predicted_iou=None)]),
            done("empty.jpg", [annotation(NOTHING)]),
            failed("bad.jpg", "is cut short"),
        ],
    )


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    frames = [
        done("c.mp4", [annotation(rectangle(i, 3, 4, 4)), annotation(rectangle(9, i, 4, 4), 2)], frame=i, time_s=i / 10)
        for i in range(3)
    ]
    lost = done("c.mp4", [annotation(NOTHING, visible=False, object_score=-1.0)], frame=3, time_s=0.3)
    other = done("d.mp4", [annotation(rectangle(1, 3, 4, 4))], time_s=0.0)
    return write(tmp_path / "clips", [*frames, lost, other], kind="videos")


@pytest.mark.parametrize("kind", ["pictures", "clips"])
def test_what_runs_write_is_good(kind: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(kind)
    assert list(validate.check(folder / "annotations.json")) == []
    coco = COCO(folder / "annotations.json")
    assert len(coco.anns) == {"pictures": 3, "clips": 7}[kind]
    for entry in coco.anns.values():
        mask = coco.annToMask(entry)
        image = coco.imgs[entry["image_id"]]
        assert mask.shape == (image["height"], image["width"])
        assert entry["area"] == mask.sum() == coco_mask.area(entry["segmentation"])
        assert entry["bbox"] == list(coco_mask.toBbox(entry["segmentation"]))


def test_command_says_good_or_lists_faults(pictures: Path) -> None:
    good = command("validate", pictures)
    assert (good.exit_code, good.stdout) == (0, "")
    broken = document(pictures)
    broken["annotations"][0]["area"] += 1
    broken["annotations"][2]["iscrowd"] = 1
    path = pictures / "other.json"
    path.write_text(json.dumps(broken), encoding="utf-8")
    bad = command("validate", path)
    assert bad.exit_code == 1
    assert [line.removeprefix(f"{path}: ").split(" is ")[0] for line in bad.stdout.splitlines()] == [
        "annotations[0] (id 1): area:",
        "annotations[2] (id 3): iscrowd:",
    ]
    assert bad.stderr.splitlines()[-1] == f"{path}: 2 faults"


def change(place: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Put a value at a place such as `annotations.0.area`; `DELETE` takes it away."""
    *path, last = [int(part) if part.isdigit() else part for part in place.split(".")]

    def apply(broken: dict[str, Any]) -> None:
        inner: Any = broken
        for part in path:
            inner = inner[part]
        if value is DELETE:
            del inner[last]
        else:
            inner[last] = value(inner[last]) if callable(value) else value

    return apply


DELETE = object()
RLE = "annotations.0.segmentation"
BROKEN = [
    ("annotations.0.id", 0, "annotations[0]: id: is 0; a whole number from 1"),
    ("annotations.0.id", "1", "annotations[0]: id: is '1'"),
    ("annotations.0.id", True, "annotations[0]: id: is True"),
    ("annotations.0.id", DELETE, "annotations[0]: id: is missing"),
    ("annotations.1.id", 1, "annotations[1] (id 1): id: is there twice"),
    ("images.1.id", 1, "images[1] (id 1): id: is there twice"),
    ("categories.1.id", 1, "categories[1] (id 1): id: is there twice"),
    ("annotations.0.image_id", 99, "annotations[0] (id 1): image_id: 99 is not the id of any of the images"),
    ("annotations.0.category_id", 7, "annotations[0] (id 1): category_id: 7 is not the id of any of the categories"),
    ("annotations.0.category_id", [1], "category_id: [1] is not the id"),
    ("annotations.0.iscrowd", 1, "iscrowd: is 1"),
    ("annotations.0.iscrowd", DELETE, "iscrowd: is missing"),
    ("annotations.0.area", 5, "area: is 5, its mask has 1 pixels"),
    ("annotations.0.area", "1", "area: is '1'"),
    ("annotations.0.bbox", [29, 19, 1, 2], "bbox: is [29, 19, 1, 2], tight around its mask is [29.0, 19.0, 1.0, 1.0]"),
    ("annotations.0.bbox", [29, 19, 1], "bbox: is [29, 19, 1]"),
    ("annotations.0.bbox", None, "bbox: is missing"),
    ("annotations.0.score", "good", "score: is 'good'"),
    (RLE, [[1, 1, 5, 1, 5, 5]], "segmentation: is a list of polygons"),
    (RLE, {"size": [20, 30], "counts": [600]}, "segmentation: is run lengths that are not compressed"),
    (RLE, DELETE, "segmentation: is missing"),
    (f"{RLE}.counts", lambda text: text[:-1], "segmentation.counts: "),
    (f"{RLE}.counts", lambda text: text + "1", "segmentation.counts: the runs cover"),
    (f"{RLE}.counts", "hello world", "segmentation.counts: "),
    (f"{RLE}.counts", "", "segmentation.counts: it is empty"),
    (f"{RLE}.counts", "hb0", "segmentation: the mask is empty"),
    (f"{RLE}.size", [30, 20], "segmentation.size: is [30, 20], its image is [20, 30]"),
    (f"{RLE}.size", [20], "segmentation.size: is [20]; [height, width] is needed"),
    (f"{RLE}.size", [20, 31], "segmentation.counts: the runs cover 600 pixels, 20 x 31 are 620"),
    ("annotations.0.attributes.stability", float("nan"), "annotations[0] (id 1).attributes.stability: is nan"),
    ("annotations.0.attributes.points", [[1, float("inf")]], "annotations[0] (id 1).attributes.points[0][1]: is inf"),
    ("annotations.0", 3, "annotations[0]: is not an object"),
    ("info.x", float("nan"), "info.x: is nan"),
    ("images.0.file_name", "b\\c.jpg", "has backslashes"),
    ("images.0.file_name", "/a.png", "is absolute"),
    ("images.0.file_name", "C:/a.png", "is absolute"),
    ("images.0.file_name", "../a.png", "has empty, '.' or '..' parts"),
    ("images.0.file_name", "a//b.png", "has empty, '.' or '..' parts"),
    ("images.0.file_name", "b/ü 1.jpg", "images[1] (id 2): file_name: 'b/ü 1.jpg' is there twice"),
    ("images.0.file_name", "", "images[0] (id 1): file_name: is ''; a text is needed"),
    ("images.0.height", 0, "images[0] (id 1): height: is 0"),
    ("images.0.width", 30.0, "images[0] (id 1): width: is 30.0"),
    ("images.0", DELETE, "image_id: 1 is not the id of any of the images"),
    ("categories.0.name", "thing", "categories[1] (id 2): name: 'thing' is there twice"),
    ("categories", DELETE, "categories: is missing"),
    ("images", {}, "images: is not a list"),
    ("annotations", None, "annotations: is not a list"),
]


@pytest.mark.parametrize(("place", "value", "fault"), BROKEN, ids=[f"{p}-{f}"[:60] for p, _, f in BROKEN])
def test_broken_pictures(pictures: Path, place: str, value: Any, fault: str) -> None:
    broken = document(pictures)
    broken.setdefault("info", {})["x"] = 0
    change(place, value)(broken)
    assert_fault(pictures, broken, fault)


BROKEN_CLIPS = [
    ("annotations.0.track_id", 0, "annotations[0] (id 1): track_id: is 0"),
    ("annotations.1.track_id", 1, "annotations[1] (id 2): track_id: 1 is twice on image 1"),
    ("images.1.frame_index", 0, "images[1] (id 2): frame_index: 0 of video 1 is there twice"),
    ("images.1.frame_index", -1, "images[1] (id 2): frame_index: is -1"),
    ("images.0.video_id", 9, "images[0]: video_id: 9 is not the id of any of the videos"),
    ("videos.0.name", 5, "videos[0] (id 1): name: is 5"),
    ("videos.0.width", -3, "videos[0] (id 1): width: is -3"),
]


@pytest.mark.parametrize(("place", "value", "fault"), BROKEN_CLIPS, ids=[f"{p}-{f}"[:60] for p, _, f in BROKEN_CLIPS])
def test_broken_clips(clips: Path, place: str, value: Any, fault: str) -> None:
    broken = document(clips)
    change(place, value)(broken)
    assert_fault(clips, broken, fault)


def assert_fault(folder: Path, broken: dict[str, Any], fault: str) -> None:
    path = folder / "broken.json"
    for order in (list(broken), list(reversed(broken))):  # references may come after what refers to them
        path.write_text(json.dumps({name: broken[name] for name in order}, indent=1), encoding="utf-8")
        found = list(validate.check(path))
        assert any(fault in each for each in found), found
        assert len(found) <= 4, "one fault is told once, not drowned in others"


def test_all_faults_of_an_entry_are_told(pictures: Path) -> None:
    broken = document(pictures)
    broken["annotations"][0] |= {"area": 3, "iscrowd": 1, "image_id": 50, "score": None}
    (pictures / "broken.json").write_text(json.dumps(broken), encoding="utf-8")
    found = list(validate.check(pictures / "broken.json"))
    assert [fault.split(": ")[1] for fault in found] == ["image_id", "iscrowd", "score", "area"]


def test_runners_up_share_their_track(tmp_path: Path) -> None:
    both = [annotation(rectangle(1, 1, 4, 4)), annotation(rectangle(1, 1, 5, 5), chosen=False)]
    folder = write(tmp_path, [done("c.mp4", both, time_s=0.0)], kind="videos")
    assert list(validate.check(folder / "annotations.json")) == []


def test_a_name_that_is_there_twice(pictures: Path) -> None:
    text = (pictures / "annotations.json").read_text(encoding="utf-8")
    (pictures / "twice.json").write_text(text.replace('"licenses": []', '"images": []'), encoding="utf-8")
    assert "images: is there twice; readers take only one of them" in validate.check(pictures / "twice.json")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is not JSON: line 1: '{' is expected"),
        (b"[]", "is not JSON: line 1: '{' is expected"),
        (b'{"images": [\n{"id": 1},\n', "is not JSON: line 3: "),
        (b"\xff\xfe{}", "is not JSON: "),
        (b"{}", "images: is missing"),
    ],
    ids=["empty", "list", "cut", "encoding", "nothing"],
)
def test_what_is_no_coco_file_at_all(tmp_path: Path, content: bytes, fault: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    found = list(validate.check(path))
    assert any(fault in each for each in found), found
    assert command("validate", path).exit_code == 1


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        list(validate.check(tmp_path / "none.json"))


def test_nothing_malformed_reaches_c_code(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pycocotools trusts what it reads; texts of every kind are told as faults or are masks of their size."""
    broken = copy.deepcopy(document(pictures))
    rng = np.random.default_rng(0)
    for name in ("decode", "area", "toBbox", "frPyObjects"):
        monkeypatch.setattr(coco_mask, name, None)
    one = broken["annotations"][0]
    broken["annotations"] = [
        one
        | {"id": i, "segmentation": {"size": [20, 30], "counts": "".join(map(chr, rng.integers(48, 112, 1 + i % 9)))}}
        for i in range(1, 300)
    ]
    (pictures / "broken.json").write_text(json.dumps(broken), encoding="utf-8")
    told = {fault.split(":")[0] for fault in validate.check(pictures / "broken.json")}
    assert len(told) == 299, "no random text is the one right mask"
