"""A model of the recipe as a bundle: it loads, follows the contract, stays small, and equals PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from labeler.bundle import load
from labeler.model import find_model
from labeler.segment import segment
from labeler.types import Point, Seed
from models.recipe.export import export
from models.recipe.graphs import folded, graphs
from models.recipe.model import Model
from models.recipe.options import ModelOptions
from models.recipe.read_back import read_back

pytestmark = pytest.mark.slow
ROLES = ["encode", "decode", "memorize", "memcond2", "memcond7", "image_decode"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Path]:
    torch.manual_seed(4)
    model, out = Model(ModelOptions()), tmp_path_factory.mktemp("bundles") / "mini"
    export(model, out, provenance={}, version="test", progress=lambda _: None)
    return model, out


def test_the_bundle_is_whole_and_small(exported: tuple[Model, Path]) -> None:
    bundle = load(exported[1])
    assert bundle.tracks
    assert bundle.memory_slots == (2, 7)
    assert sum(spec.nbytes or 0 for spec in bundle.files().values()) < 12_000_000


@pytest.mark.parametrize("role", ROLES)
def test_each_graph_computes_what_its_module_does(exported: tuple[Model, Path], role: str) -> None:
    _compare(*exported, role, 0.02)


@pytest.fixture(scope="module")
def read(mini_dir: Path) -> Model:
    return folded(read_back(mini_dir))


@pytest.mark.parametrize("role", ROLES)
def test_the_bundle_that_ships_can_be_read_back(read: Model, mini_dir: Path, role: str) -> None:
    _compare(read, mini_dir, role, 0.005)


def _compare(model: Model, folder: Path, role: str, tolerance: float) -> None:
    runtime = find_model(folder, task="videos", threads=2).load().runtime
    graph = next(each for each in graphs(model) if each.role == role)
    rng = np.random.default_rng(6)
    inputs = {part.name: rng.normal(0, 0.5, part.shape).astype(np.float32) for part in graph.inputs}
    if "key_mask" in inputs:
        inputs["key_mask"] = np.where(np.arange(inputs["key_mask"].size) < 4096, 0, -1e9).astype(np.float32)
        inputs["key_mask"][-64:-56] = 0
    found = runtime.run(role, **inputs)
    with torch.no_grad():
        expected = graph.module(*(torch.from_numpy(inputs[part.name])[None] for part in graph.inputs))
    for part, tensor in zip(graph.outputs, expected, strict=True):
        ours, theirs = found[part.name].ravel(), tensor.numpy().ravel()
        assert np.abs(ours - theirs).max() <= tolerance * max(1.0, np.abs(theirs).max()), part.name


def test_pictures_and_several_points_are_served(exported: tuple[Model, Path], examples_dir: Path) -> None:
    model = find_model(exported[1], threads=2).load()
    rgb = np.array(Image.open(examples_dir / "pictures" / "shelf.jpg").convert("RGB"))
    seed = Seed(1, (Point(100, 100), Point(300, 200), Point(5, 5, positive=False)))
    (one,) = segment(rgb, [seed], model, height=rgb.shape[0], width=rgb.shape[1])
    assert not one.selection.startswith("selected_among"), "the decoder takes the points itself"
    assert one.predicted_iou is not None
