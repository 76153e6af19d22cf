"""Everything that the README prints works as printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from labeler import seeds

REPOSITORY = Path(__file__).resolve().parent.parent
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


SETUP, LABEL, TEST, *MORE = blocks("sh")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like a fresh clone to the commands, whose outputs stay out of the checkout."""
    path = tmp_path_factory.mktemp("clone")
    for name in ("examples", "models"):
        (path / name).symlink_to(REPOSITORY / name)
    return path


def run(command: str, folder: Path) -> str:
    """Run a block in bash with this interpreter's scripts first in PATH, and stop at the first failure."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=os.environ | {"PATH": path, "XDG_DATA_HOME": str(folder / "data")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_setup_and_test_commands_are_those_of_ci() -> None:
    """The set-up itself is run by .ci/run on a bare machine, with the same words."""
    script = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    assert SETUP == "python3 -m venv .venv && . .venv/bin/activate\npip install -e '.[dev]'\n"
    assert "python3 -m venv" in script
    assert "pip install --quiet -e '.[dev]'" in script
    assert TEST.strip() in script.splitlines()


def test_labelling_twice_and_what_can_be_done_with_the_labels(folder: Path) -> None:
    first = run(LABEL, folder)
    assert "8 pictures labelled (0 of them earlier), 0 failed" in first
    assert "1 clips labelled (0 of them earlier), 0 failed" in first
    for name in ("pictures", "clips"):
        assert json.loads((folder / "labels" / name / "annotations.json").read_text())["annotations"]
    assert "8 pictures labelled (8 of them earlier)" in run(LABEL, folder)
    for block in MORE:
        run(block, folder)


def test_python(folder: Path) -> None:
    (code,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" done [") == 8


def test_seeds(tmp_path: Path) -> None:
    short, full = blocks("json")
    for text, entries in ((short, 2), (full, 2)):
        path = tmp_path / "seeds.json"
        path.write_text(text)
        assert len(seeds.load(path).entries) == entries
