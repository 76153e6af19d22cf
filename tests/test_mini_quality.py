"""The bundle that ships is as good as its card says: other weights change the card, or fail here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labeler.bundle import load
from labeler.model import find_model
from models.recipe import clip_figures, picture_figures
from models.recipe.evaluate import table
from models.recipe.photos import photographs
from models.recipe.sets import Case, picture_sets, shipped_sets

MARGIN = 0.02
"""Means of IoU on another processor, whose rounding may flip a candidate or a pixel."""
EXAMPLES, PICTURES, CLIPS, FRAMES = 12, 48, 3, 20
"""As `models.recipe.evaluate` has them by default."""


@pytest.fixture(scope="module")
def figures(mini_dir: Path) -> dict[str, Any]:
    """What `models.recipe.evaluate` wrote about the bundle that ships."""
    document: dict[str, Any] = json.loads((mini_dir.parent / "figures.json").read_text(encoding="utf-8"))
    return document


def test_the_figures_are_of_these_weights(figures: dict[str, Any], mini_dir: Path) -> None:
    assert figures["bundles"]["mini"]["digest"] == load(mini_dir).digest


def test_the_card_shows_all_figures(figures: dict[str, Any], mini_dir: Path) -> None:
    card = (mini_dir.parent / "README.md").read_text(encoding="utf-8").splitlines()
    missing = [line for line in table(figures["bundles"], figures["baselines"]).splitlines() if line not in card]
    assert not missing


def test_photographs_and_examples_are_answered_as_well_as_stated(figures: dict[str, Any], mini_dir: Path) -> None:
    _compare(shipped_sets(examples_count=EXAMPLES), figures, mini_dir)


@pytest.mark.slow
def test_held_out_material_is_answered_as_well_as_stated(figures: dict[str, Any], mini_dir: Path) -> None:
    data = mini_dir.parents[2] / "shared" / "data"
    if not data.is_dir():
        pytest.fail("the training material is missing: put shared/ beside the checkout")
    _compare(picture_sets(data, pictures=PICTURES), figures, mini_dir)


@pytest.mark.slow
def test_clips_are_followed_as_well_as_stated(figures: dict[str, Any], mini_dir: Path) -> None:
    model = find_model(mini_dir, task="videos", threads=2).load()
    found = clip_figures.tracking(model, clips=CLIPS, frames=FRAMES)
    assert found["all"] == pytest.approx(figures["bundles"]["mini"]["tracking"]["all"], abs=MARGIN)


def test_outlined_objects_lie_apart_unless_one_is_in_the_other() -> None:
    pictures = {name: masks for name, _, masks in photographs()}
    assert sum(len(masks) for masks in pictures.values()) == 40
    assert not (pictures["coffee.png"]["saucer"] & pictures["coffee.png"]["cup"]).any()
    assert (pictures["chelsea.png"]["cat"] | ~pictures["chelsea.png"]["eye"]).all()
    coins = np.sum([mask.astype(int) for mask in pictures["coins.png"].values()], axis=0)
    assert coins.max() == 1


def _compare(sets: dict[str, list[Case]], figures: dict[str, Any], folder: Path) -> None:
    model = find_model(folder, threads=2).load()
    scored = find_model(folder, task="videos", threads=2).load()
    for name, cases in sets.items():
        found = picture_figures.summary(picture_figures.clicks(cases, model, scored))
        assert found == pytest.approx(figures["bundles"]["mini"]["pictures"][name], abs=MARGIN), name
