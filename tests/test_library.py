"""The library as a training pipeline calls it: records out, nothing written, one object that travels to processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import command
import numpy as np
import pytest
import render

import labeler
from labeler.bundle import load
from labeler.errors import BundleError, SeedError, SourceError, UsageError
from labeler.sam2 import Sam2

HEIGHT, WIDTH = 96, 128


@pytest.fixture(scope="module")
def model(mini_dir: Path) -> Sam2:
    return labeler.load_model(mini_dir, threads=1)


@pytest.fixture(scope="module")
def spec(mini_dir: Path) -> labeler.ModelSpec:
    return labeler.ModelSpec(load(mini_dir), threads=1)


@pytest.fixture
def folder(tmp_path: Path) -> tuple[Path, Path]:
    """Three pictures and their seeds."""
    root = tmp_path / "pictures"
    return root, command.album(root, ["a10.png", "a9.png", "sub/c.png"], height=HEIGHT, width=WIDTH)


def scene(number: int = 0) -> tuple[Any, list[labeler.Seed]]:
    rgb, labels = render.render_picture(number, HEIGHT, WIDTH, 2)
    clicks = [render.click_point(labels == n) for n in (1, 2)]
    return rgb, [labeler.Seed(n, (labeler.Point(*click),)) for n, click in enumerate(clicks, 1)]


def told(record: labeler.Record) -> dict[str, Any]:
    """A record without what differs between runs."""
    return asdict(record) | {"seconds": 0}


# label_images


def test_records_come_in_natural_order_and_nothing_is_written(model: Sam2, folder: tuple[Path, Path]) -> None:
    before = command.listing(folder[0].parent)
    records = list(labeler.label_images(*folder, model=model))
    assert [record.key for record in records] == ["a9.png", "a10.png", "sub/c.png"]
    assert all(record.status == "done" and len(record.annotations) == 2 for record in records)
    assert all((record.height, record.width) == (HEIGHT, WIDTH) for record in records)
    assert command.listing(folder[0].parent) == before


def test_records_are_made_one_by_one_as_they_are_asked_for(model: Sam2, folder: tuple[Path, Path]) -> None:
    records = labeler.label_images(*folder, model=model)
    assert isinstance(records, Iterator)
    assert next(records).status == "done"
    (folder[0] / "a10.png").unlink()
    assert [record.status for record in records] == ["failed", "done"]


def test_the_library_and_the_command_make_the_same_records(
    model: Sam2, folder: tuple[Path, Path], tmp_path: Path
) -> None:
    assert command.images(*folder, tmp_path / "labels").code == 0
    written = {record["key"]: record | {"seconds": 0} for record in command.records(tmp_path / "labels")}
    for record in labeler.label_images(*folder, model=model):
        found = told(record)
        for annotation in found["annotations"]:
            annotation["points"] = [list(point) for point in annotation["points"]]
            annotation["bbox"] = list(annotation["bbox"])
        found["annotations"] = list(found["annotations"])
        shared = found.keys() & written[record.key].keys()
        assert shared >= {"annotations", "fingerprint", "height", "width", "status"}
        assert {name: _plain(found[name]) for name in shared} == {name: written[record.key][name] for name in shared}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_seeds_may_be_values_instead_of_a_file(model: Sam2, folder: tuple[Path, Path]) -> None:
    _, seeds = scene()
    (record,) = labeler.label_images(folder[0], {"sub/c.png": seeds}, model=model)
    assert record.key == "sub/c.png"
    assert [annotation.object_id for annotation in record.annotations] == [1, 2]


def test_all_faults_of_the_seeds_are_told_before_the_first_picture(model: Sam2, folder: tuple[Path, Path]) -> None:
    outside = [labeler.Seed(1, (labeler.Point(500, 5),)), labeler.Seed(2, (labeler.Point(5, 500),))]
    with pytest.raises(SeedError) as error:
        labeler.label_images(folder[0], {"sub/c.png": outside}, model=model)
    assert len(error.value.faults) == 2


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "no folder": (lambda root: root / "missing", {"a9.png": []}, "No such file"),
    "no picture of that name": (lambda root: root, {"b.png": []}, "none of its 1 entries"),
}


@pytest.mark.parametrize(("root", "seeds", "message"), REFUSED.values(), ids=REFUSED)
def test_nothing_to_label_is_an_error(
    model: Sam2, folder: tuple[Path, Path], root: Any, seeds: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        labeler.label_images(root(folder[0]), seeds, model=model)


def test_a_model_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=str(tmp_path)):
        labeler.load_model(tmp_path)


# ImageLabeler


def test_arrays_and_files_give_the_same_masks(model: Sam2, tmp_path: Path) -> None:
    rgb, seeds = scene()
    command.scene(0, HEIGHT, WIDTH, 2)[0].save(path := tmp_path / "a.png")
    label = labeler.ImageLabeler(model)
    from_array, from_file = label(rgb, seeds, key="a.png"), label(path, seeds)
    assert from_array.status == "done"
    assert from_array.annotations == from_file.annotations
    assert (from_array.key, from_array.height, from_array.width) == ("a.png", HEIGHT, WIDTH)
    assert label(str(path), seeds).annotations == from_file.annotations


def test_an_array_in_any_memory_layout_is_the_same_picture_and_stays_as_it_was(model: Sam2) -> None:
    rgb, seeds = scene()
    label = labeler.ImageLabeler(model)
    turned = np.asfortranarray(rgb)
    turned.setflags(write=False)
    kept = turned.copy()
    assert label(turned, seeds).annotations == label(rgb, seeds).annotations
    np.testing.assert_array_equal(turned, kept)


ARRAYS = {
    "floats": np.zeros((9, 9, 3), np.float32),
    "grey": np.zeros((9, 9), np.uint8),
    "channels first": np.zeros((3, 9, 9), np.uint8),
    "with alpha": np.zeros((9, 9, 4), np.uint8),
    "16 bits": np.zeros((9, 9, 3), np.uint16),
    "nothing": np.zeros((0, 9, 3), np.uint8),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_other_arrays_are_refused_not_coerced(model: Sam2, array: Any) -> None:
    with pytest.raises(SourceError, match=r"expected uint8 RGB \[height, width, 3\]"):
        labeler.ImageLabeler(model)(array, [labeler.Seed(1, (labeler.Point(1, 1),))])


def test_seeds_outside_an_array_are_an_error(model: Sam2) -> None:
    rgb, _ = scene()
    with pytest.raises(SeedError, match="outside the upright picture, width 128, height 96"):
        labeler.ImageLabeler(model)(rgb, [labeler.Seed(1, (labeler.Point(WIDTH, 1),))])


def test_a_file_that_is_no_picture_gives_a_failed_record(model: Sam2, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no")
    for path in (tmp_path / "a.png", tmp_path / "missing.png"):
        record = labeler.ImageLabeler(model)(path, [labeler.Seed(1, (labeler.Point(1, 1),))])
        assert record.status == "failed"
        assert record.error
        assert str(tmp_path) not in record.error
        assert record.annotations == ()


def test_no_seeds_give_a_picture_without_annotations(model: Sam2) -> None:
    record = labeler.ImageLabeler(model)(scene()[0], [])
    assert (record.status, record.annotations, record.height) == ("done", (), HEIGHT)


def test_masks_decode_to_what_the_annotation_says(model: Sam2) -> None:
    rgb, seeds = scene()
    for annotation in labeler.ImageLabeler(model)(rgb, seeds).annotations:
        mask = labeler.decode_mask(dict(annotation.rle))
        assert mask.shape == (HEIGHT, WIDTH)
        assert mask.dtype == np.bool_
        assert mask.sum() == annotation.area > 0


# In other processes


def test_a_labeler_around_a_loaded_model_says_why_it_cannot_travel(model: Sam2) -> None:
    with pytest.raises(TypeError, match="ModelSpec"):
        pickle.dumps(labeler.ImageLabeler(model))


def test_a_labeler_travels_also_after_it_has_worked(spec: labeler.ModelSpec) -> None:
    rgb, seeds = scene()
    label = labeler.ImageLabeler(spec, labeler.ImageOptions(keep="all"))
    before = pickle.dumps(label)
    assert len(before) < 20_000, "a model does not travel, its description does"
    first = label(rgb, seeds)
    assert pickle.dumps(label) == before
    again = pickle.loads(before)
    assert again.options.keep == "all"
    assert told(again(rgb, seeds)) == told(first)


def label_scene(label: labeler.ImageLabeler, number: int) -> tuple[int, labeler.Record]:
    return os.getpid(), label(*scene(number))


def test_a_pool_of_spawned_processes_maps_it(spec: labeler.ModelSpec) -> None:
    label = labeler.ImageLabeler(spec)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(label_scene, [(label, number) for number in range(4)], chunksize=2)
    assert os.getpid() not in {process for process, _ in found}
    assert [told(record) for _, record in found] == [told(label(*scene(number))) for number in range(4)]
