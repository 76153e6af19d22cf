"""The DAVIS layout read back by Pillow, against the run-length masks by pycocotools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labels import HEIGHT, WIDTH, annotation, command, done, failed, rectangle, write
from PIL import Image
from pycocotools import mask as coco_mask

from labeler import export
from labeler.errors import UsageError
from labeler.types import WHOLE_CLIP, Annotation

NOTHING = np.zeros((HEIGHT, WIDTH), bool)
OUTER, INNER = rectangle(2, 3, 20, 12), rectangle(8, 6, 5, 4)


def run(folder: Path, frames: dict[str, list[list[Annotation]]], **more: Any) -> Path:
    """Clips whose frames hold these objects."""
    records = [
        done(key, [*objects], frame=index, time_s=None)
        for key, clip in frames.items()
        for index, objects in enumerate(clip)
    ]
    return write(folder, [*records, *(done(key, frame=WHOLE_CLIP) for key in frames)], kind="videos", **more)


def picture(path: Path) -> Any:
    with Image.open(path) as image:
        assert image.mode == "P"
        return np.asarray(image)


def test_masks_come_back_with_their_ids(tmp_path: Path) -> None:
    far, near = rectangle(0, 0, 6, 5, hole=True), rectangle(20, 10, 10, 10)
    clips = {
        "a.mp4": [[annotation(far, 3), annotation(near, 255)], [annotation(NOTHING, 3, visible=False)]],
        "sub/a.mp4": [[annotation(near, 1)]],
        "sub/a.gif": [[]],
    }
    out = run(tmp_path / "out", clips)
    ended = command("export", out, "--format", "davis")
    assert ended.exit_code == 0
    assert ended.stdout == f"{out / 'davis'}\n"
    root = out / "davis" / "Annotations"
    written = {path.relative_to(root).as_posix(): picture(path) for path in root.rglob("*") if path.is_file()}
    assert written.keys() == {"a.mp4/00000.png", "a.mp4/00001.png", "sub/a.mp4/00000.png", "sub/a.gif/00000.png"}
    for key, clip in clips.items():
        for index, objects in enumerate(clip):
            ids_hw = written[f"{key}/{index:05}.png"]
            assert ids_hw.shape == (HEIGHT, WIDTH)
            assert set(np.unique(ids_hw)) == {0} | {each.object_id for each in objects if each.area}
            for each in objects:
                rle = coco_mask.encode(np.asfortranarray(ids_hw == each.object_id, np.uint8))
                assert str(rle["counts"], "ascii") == each.rle["counts"]


def test_colours_are_those_of_the_benchmark(tmp_path: Path) -> None:
    out = run(tmp_path, {"a.mp4": [[annotation(INNER)]]})
    export.export(out, "davis")
    with Image.open(tmp_path / "davis" / "Annotations" / "a.mp4" / "00000.png") as image:
        colours = np.asarray(image.getpalette()).reshape(-1, 3)
    assert colours[:9].tolist() == [
        [0, 0, 0],
        [128, 0, 0],
        [0, 128, 0],
        [128, 128, 0],
        [0, 0, 128],
        [128, 0, 128],
        [0, 128, 128],
        [128, 128, 128],
        [64, 0, 0],
    ]
    assert colours[-1].tolist() == [224, 224, 192]
    assert len({tuple(colour) for colour in colours}) == 256


@pytest.mark.parametrize("ids", [(1, 2), (2, 1)])
def test_the_smaller_mask_lies_on_top_and_what_is_covered_is_told(tmp_path: Path, ids: tuple[int, int]) -> None:
    outer, inner = ids
    twins = [annotation(INNER, 7), annotation(INNER, 5)]
    out = run(tmp_path, {"a.mp4": [[annotation(OUTER, outer), annotation(INNER, inner)], twins, [annotation(INNER)]]})
    ended = command("export", out, "--format", "davis")
    nested, same, _ = (picture(tmp_path / f"davis/Annotations/a.mp4/0000{index}.png") for index in range(3))
    assert (nested == inner).tolist() == INNER.tolist()
    assert (nested == outer).tolist() == (OUTER & ~INNER).tolist()
    assert set(np.unique(same)) == {0, 5}, "of equal ones the lower id"
    assert ended.stderr == (
        "note: where masks overlap the smaller lies on top: 40 pixels of 2 frames are covered, 1 masks of them wholly\n"
    )


def test_the_rule_is_in_the_help() -> None:
    words = " ".join(command("export", "--help").stdout.split())
    assert "where masks overlap the smaller lies on top" in words


def test_ids_that_no_pixel_can_have_are_all_told_and_nothing_is_written(tmp_path: Path) -> None:
    out = run(
        tmp_path, {"a.mp4": [[annotation(INNER, 1)], [annotation(INNER, 256)]], "b.mp4": [[annotation(INNER, 900)]]}
    )
    with pytest.raises(UsageError, match=r"above 255.*: 256 in 'a\.mp4', 900 in 'b\.mp4'; give smaller ids"):
        command("export", out, "--format", "davis")
    assert not (out / "davis").exists()


def test_the_same_again_is_fine_and_foreign_files_stay(tmp_path: Path) -> None:
    out = run(tmp_path, {"a.mp4": [[annotation(INNER, 1)], []]})
    target = tmp_path / "elsewhere"
    for _ in range(2):
        command("export", out, "--format", "davis", "-o", target)
    clip = target / "Annotations" / "a.mp4"
    (clip / "00001.png.tmp").write_bytes(b"left by a killed export")
    command("export", out, "--format", "davis", "-o", target)
    assert {path.name for path in clip.iterdir()} == {"00000.png", "00001.png"}
    (clip / "00000.png").write_bytes(b"mine")
    with pytest.raises(UsageError, match="is there already, with other content"):
        command("export", out, "--format", "davis", "-o", target)
    assert (clip / "00000.png").read_bytes() == b"mine"
    (clip / "00007.png").write_bytes(b"of a longer clip")
    with pytest.raises(UsageError, match=r"holds '00007\.png', which is not of this export"):
        command("export", out, "--format", "davis", "-o", target)
    assert (target / "Annotations").is_dir()


def test_clips_that_failed_keep_the_frames_before(tmp_path: Path) -> None:
    frames = [done("a.mp4", [annotation(INNER)], frame=index) for index in range(2)]
    ended = failed("a.mp4", "the frames from 2 on are lost", frame=WHOLE_CLIP)
    out = write(tmp_path, [*frames, ended], kind="videos")
    export.export(out, "davis")
    assert len(list((out / "davis").rglob("*.png"))) == 2


def test_what_has_no_place_in_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="davis is a layout for clips"):
        export.export(write(tmp_path / "pictures", [done("a.jpg")]), "davis")
    out = run(tmp_path / "clips", {"a.mp4": [[]]})
    (tmp_path / "categories.json").write_text('["thing"]')
    with pytest.raises(UsageError, match="no place for categories"):
        command("export", out, "--format", "davis", "--categories", tmp_path / "categories.json")
