"""What several tests share: where inputs lie, and the renderer of examples/ as an importable module."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from awkward import CORPUS, LACKING
from fullsize import bundles_dir, checkpoint, fp16, fp32  # noqa: F401  # fixtures of several files

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "examples"))


@pytest.fixture(scope="session")
def examples_dir() -> Path:
    """The folder of pictures, clips, seeds and true masks."""
    return REPOSITORY / "examples"


@pytest.fixture(scope="session")
def mini_dir() -> Path:
    """The small bundle that ships with the package."""
    return REPOSITORY / "models" / "mini"


@pytest.fixture(scope="session")
def one_click_dir(mini_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small bundle with its image pair, which takes one click, serving pictures: as the published one does."""
    folder = tmp_path_factory.mktemp("bundles") / "one-click"
    shutil.copytree(mini_dir, folder)
    document = json.loads((folder / "bundle.json").read_text())
    (folder / "bundle.json").write_text(json.dumps(document | {"stills": "image"}))
    return folder


@pytest.fixture(scope="session")
def corpus_dir() -> Path:
    """Awkward files that lie beside the checkout of those who work on it.

    A fresh clone has none and says so; in CI missing ones fail the test: what was not read was not tested.
    """
    if not CORPUS.is_dir():
        pytest.fail(LACKING) if os.environ.get("CI") else pytest.skip(LACKING)
    return CORPUS
