"""Bundles are found by folder and by name, and pulled from a hub that may fail at any point."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import hubserver
import numpy as np
import pytest
import tinygraph
from hubserver import COMMIT, Hub

from labeler import bundle, hub
from labeler.errors import BundleError

NAME = hub.PREFERRED
DESCRIPTOR = json.loads((Path(hub.__file__).parent / "published" / f"{NAME}.json").read_text())
REPOSITORY = DESCRIPTOR["origin"].removeprefix("hf://")
IMAGE_PAIR = ("sam2_encoder.tflite", "sam2_decoder.tflite", "sam2_prompt.bin")
VIDEO_PAIR = ("sam2v_encode.tflite", "sam2v_decode.tflite", "sam2v_prompt.bin")
TRACKING = (
    "sam2v_memorize.tflite",
    "sam2v_track_sparse.bin",
    "sam2v_mtpe.bin",
    "sam2v_no_obj_ptr.bin",
    "sam2v_tpos_proj.bin",
)


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files with the published names: constants of the right size, graphs that are whole but of a few values."""
    folder, files = tmp_path_factory.mktemp("published"), {}
    for i, spec in enumerate(DESCRIPTOR["graphs"].values()):
        tinygraph.write(folder / spec["file"], sizes=[8 + i], sums=[(0, 0)])
        # Weights behind the flatbuffer, as large graphs have them, so that half a file is worth killing.
        files[spec["file"]] = (folder / spec["file"]).read_bytes() + bytes([i]) * 50_000
    rng = np.random.default_rng(0)
    for spec in DESCRIPTOR["constants"].values():
        size = sum(int(np.prod(part["shape"])) for part in spec["parts"])
        files[spec["file"]] = rng.standard_normal(size).astype("<f4").tobytes()
    return files


@pytest.fixture
def server(published: dict[str, bytes]) -> Iterator[Hub]:
    with hubserver.serving(REPOSITORY, published) as running:
        yield running


@pytest.fixture
def folder_of(published: dict[str, bytes], tmp_path: Path) -> Callable[..., Path]:
    def make(*names: str) -> Path:
        folder = tmp_path / "plain"
        folder.mkdir(exist_ok=True)
        for name in names:
            (folder / name).write_bytes(published[name])
        return folder

    return make


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


def fault(call: Callable[[], object]) -> str:
    with pytest.raises(BundleError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Finding


def test_a_folder_with_a_descriptor(mini_dir: Path, models: Path) -> None:
    found = hub.resolve(mini_dir, models_dir=models)
    assert (found.bundle, found.notice) == (bundle.load(mini_dir), None)
    assert hub.resolve(str(mini_dir), models_dir=models) == found


def test_what_is_resolved_was_hashed(mini_dir: Path, models: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(mini_dir, tmp_path / "copied"))
    content = bytearray((copied / "sam2_decoder.tflite").read_bytes())
    content[5000] ^= 1
    (copied / "sam2_decoder.tflite").write_bytes(content)
    assert "sam2_decoder.tflite: sha256 is" in fault(lambda: hub.resolve(copied, models_dir=models))


def test_a_name_that_ships(mini_dir: Path, models: Path) -> None:
    assert hub.resolve("mini", models_dir=models).bundle.folder == mini_dir


def test_a_name_is_not_confused_with_a_folder_of_something_else(
    mini_dir: Path, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mini").mkdir()
    monkeypatch.chdir(tmp_path)
    assert hub.resolve("mini", models_dir=models).bundle.folder == mini_dir


def test_by_default_the_small_one_with_a_notice(models: Path) -> None:
    found = hub.resolve(None, models_dir=models)
    assert found.bundle.name == "mini"
    assert found.notice is not None
    assert "sam2label models pull sam2.1-hiera-tiny" in found.notice
    assert "\n" not in found.notice


def test_by_default_the_large_one_where_it_is_installed(mini_dir: Path, models: Path) -> None:
    shutil.copytree(mini_dir, models / NAME)
    found = hub.resolve(None, models_dir=models)
    assert (found.bundle.folder, found.notice) == (models / NAME, None)
    os.truncate(models / NAME / "sam2v_decode.tflite", 10)
    assert "has 10 bytes" in fault(lambda: hub.resolve(None, models_dir=models))  # never silently the other one


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("minni", "did you mean 'mini'?"),
        ("sam2.1-hiera-tinny", "did you mean 'sam2.1-hiera-tiny'?"),
        (NAME, f"is not installed; to install: sam2label models pull {NAME}"),
        ("/no/such/folder", "neither a folder nor a bundle; here are: mini"),
    ],
)
def test_unknown_names(models: Path, name: str, told: str) -> None:
    assert told in fault(lambda: hub.resolve(name, models_dir=models))


