"""Exports come from the journal alone, equal the run's own file, and replace nothing that is not theirs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from labels import annotation, command, document, done, failed, rectangle, write

from labeler import export
from labeler.errors import JournalError, OutputError, UsageError
from labeler.journal import NAME


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pears = [annotation(rectangle(2, 3, 9, 7, hole=True), category="pear"), annotation(rectangle(0, 0, 3, 2), 2)]
    return write(tmp_path / "out", [done("b.jpg", pears), done("a/b.jpg"), failed("c.jpg", "is cut short")])


def test_equals_the_runs_own_file(folder: Path, tmp_path: Path) -> None:
    own = (folder / "annotations.json").read_bytes()
    lone = tmp_path / "lone"
    lone.mkdir()
    shutil.copy(folder / NAME, lone)
    done = command("export", lone, "--format", "coco")
    assert (done.exit_code, done.stdout) == (0, f"{lone / 'annotations.json'}\n")
    assert (lone / "annotations.json").read_bytes() == own
    assert export.export(folder, "coco", target=tmp_path / "x.json").read_bytes() == own
    assert sorted(path.name for path in lone.iterdir()) == ["annotations.json", NAME]


def test_categories_keep_their_ids(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "categories.json").write_text('[{"id": 7, "name": "pear"}, {"id": 3, "name": "thing"}]')
    target = tmp_path / "x.json"
    command("export", folder, "--format", "coco", "-o", target, "--categories", tmp_path / "categories.json")
    assert [entry["category_id"] for entry in json.loads(target.read_text())["annotations"]] == [7, 3]
    with pytest.raises(UsageError, match="thing"):
        export.export(folder, "coco", target=tmp_path / "y.json", categories={"pear": 1})
    assert not (tmp_path / "y.json").exists()


def test_the_same_again_is_fine_and_anything_else_is_kept(folder: Path, tmp_path: Path) -> None:
    command("export", folder, "--format", "coco")
    target = tmp_path / "x.json"
    target.write_text("mine")
    with pytest.raises(UsageError, match="is there already, with other content"):
        export.export(folder, "coco", target=target)
    assert target.read_text() == "mine"
    with pytest.raises(UsageError, match="is there already"):
        export.export(folder, "coco", target=folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "x.json"], "no temporary file stays"


def test_empty_and_failed_are_left_out_and_pictures_without_objects_stay(folder: Path) -> None:
    assert [entry["file_name"] for entry in document(folder)["images"]] == ["a/b.jpg", "b.jpg"]
    assert [entry["id"] for entry in document(folder)["annotations"]] == [1, 2]


def test_errors_say_what_to_do(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="yolo: is not a format; there are coco, davis"):
        export.export(folder, "yolo")
    with pytest.raises(UsageError, match="holds no journal"):
        command("export", tmp_path, "--format", "coco")
    with pytest.raises(OutputError, match="cannot be written"):
        export.export(folder, "coco", target=tmp_path / "no" / "x.json")
    (folder / NAME).write_bytes(b"{}\n" + (folder / NAME).read_bytes())
    with pytest.raises(JournalError, match="line 1 is damaged"):
        export.export(folder, "coco")
