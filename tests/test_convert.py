"""What a checkpoint must be, what an export leaves behind, and the rewrites of single layers against PyTorch's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn import functional

from labeler.bundle import GraphSpec, Part
from labeler.convert import ConvertOptions, convert, layers
from labeler.convert.checkpoint import read_config
from labeler.convert.exporter import new_folder, refuse_existing
from labeler.convert.hiera import join_windows, split_windows
from labeler.convert.memory import half_split
from labeler.convert.operators import GraphFacts, check_facts
from labeler.convert.silence import silence
from labeler.errors import ConvertError


def write_config(folder: Path, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "sam3_video"}, "is SAM 3 (sam3_video)"),
        ({"model_type": "sam2_video", "enable_occlusion_spatial_embedding": False}, "is SAM 2.0, not 2.1"),
        (
            {"model_type": "sam2_video", "enable_temporal_pos_encoding_for_object_pointers": False},
            "is SAM 2.0, not 2.1 (enable_temporal_pos_encoding_for_object_pointers off)",
        ),
        ({"model_type": "sam2"}, "holds the image model only"),
        ({"model_type": "bert"}, "is no SAM 2.1 checkpoint (model_type 'bert')"),
        ({}, "is no SAM 2.1 checkpoint (model_type None)"),
        ({"model_type": "sam2_video", "image_size": 512}, "takes pictures of 512"),
    ],
)
def test_other_models_are_refused_with_their_name(tmp_path: Path, config: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConvertError) as caught:
        convert(write_config(tmp_path / "checkpoint", **config), tmp_path / "out", progress=print)
    assert reason in str(caught.value)
    assert str(caught.value).count("\n") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_what_is_no_checkpoint_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sam2.1_hiera_tiny.pt").touch()
    (tmp_path / "config.json").write_text("{")
    for path, reason in (
        (tmp_path / "sam2.1_hiera_tiny.pt", "is a file"),
        (tmp_path / "nowhere", "No such file"),
        (tmp_path, "is not JSON"),
    ):
        with pytest.raises(ConvertError, match=reason):
            read_config(path)


@pytest.mark.parametrize("weights", [None, b"", b"no safetensors"])
def test_missing_or_damaged_weights_are_one_line(tmp_path: Path, weights: bytes | None) -> None:
    checkpoint = write_config(tmp_path / "checkpoint", model_type="sam2_video")
    if weights is not None:
        (checkpoint / "model.safetensors").write_bytes(weights)
    with pytest.raises(ConvertError, match="weights cannot be loaded") as caught:
        convert(checkpoint, tmp_path / "out", progress=print)
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (ConvertOptions(prompt_tokens=1), "prompt tokens 1: choose 2 to"),
        (ConvertOptions(prompt_tokens=65), "prompt tokens 65"),
        (ConvertOptions(memory_slots=()), "memory slots"),
        (ConvertOptions(memory_slots=(0, 2)), "memory slots"),
        (ConvertOptions(memory_slots=(2, 17)), "memory slots"),
        (ConvertOptions(memory_slots=(2, 2)), "memory slots"),
        (ConvertOptions(precision="int4"), "precision 'int4'"),  # type: ignore[arg-type]
        (ConvertOptions(layout="nested"), "layout 'nested'"),  # type: ignore[arg-type]
    ],
)
def test_options_that_cannot_be_had_are_refused_first(tmp_path: Path, options: ConvertOptions, reason: str) -> None:
    with pytest.raises(ConvertError, match=reason):
        convert(tmp_path / "no checkpoint", tmp_path / "out", options=options, progress=print)


def test_a_missing_extra_is_named_with_its_remedy(tmp_path: Path) -> None:
    with (
        mock.patch("labeler.convert.find_spec", side_effect=lambda name: None if "torch" in name else name),
        pytest.raises(
            ConvertError, match=r"torch, litert_torch not installed; run: pip install 'sam2label\[convert\]'"
        ),
    ):
        convert(tmp_path, tmp_path / "out", progress=print)


def test_importing_the_room_loads_no_torch() -> None:
    code = "import labeler.convert, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_an_existing_folder_is_never_written_into(tmp_path: Path) -> None:
    refuse_existing(tmp_path / "new")
    (tmp_path / "empty").mkdir()
    refuse_existing(tmp_path / "empty")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("full", "full/mine", "dangling"):
        with pytest.raises(ConvertError, match="is there already"):
            refuse_existing(tmp_path / name)


def test_the_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "a" / "bundle"

    def interrupted() -> None:
        with new_folder(out) as folder:
            (folder / "graph").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(out.parent.iterdir()) == []
    with new_folder(out) as folder:
        (folder / "graph").write_bytes(b"whole")
        assert not out.exists()
    assert (out / "graph").read_bytes() == b"whole"
    assert [path.name for path in out.parent.iterdir()] == ["bundle"]
    assert out.stat().st_mode & 0o777 == (tmp_path / "a").stat().st_mode & 0o777


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(out: Path, *, hide: bool) -> None:
    """Write more than fits; `hide`: fail as C++ writers do, without saying why."""
    with new_folder(out) as folder, (folder / "graph").open("wb", buffering=0) as stream:
        written = 0
        try:
            while written < 2_000_000:
                written += stream.write(bytes(100_000))
        except OSError:
            if not hide:
                raise
            raise RuntimeError("conversion failed") from None


@pytest.mark.parametrize("hide", [False, True])
def test_a_full_disk_is_one_line_and_leaves_nothing(small_disk: Path, *, hide: bool) -> None:
    with pytest.raises(ConvertError, match="no space left on the disk") as caught:
        fill(small_disk / "out", hide=hide)
    assert str(caught.value).count("\n") == 0
    assert list(small_disk.iterdir()) == []


def facts(**changes: Any) -> GraphFacts:
    known = {"operators": Counter(ADD=1), "rank": 4, "inputs": ((1, 2, 3), (1, 4)), "outputs": ((1, 5),)}
    return GraphFacts(**(known | changes))


def test_a_graph_that_a_gpu_could_not_run_is_refused() -> None:
    spec = GraphSpec("x.tflite", None, None, "parts", (Part("a", (2, 3)), Part("b", (4,))), (Part("c", (5,)),))
    check_facts(facts(), spec)
    for changes, reason in (
        ({"operators": Counter(ADD=1, GATHER_ND=2)}, "{'GATHER_ND': 2}"),
        ({"rank": 5}, "rank 5"),
        ({"inputs": ((1, 4), (1, 2, 3))}, "not in the order of the parts"),
        ({"outputs": ((5,),)}, "not in the order of the parts"),
    ):
        with pytest.raises(ConvertError, match=reason):
            check_facts(facts(**changes), spec)


def speak(then: Exception | None = None) -> None:
    with silence():
        sys.stdout.write("python\n")
        os.write(2, b"C++\n")
        if then:
            raise then


def test_silence_hides_both_streams_and_tells_them_when_something_fails(capfd: pytest.CaptureFixture[str]) -> None:
    speak()
    with pytest.raises(ValueError, match="broken") as caught:
        speak(then=ValueError("broken"))
    sys.stdout.write("after\n")
    assert set(caught.value.__notes__[0].split()) == {"python", "C++"}
    assert capfd.readouterr() == ("after\n", "")


@pytest.mark.parametrize(("height", "width", "size"), [(16, 16, 8), (10, 13, 4), (64, 64, 14), (7, 7, 7)])
def test_windows_equal_the_reference_and_come_back(height: int, width: int, size: int) -> None:
    from transformers.models.sam2.modeling_sam2 import window_partition

    x = torch.randn(1, height, width, 6)
    windows = split_windows(x, size)
    assert torch.equal(windows, window_partition(x, size)[0].flatten(1, 2))
    assert torch.equal(join_windows(windows, size, height, width), x)


def test_upscale_equals_the_transposed_convolution() -> None:
    conv = nn.ConvTranspose2d(12, 5, kernel_size=2, stride=2)
    x = torch.randn(1, 12, 6, 9)
    found = layers.Upscale(conv)(layers.to_nhwc(x))
    torch.testing.assert_close(layers.to_nchw(found), conv(x), rtol=1e-5, atol=1e-6)


def test_doubling_equals_nearest_interpolation() -> None:
    x = torch.randn(1, 3, 5, 7)
    assert torch.equal(
        layers.to_nchw(layers.double_size(layers.to_nhwc(x))), functional.interpolate(x, scale_factor=2.0)
    )


def test_chained_convolutions_are_one_product() -> None:
    first, second = nn.Conv2d(20, 30, 1), nn.Conv2d(30, 4, 1)
    x = torch.randn(1, 20, 5, 5)
    found = layers.chained(second, first)(layers.to_nhwc(x))
    torch.testing.assert_close(layers.to_nchw(found), second(first(x)), rtol=1e-5, atol=1e-6)


def test_half_split_rotation_leaves_every_product_of_query_and_key_as_it_was() -> None:
    from transformers.models.sam2_video.modeling_sam2_video import apply_rotary_pos_emb_2d

    angles = torch.randn(1, 1, 9, 4).repeat_interleave(2, dim=-1)
    query, key = torch.randn(1, 1, 9, 8), torch.randn(1, 1, 9, 8)
    turned = apply_rotary_pos_emb_2d(query, key, angles.cos(), angles.sin())
    order, signs = half_split(8), torch.tensor([-1.0] * 4 + [1.0] * 4)

    def turn(x: torch.Tensor) -> torch.Tensor:
        x = x[..., order]
        return (
            x * angles.cos()[..., order]
            + torch.cat([x[..., 4:], x[..., :4]], dim=-1) * angles.sin()[..., order] * signs
        )

    expected = turned[0] @ turned[1].transpose(2, 3)
    torch.testing.assert_close(turn(query) @ turn(key).transpose(2, 3), expected, rtol=1e-5, atol=1e-5)