def test_known_lists_each_bundle_once(mini_dir: Path, models: Path) -> None:
    assert [(entry.name, entry.state) for entry in hub.known(models)] == [("mini", "shipped"), (NAME, "available")]
    shutil.copytree(mini_dir, models / NAME)
    (models / ".x.partial").mkdir()
    shutil.copytree(mini_dir, models / "broken")
    (models / "broken" / "sam2_prompt.bin").unlink()
    entries = {entry.name: entry for entry in hub.known(models)}
    assert {name: entry.state for name, entry in entries.items()} == {
        "mini": "shipped",
        NAME: "installed",
        "broken": "damaged",
    }
    assert entries["mini"].license == "Apache-2.0"
    assert entries[NAME].folder == models / NAME
    assert "sam2_prompt.bin: is missing" in str(entries["broken"].fault)


def test_default_models_dir_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert hub.default_models_dir() == tmp_path / "sam2label" / "models"


# Plain folders of published files


def test_a_folder_of_all_published_files(
    folder_of: Callable[..., Path], published: dict[str, bytes], models: Path
) -> None:
    found = hub.resolve(folder_of(*published), models_dir=models).bundle
    assert found.tracks
    assert found.memory_slots == (2, 7)
    assert found.still_roles() == ("encode", "decode")
    assert all(spec.sha256 is not None and spec.nbytes is not None for spec in found.files().values())


def test_the_image_pair_alone(folder_of: Callable[..., Path], models: Path) -> None:
    found = hub.resolve(folder_of(*IMAGE_PAIR), models_dir=models).bundle
    assert found.still_roles() == ("image_encode", "image_decode")
    assert not found.tracks
    assert set(found.files()) == set(IMAGE_PAIR)


def test_the_video_pair_alone_labels_pictures(folder_of: Callable[..., Path], models: Path) -> None:
    found = hub.resolve(folder_of(*VIDEO_PAIR), models_dir=models).bundle
    assert found.still_roles() == ("encode", "decode")
    assert not found.tracks


def test_one_memory_graph_is_enough_to_track(folder_of: Callable[..., Path], models: Path) -> None:
    folder = folder_of(*VIDEO_PAIR, *TRACKING, "sam2v_memcond7.tflite")
    found = hub.resolve(folder, models_dir=models).bundle
    assert found.tracks
    assert found.memory_slots == (7,)


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (("sam2_encoder.tflite",), ["sam2_decoder.tflite", "sam2_prompt.bin"]),
        (IMAGE_PAIR[:2], ["sam2_prompt.bin"]),
        (("sam2v_decode.tflite", "sam2v_prompt.bin"), ["sam2v_encode.tflite"]),
        ((*VIDEO_PAIR, *TRACKING), ["sam2v_memcond2.tflite or sam2v_memcond7.tflite"]),
        ((*VIDEO_PAIR, *TRACKING[:-1], "sam2v_memcond2.tflite"), ["sam2v_tpos_proj.bin"]),
        ((*TRACKING, "sam2v_memcond2.tflite"), ["sam2v_encode.tflite", "sam2v_decode.tflite", "sam2v_prompt.bin"]),
        ((*IMAGE_PAIR, "sam2v_encode.tflite"), ["sam2v_decode.tflite", "sam2v_prompt.bin"]),
    ],
    ids=["no decoder", "no constants", "no encoder", "no memory graph", "no projection", "memory only", "half of two"],
)
def test_half_a_set_is_an_error_that_lists_the_other_half(
    folder_of: Callable[..., Path], models: Path, names: tuple[str, ...], missing: list[str]
) -> None:
    folder = folder_of(*names)
    with pytest.raises(BundleError) as caught:
        hub.resolve(folder, models_dir=models)
    assert [line.split(": ")[1].split(" is missing")[0] for line in caught.value.faults] == missing


@pytest.mark.parametrize("names", [(), ("sam2_prompt.bin",)], ids=["empty", "constants only"])
def test_a_folder_without_any_graph(folder_of: Callable[..., Path], models: Path, names: tuple[str, ...]) -> None:
    assert "bundle.json" in fault(lambda: hub.resolve(folder_of(*names), models_dir=models))
    assert "bundle.json" in fault(lambda: hub.resolve(str(folder_of(*names)), models_dir=models))


