"""The COCO document made from a journal, read by pycocotools."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from labeler import masks
from labeler.errors import UsageError
from labeler.export import coco
from labeler.journal import NAME, Header, Journal, JournalReader
from labeler.types import Annotation, Record

STILLS = Header("images", "1.2.3", "b" * 64, {"exif": "apply"})
CLIPS = Header("videos", "1.2.3", "b" * 64, {})
HEIGHT, WIDTH = 12, 17


def annotation(
    object_id: int = 1, *, category: str = "cat", mask: np.ndarray | None = None, **others: Any
) -> Annotation:
    """An object whose mask is a small square, in its own place for each id."""
    if mask is None:
        mask = np.zeros((HEIGHT, WIDTH), np.bool_)
        mask[object_id : object_id + 3, object_id : object_id + 2] = True
    found = masks.encode_mask(mask)
    points = ((1.5, 2.0, 1),)
    plain = Annotation(
        object_id, category, 0, found.rle, found.area, found.bbox, 0.75, 0.9, 1.5, True, 2, "best_iou", points
    )
    return replace(plain, **others)


def record(key: str, *annotations: Annotation, frame: int = 0, **others: Any) -> Record:
    plain = Record(key, frame, "print", "done", height=HEIGHT, width=WIDTH, annotations=annotations)
    return replace(plain, **others)


def exported(
    folder: Path, records: Sequence[Record], *, header: Header = STILLS, categories: Mapping[str, int] | None = None
) -> str:
    with Journal(folder, header) as journal:
        for each in records:
            journal.append(each)
    with JournalReader(folder / NAME) as reader:
        coco.write(reader, text := io.StringIO(), categories=categories)
    return text.getvalue()


def document(folder: Path, records: Sequence[Record], **others: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(exported(folder, records, **others))
    return found


def test_ids_start_at_1_and_follow_the_sorted_names(tmp_path: Path) -> None:
    one, two = annotation(1), annotation(2, category="ant")
    found = document(tmp_path, [record("b", one, two), record("a/z", two), record("B", one)])
    assert [(image["id"], image["file_name"]) for image in found["images"]] == [(1, "B"), (2, "a/z"), (3, "b")]
    assert [(each["id"], each["image_id"]) for each in found["annotations"]] == [(1, 1), (2, 2), (3, 3), (4, 3)]
    assert [(each["id"], each["name"]) for each in found["categories"]] == [(1, "ant"), (2, "cat")]
    assert [each["category_id"] for each in found["annotations"]] == [2, 1, 2, 1]


def test_the_order_in_which_records_were_made_leaves_no_trace(tmp_path: Path) -> None:
    records = [record(key, annotation(n)) for n, key in enumerate("abcd", 1)]
    assert exported(tmp_path / "one", records) == exported(tmp_path / "other", records[::-1])


def test_only_the_newest_record_of_a_picture_counts(tmp_path: Path) -> None:
    again = record("a", annotation(3), fingerprint="changed")
    broken = record("b", status="failed", error="broken", fingerprint="changed")
    found = document(tmp_path, [record("a", annotation(1)), record("b", annotation(2)), again, broken])
    assert [image["file_name"] for image in found["images"]] == ["a"]
    assert [each["attributes"]["object_id"] for each in found["annotations"]] == [3]


def test_pictures_without_objects_stay_and_empty_masks_are_no_annotations(tmp_path: Path) -> None:
    empty = annotation(2, mask=np.zeros((HEIGHT, WIDTH), np.bool_))
    found = document(tmp_path, [record("a"), record("b", annotation(1), empty), record("c", empty)])
    assert [image["file_name"] for image in found["images"]] == ["a", "b", "c"]
    assert [(each["id"], each["image_id"]) for each in found["annotations"]] == [(1, 2)]


def test_an_annotation_holds_what_other_tools_and_we_need(tmp_path: Path) -> None:
    (found,) = document(tmp_path, [record("a", annotation(1))])["annotations"]
    assert found == {
        "id": 1,
        "image_id": 1,
        "category_id": 1,
        "segmentation": {"size": [HEIGHT, WIDTH], "counts": found["segmentation"]["counts"]},
        "area": 6,
        "bbox": [1, 1, 2, 3],
        "iscrowd": 0,
        "score": 0.75,
        "attributes": found["attributes"],
    }
    assert found["attributes"].items() >= {
        "object_id": 1,
        "predicted_iou": 0.75,
        "object_score": 1.5,
        "candidate": 2,
        "chosen": True,
        "selection": "best_iou",
        "points": [[1.5, 2.0, 1]],
    }.items()  # fmt: skip


def test_without_a_predicted_iou_there_is_no_score(tmp_path: Path) -> None:
    (found,) = document(tmp_path, [record("a", annotation(1, predicted_iou=None))])["annotations"]
    assert "score" not in found


def test_names_are_written_as_they_are(tmp_path: Path) -> None:
    text = exported(tmp_path, [record('写真/ü "1".png', annotation(1, category="Katze, große"))])
    assert json.loads(text)["images"][0]["file_name"] == '写真/ü "1".png'
    assert "写真" in text
    assert "große" in text


def test_categories_can_be_fixed(tmp_path: Path) -> None:
    found = document(tmp_path, [record("a", annotation(1))], categories={"dog": 7, "cat": 3})
    assert [(each["id"], each["name"]) for each in found["categories"]] == [(7, "dog"), (3, "cat")]
    assert found["annotations"][0]["category_id"] == 3


def test_a_category_that_is_not_listed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cat.*not in the list"):
        exported(tmp_path, [record("a", annotation(1))], categories={"dog": 1})


def test_an_empty_journal_is_an_empty_dataset(tmp_path: Path) -> None:
    found = document(tmp_path, [])
    assert (found["images"], found["annotations"], found["categories"]) == ([], [], [])


def test_a_clip_has_an_image_for_each_frame_and_annotations_where_objects_are_seen(tmp_path: Path) -> None:
    frames = [
        record("walk/a.mp4", annotation(5), annotation(2), frame=0, time_s=0.0),
        record("walk/a.mp4", annotation(5, visible=False), annotation(2), frame=1, time_s=0.04),
        record("b.mp4", annotation(5), frame=0, time_s=0.0),
    ]
    found = document(tmp_path, frames, header=CLIPS)
    assert [(video["id"], video["name"]) for video in found["videos"]] == [(1, "b.mp4"), (2, "walk/a.mp4")]
    shown = [(i["video_id"], i["frame_index"], i["time_s"], i["file_name"]) for i in found["images"]]
    assert shown == [
        (1, 0, 0.0, "b.mp4/00000.jpg"),
        (2, 0, 0.0, "walk/a.mp4/00000.jpg"),
        (2, 1, 0.04, "walk/a.mp4/00001.jpg"),
    ]
    assert [(each["image_id"], each["track_id"]) for each in found["annotations"]] == [(1, 5), (2, 5), (2, 2), (3, 2)]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), height=st.integers(1, 9), width=st.integers(1, 9))
def test_pycocotools_reads_any_mask_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, height: int, width: int
) -> None:
    bits = data.draw(st.lists(st.booleans(), min_size=height * width, max_size=height * width))
    mask = np.array(bits, np.bool_).reshape(height, width)
    folder = tmp_path_factory.mktemp("any")
    found = document(folder, [record("a", annotation(1, mask=mask), height=height, width=width)])
    if not mask.any():
        assert found["annotations"] == []
        return
    (one,) = found["annotations"]
    np.testing.assert_array_equal(coco_mask.decode(one["segmentation"]).astype(bool), mask)
    assert one["area"] == coco_mask.area(one["segmentation"])
    assert one["bbox"] == list(coco_mask.toBbox(one["segmentation"]))


def test_our_labels_are_a_perfect_answer_to_themselves(tmp_path: Path) -> None:
    records = [record(key, annotation(1), annotation(2, category="dog")) for key in "abc"]
    (tmp_path / "labels.json").write_text(exported(tmp_path / "journal", records), encoding="utf-8")
    truth = COCO(str(tmp_path / "labels.json"))
    evaluation = COCOeval(truth, truth.loadRes(truth.dataset["annotations"]), "segm")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    assert evaluation.stats[0] == pytest.approx(1.0)
