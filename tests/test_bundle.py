"""Bundles: described, read back, and every fault of their files told in one line each before anything runs."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labeler import bundle, flatbuffer
from labeler.bundle import ConstantSpec, Part
from labeler.errors import BundleError

PUBLISHED = Path(flatbuffer.__file__).parent / "published"


def document(mini_dir: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((mini_dir / "bundle.json").read_text())
    return read


@pytest.fixture
def copied(mini_dir: Path, tmp_path: Path) -> Path:
    """A copy of the small bundle that a test may damage."""
    return Path(shutil.copytree(mini_dir, tmp_path / "copied"))


def faults(call: Callable[[], object]) -> tuple[str, ...]:
    with pytest.raises(BundleError) as caught:
        call()
    assert all("\n" not in fault for fault in caught.value.faults)
    return caught.value.faults


@pytest.mark.parametrize("name", ["mini", "sam2.1-hiera-tiny"])
def test_describe_is_the_inverse_of_parse(mini_dir: Path, name: str) -> None:
    path = mini_dir / "bundle.json" if name == "mini" else PUBLISHED / f"{name}.json"
    read = json.loads(path.read_text())
    parsed = bundle.parse(read, folder=mini_dir, where="here")
    assert bundle.describe(parsed) == read
    assert bundle.parse(bundle.describe(parsed), folder=mini_dir, where="here") == parsed


def test_what_a_bundle_tells_of_itself(mini_dir: Path) -> None:
    mini = bundle.load(mini_dir)
    assert mini.memory_slots == (2, 7)
    assert mini.tracks
    assert mini.still_roles() == ("encode", "decode")
    assert replace(mini, stills="image").still_roles() == ("image_encode", "image_decode")
    without = replace(mini, graphs={role: spec for role, spec in mini.graphs.items() if role != "memorize"})
    assert not without.tracks
    assert len(mini.files()) == 12  # two roles share their encoder


def test_a_bundle_without_a_pair_for_pictures(mini_dir: Path) -> None:
    mini = bundle.load(mini_dir)
    assert "needs encode and decode" in faults(replace(mini, graphs={"encode": mini.graphs["encode"]}).still_roles)[0]


def _without(*keys: str) -> Callable[[dict[str, Any]], None]:
    def change(read: dict[str, Any]) -> None:
        for key in keys[:-1]:
            read = read[key]
        del read[keys[-1]]

    return change


def _with(value: Any, *keys: str | int) -> Callable[[Any], None]:
    def change(read: Any) -> None:
        for key in keys[:-1]:
            read = read[key]
        read[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_with("sam2label/bundle/2", "schema"), "may need a newer sam2label"),
        (_without("schema"), "schema"),
        (_without("name"), "name"),
        (_with(7, "version"), "version"),
        (_with("sometimes", "stills"), "stills"),
        (_with("worst", "image_candidate_0"), "image_candidate_0"),
        (_with([], "graphs"), "graphs"),
        (_with(None, "graphs", "encode"), "missing or malformed"),
        (_without("graphs", "encode", "inputs"), "inputs"),
        (_with([], "graphs", "encode", "outputs"), "outputs"),
        (_with("stacked", "graphs", "encode", "layout"), "layout"),
        (_with([0, 4], "graphs", "encode", "inputs", 0, "shape"), "inputs"),
        (_with([1.5], "graphs", "encode", "inputs", 0, "shape"), "inputs"),
        (_with(True, "graphs", "encode", "bytes"), "bytes"),
        (_with(12, "graphs", "encode", "sha256"), "sha256"),
        (_with("../elsewhere.tflite", "graphs", "encode", "file"), "file"),
        (_with("/etc/passwd", "constants", "prompt", "file"), "file"),
        (_with("..\\up.bin", "constants", "prompt", "file"), "file"),
        (_with("", "constants", "prompt", "file"), "file"),
        (_with("none", "provenance"), "provenance"),
    ],
)
def test_a_description_that_makes_no_sense(mini_dir: Path, change: Callable[[Any], None], named: str) -> None:
    read = copy.deepcopy(document(mini_dir))
    change(read)
    (fault,) = faults(lambda: bundle.parse(read, folder=mini_dir, where="there/bundle.json"))
    assert fault.startswith("there/bundle.json: ")
    assert named in fault


@pytest.mark.parametrize("read", [[], "text", None, 3])
def test_a_description_that_is_no_object(mini_dir: Path, read: Any) -> None:
    assert len(faults(lambda: bundle.parse(read, folder=mini_dir, where="x"))) == 1


@pytest.mark.parametrize("content", ['{"schema": ', b"\xff\xfe\x00", ""], ids=["cut", "not utf-8", "empty"])
def test_a_descriptor_that_is_not_json(tmp_path: Path, content: str | bytes) -> None:
    (tmp_path / "bundle.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert "is not JSON" in faults(lambda: bundle.load(tmp_path))[0]


def test_a_folder_without_descriptor(tmp_path: Path) -> None:
    assert "bundle.json: cannot be read" in faults(lambda: bundle.load(tmp_path))[0]


def test_every_missing_and_cut_file_is_listed(copied: Path, mini_dir: Path) -> None:
    (copied / "sam2v_mtpe.bin").unlink()
    os.truncate(copied / "sam2v_decode.tflite", 1000)
    with (copied / "sam2v_prompt.bin").open("ab") as stream:
        stream.write(b"more")
    found = faults(lambda: bundle.load(copied))
    assert len(found) == 3
    assert any("sam2v_mtpe.bin: is missing" in fault for fault in found)
    size = bundle.load(mini_dir).graphs["decode"].nbytes
    assert any(f"sam2v_decode.tflite: has 1000 bytes instead of {size}" in fault for fault in found)
    assert any("sam2v_prompt.bin: has 4100 bytes instead of 4096" in fault for fault in found)


def test_verify_finds_one_changed_bit_in_each_file(copied: Path) -> None:
    names = ("sam2v_encode.tflite", "sam2v_mtpe.bin")
    for name in names:
        content = bytearray((copied / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copied / name).write_bytes(content)
    found = faults(lambda: bundle.verify(bundle.load(copied)))
    assert [next(name for name in names if name in fault) for fault in found] == list(names)


def test_lock_measures_and_verify_accepts_what_was_locked(copied: Path) -> None:
    published = json.loads((PUBLISHED / "sam2.1-hiera-tiny.json").read_text())
    for spec in published["graphs"].values():
        if not (copied / spec["file"]).exists():  # only the image encoder: the small bundle has one file for two roles
            shutil.copy(copied / "sam2v_encode.tflite", copied / spec["file"])
    loose = bundle.parse(published, folder=copied, where="x")
    locked = bundle.verify(loose)
    for name, spec in locked.files().items():
        content = (copied / name).read_bytes()
        assert spec.nbytes == len(content)
        assert spec.sha256 == hashlib.sha256(content).hexdigest()
    assert bundle.verify(locked) == locked
    assert locked.digest != loose.digest


def test_the_digest_tells_models_apart_but_not_folders_or_names(mini_dir: Path) -> None:
    mini = bundle.load(mini_dir)
    same = replace(mini, folder=Path("elsewhere"), name="other", version="9", provenance={"by": "me"})
    assert same.digest == mini.digest
    changed = replace(mini.graphs["decode"], sha256="0" * 64)
    assert replace(mini, graphs={**mini.graphs, "decode": changed}).digest != mini.digest
    assert replace(mini, stills="image").digest != mini.digest


def test_constants_are_cut_into_their_parts(tmp_path: Path, mini_dir: Path) -> None:
    values = np.arange(9, dtype="<f4")
    values.tofile(tmp_path / "c.bin")
    spec = ConstantSpec("c.bin", None, None, (Part("a", (2, 3)), Part("b", (3,))))
    made = replace(bundle.load(mini_dir), folder=tmp_path, constants={"c": spec})
    read = bundle.read_constant(made, "c")
    assert read["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read["b"].tolist() == [6, 7, 8]
    longer = replace(spec, parts=(*spec.parts, Part("c", (1,))))
    found = faults(lambda: bundle.read_constant(replace(made, constants={"c": longer}), "c"))
    assert "holds 9 float32 values, bundle.json says 10" in found[0]


@pytest.mark.parametrize("name", ["encode", "decode", "memorize", "memcond7"])
def test_a_graph_cut_anywhere_is_known_without_its_size(mini_dir: Path, tmp_path: Path, name: str) -> None:
    whole = (mini_dir / f"sam2v_{name}.tflite").read_bytes()
    path = tmp_path / "cut.tflite"
    path.write_bytes(whole)
    assert flatbuffer.fault(path) is None
    for nbytes in (len(whole) - 1, len(whole) - 64, *(len(whole) * i // 40 for i in range(40)), 3, 8, 100):
        path.write_bytes(whole[:nbytes])
        assert flatbuffer.fault(path) is not None, nbytes


@pytest.mark.parametrize("seed", range(20))
def test_garbage_is_no_graph(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "garbage.tflite"
    noise = np.random.default_rng(seed).bytes(5000)
    for content in (noise, noise[:4] + b"TFL3" + noise[8:], b"\x10\0\0\0TFL3" + noise[8:], bytes(5000)):
        path.write_bytes(content)
        assert flatbuffer.fault(path) is not None


def test_a_cut_graph_of_unknown_size_is_refused_by_load(copied: Path) -> None:
    read = document(copied)
    for spec in read["graphs"].values():
        spec["bytes"] = spec["sha256"] = None
    (copied / "bundle.json").write_text(json.dumps(read))
    bundle.load(copied)
    size = (copied / "sam2v_memorize.tflite").stat().st_size
    os.truncate(copied / "sam2v_memorize.tflite", size - 8)
    assert "sam2v_memorize.tflite: is cut short" in faults(lambda: bundle.load(copied))[0]