def test_cut_files_of_unknown_size(folder_of: Callable[..., Path], models: Path, mini_dir: Path) -> None:
    folder = folder_of(*IMAGE_PAIR)
    whole = (mini_dir / "sam2_decoder.tflite").read_bytes()
    (folder / "sam2_decoder.tflite").write_bytes(whole[:-100])
    os.truncate(folder / "sam2_prompt.bin", 3000)
    with pytest.raises(BundleError) as caught:
        hub.resolve(folder, models_dir=models)
    decoder, prompt = caught.value.faults
    assert "sam2_decoder.tflite: is cut short" in decoder
    assert "sam2_prompt.bin: has 3000 bytes instead of 3072" in prompt


# Pulling


@dataclass(frozen=True, slots=True)
class Puller:
    """Runs `hub.pull` in a process of its own: huggingface_hub reads its settings once, when it is imported."""

    models: Path
    home: Path
    endpoint: str

    def start(self, name: str = NAME, code: str = "", **environment: str) -> subprocess.Popen[str]:
        program = (
            "import sys; from pathlib import Path; from labeler import hub; from labeler.errors import BundleError\n"
            f"{code}\n"
            "try: print(hub.pull(sys.argv[1], models_dir=Path(sys.argv[2]), progress=print).folder)\n"
            "except BundleError as error: sys.exit(str(error))"
        )
        settings = {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(self.home), "HF_HUB_DISABLE_TELEMETRY": "1"}
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        return subprocess.Popen(
            [sys.executable, "-c", program, name, str(self.models)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=kept | settings | environment,
        )

    def run(self, name: str = NAME, code: str = "", **environment: str) -> tuple[int, str, str]:
        process = self.start(name, code, **environment)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def fault(self, name: str = NAME, **environment: str) -> str:
        """The one line with which a pull fails; nothing half installed is left."""
        code, _, err = self.run(name, **environment)
        assert (code, err.count("\n")) == (1, 1), err
        assert not (self.models / name).exists()
        assert [path.name for path in self.models.glob("*") if not path.name.endswith(".lock")] == []
        return err


@pytest.fixture
def puller(server: Hub, models: Path, tmp_path: Path) -> Puller:
    return Puller(models, tmp_path / "hf", server.endpoint)


def test_pull_installs_checks_and_locks(puller: Puller, server: Hub, published: dict[str, bytes]) -> None:
    code, out, err = puller.run()
    assert code == 0, err
    assert f"1/13 sam2_decoder.tflite ({len(published['sam2_decoder.tflite']) / 1e6:.1f} MB)" in out
    installed = hub.resolve(NAME, models_dir=puller.models).bundle
    assert installed == bundle.load(puller.models / NAME)
    assert installed.provenance == {"repository": REPOSITORY, "commit": COMMIT}
    assert {path.name for path in installed.folder.iterdir()} == {*published, "bundle.json"}
    assert all((installed.folder / name).read_bytes() == content for name, content in published.items())
    assert [path.name for path in puller.models.iterdir() if path.suffix != ".lock"] == [NAME]
    asked = len(server.requests)
    code, out, _ = puller.run()
    assert (code, len(server.requests)) == (0, asked)
    assert "is already installed" in out


def test_what_ships_need_not_be_pulled(models: Path) -> None:
    said: list[str] = []
    assert hub.pull("mini", models_dir=models, progress=said.append).name == "mini"
    assert said == ["mini ships with sam2label: nothing to pull"]
    assert not models.exists()


def test_pull_of_an_unknown_name(models: Path) -> None:
    message = fault(lambda: hub.pull("sam2-hiera-tiny", models_dir=models, progress=print))
    assert f"did you mean {NAME!r}?" in message


def test_killed_in_the_middle_the_next_pull_works(puller: Puller, server: Hub) -> None:
    server.stall = "sam2v_encode.tflite"
    process = puller.start()
    assert server.stalled.wait(60)
    busy = Puller(puller.models, puller.home, puller.endpoint).run()
    assert busy[0] == 1
    assert "another pull of sam2.1-hiera-tiny is at work" in busy[2]
    process.kill()
    process.communicate()
    assert not (puller.models / NAME).exists()
    assert (puller.models / f".{NAME}.partial").exists()
    assert [(entry.name, entry.state) for entry in hub.known(puller.models)][1:] == [(NAME, "available")]
    server.go_on.set()
    server.stall = None
    code, _, err = puller.run()
    assert code == 0, err
    hub.resolve(NAME, models_dir=puller.models)
    assert not (puller.models / f".{NAME}.partial").exists()


def test_a_damaged_installation_is_moved_aside(puller: Puller) -> None:
    assert puller.run()[0] == 0
    (puller.models / NAME / "sam2v_mtpe.bin").write_bytes(b"mine")
    (puller.models / NAME / "notes.txt").write_text("also mine")
    code, out, err = puller.run()
    assert code == 0, err
    aside = puller.models / f"{NAME}.damaged-1"
    assert f"was damaged and is now in {aside}" in out
    assert (aside / "sam2v_mtpe.bin").read_bytes() == b"mine"
    assert (aside / "notes.txt").read_text() == "also mine"
    hub.resolve(NAME, models_dir=puller.models)


@pytest.mark.parametrize("name", ["sam2v_decode.tflite", "sam2v_prompt.bin"])
def test_a_file_that_is_not_what_the_hub_says(
    puller: Puller, server: Hub, published: dict[str, bytes], name: str
) -> None:
    server.sent[name] = bytes([published[name][0] ^ 1]) + published[name][1:]
    line = puller.fault()
    assert f"{name}: its hash is" in line
    assert "the download is damaged" in line


def test_a_damaged_file_in_the_cache_is_fetched_again(puller: Puller, published: dict[str, bytes]) -> None:
    assert puller.run()[0] == 0
    shutil.rmtree(puller.models)
    (cached,) = puller.home.rglob("sam2v_decode.tflite")
    content = bytearray(cached.read_bytes())
    content[100] ^= 1
    cached.resolve().write_bytes(content)
    code, _, err = puller.run()
    assert code == 0, err
    assert (puller.models / NAME / "sam2v_decode.tflite").read_bytes() == published["sam2v_decode.tflite"]


def test_a_constant_of_the_wrong_size(puller: Puller, server: Hub) -> None:
    server.told["sam2v_mtpe.bin"] = b"\0" * 1000
    assert "sam2v_mtpe.bin: has 1000 bytes instead of 1792" in puller.fault()


def test_a_graph_that_the_publisher_cut(puller: Puller, server: Hub, mini_dir: Path) -> None:
    server.told["sam2v_decode.tflite"] = (mini_dir / "sam2v_decode.tflite").read_bytes()[:-1]
    assert "sam2v_decode.tflite: is cut short" in puller.fault()


def test_a_file_that_the_repository_lacks(puller: Puller, server: Hub) -> None:
    del server.told["sam2v_memcond2.tflite"]
    assert "has no sam2v_memcond2.tflite" in puller.fault()


def test_a_repository_that_is_gone(puller: Puller, server: Hub) -> None:
    server.repository = "somebody/else"
    assert "no such repository" in puller.fault()


def test_a_connection_that_always_breaks(puller: Puller, server: Hub) -> None:
    server.cut = "sam2v_encode.tflite"
    line = puller.fault(HF_HUB_DOWNLOAD_TIMEOUT="2")
    assert "cannot be downloaded" in line
    assert "--model" in line


def test_offline_with_an_empty_cache(puller: Puller, server: Hub) -> None:
    line = puller.fault(HF_HUB_OFFLINE="1")
    assert "give that folder as --model" in line
    assert server.requests == []


def test_offline_the_cache_serves(puller: Puller, server: Hub) -> None:
    fill = (
        f"import huggingface_hub\nfor name in {[*server.told]!r}: huggingface_hub.hf_hub_download({REPOSITORY!r}, name)"
    )
    assert puller.run("mini", fill)[0] == 0
    asked = len(server.requests)
    code, _, err = puller.run(HF_HUB_OFFLINE="1")
    assert code == 0, err
    assert len(server.requests) == asked
    assert hub.resolve(NAME, models_dir=puller.models).bundle.provenance["commit"] == COMMIT
    shutil.rmtree(puller.models)
    next(puller.home.rglob("sam2v_decode.tflite")).resolve().write_bytes(server.told["sam2v_encode.tflite"])
    assert "sam2v_decode.tflite: " in puller.fault(HF_HUB_OFFLINE="1")


def test_a_hub_that_does_not_answer(puller: Puller) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    line = puller.fault(HF_ENDPOINT=f"http://127.0.0.1:{port}")
    assert "cannot be downloaded" in line
    assert "--model" in line


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 kB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_disk_that_is_too_small(puller: Puller, small_disk: Path, published: dict[str, bytes]) -> None:
    full = Puller(small_disk, puller.home, puller.endpoint)
    assert f"{sum(map(len, published.values())) / 1e6:.0f} MB needed, 0 MB free" in full.fault()


def test_a_disk_that_fills_up_meanwhile(puller: Puller, small_disk: Path) -> None:
    # The cache has no room either, and the hub does not say in time how large the files are.
    full = Puller(small_disk / "models", small_disk / "hf", puller.endpoint)
    code, _, err = full.run(code="from labeler import download; download._check_room = lambda *_: None")
    assert code == 1
    assert "No space left on device" in err
    assert "make room" in err
    assert err.count("\n") == 1
