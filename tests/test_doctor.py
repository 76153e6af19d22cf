"""The doctor finds nothing wrong here, and says what is wrong elsewhere."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
from labels import command

from labeler import bundle as bundles
from labeler import doctor
from labeler.model import ModelSpec


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
def test_all_is_good_here(tmp_path: Path) -> None:
    result = command("doctor", "--models-dir", tmp_path)
    assert result.exit_code == 0, result.stdout
    lines = result.stdout.splitlines()
    assert all(line.startswith("ok ") for line in lines)
    subjects = [line.split(": ")[0].removeprefix("ok").strip() for line in lines]
    for subject in ("python", "ai-edge-litert", "bundle mini", "machine", "accelerator", "self-test"):
        assert subject in subjects
    assert "IoU 0." in lines[-1]


def test_the_disc_is_a_disc() -> None:
    rgb, disc, click = doctor.scene()
    assert rgb.shape == (*disc.shape, 3)
    assert disc.sum() == pytest.approx(np.pi * 45**2, rel=0.01)
    assert disc[int(click.y), int(click.x)]
    assert len(np.unique(rgb.reshape(-1, 3), axis=0)) == 2


def test_a_damaged_bundle_is_bad(tmp_path: Path, mini_dir: Path) -> None:
    shutil.copytree(mini_dir, tmp_path / "hurt")
    (tmp_path / "hurt" / "sam2_decoder.tflite").write_bytes(b"short")
    result = command("doctor", "--models-dir", tmp_path, "--accelerator", "cpu")
    assert result.exit_code == 1
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("BAD")]
    assert line.startswith("BAD  bundle hurt: damaged in ")
    assert "sam2_decoder.tflite: has 5 bytes" in line


def test_a_model_that_is_not_there_is_bad_and_nothing_is_tried(tmp_path: Path) -> None:
    result = command("doctor", "--model", "giant", "--models-dir", tmp_path)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].startswith("BAD  model: giant: ")


def test_a_gpu_that_cannot_be_had_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VK_DRIVER_FILES", str(tmp_path / "none.json"))
    monkeypatch.setenv("VK_ICD_FILENAMES", str(tmp_path / "none.json"))
    result = command("doctor", "--models-dir", tmp_path, "--accelerator", "gpu")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].startswith("BAD  accelerator: ")


def test_a_model_that_does_not_see_the_disc_is_bad(tmp_path: Path, mini_dir: Path) -> None:
    """The shipped bundle with its click tokens mixed up: everything loads and runs, and the mask is wrong."""
    folder = tmp_path / "blind"
    shutil.copytree(mini_dir, folder)
    document = json.loads((folder / bundles.DESCRIPTOR).read_text())
    prompt = folder / document["constants"]["prompt"]["file"]
    values = np.fromfile(prompt, "<f4")
    np.random.default_rng(0).normal(0, 20, values.size).astype("<f4").tofile(prompt)
    blind = bundles.lock(bundles.parse(document, folder=folder, where="test"))
    finding = doctor.self_test(ModelSpec(blind, 1, "images"))
    assert not finding.good
    assert "IoU" in finding.text


def test_a_package_that_is_not_installed_is_bad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "LIBRARIES", ("numpy", "no-such-package"))
    found = {finding.subject: finding for finding in doctor.examine("giant", models_dir=tmp_path)}
    assert found["numpy"].good
    assert not found["no-such-package"].good
