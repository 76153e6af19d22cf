"""The encoder's input against PyTorch, and its cost."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from labeler.preprocess import DEVIATION, MEAN, model_input, upright


def reference(rgb_hwc: np.ndarray, height: int, width: int) -> np.ndarray:
    """The same transform in PyTorch, in double precision, without the mean and deviation: 0 to 1."""
    planes = torch.from_numpy(rgb_hwc.copy()).permute(2, 0, 1)[None].double() / 255
    resized = torch.nn.functional.interpolate(planes, (height, width), mode="bilinear", antialias=True)
    return resized[0].numpy()


def before_mean(planes_chw: np.ndarray) -> np.ndarray:
    return planes_chw * np.array(DEVIATION)[:, None, None] + np.array(MEAN)[:, None, None]


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Noise over a ramp: hard edges and smooth parts."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(0, 255, height * width * 3).reshape(height, width, 3)
    return np.where(rng.random((height, width, 1)) < 0.5, rng.integers(0, 256, (height, width, 3)), ramp).astype(
        np.uint8
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([(64, 64), (128, 96), (256, 256)]), st.integers(0, 99))
def test_equals_pytorch_to_one_step_of_8_bits(rows: int, columns: int, target: tuple[int, int], seed: int) -> None:
    rgb = picture(rows, columns, seed)
    found = model_input(rgb, height=target[0], width=target[1])
    assert np.abs(before_mean(found) - reference(rgb, *target)).max() <= 1.001 / 255


@pytest.mark.parametrize(
    "shape", [(480, 640), (1365, 2048), (3000, 1000), (1000, 3000), (1, 4000), (4000, 1), (1024, 1024)]
)
def test_equals_pytorch_at_full_size(shape: tuple[int, int]) -> None:
    rgb = picture(*shape)
    found = model_input(Image.fromarray(rgb), height=1024, width=1024)
    assert found.dtype == np.float32
    assert found.shape == (3, 1024, 1024)
    assert found.flags.c_contiguous
    assert np.abs(before_mean(found) - reference(rgb, 1024, 1024)).max() <= 1.001 / 255


def test_mean_and_deviation_are_exact_where_nothing_is_resized() -> None:
    rgb = picture(64, 48)
    wanted = (rgb.transpose(2, 0, 1) / 255 - np.array(MEAN)[:, None, None]) / np.array(DEVIATION)[:, None, None]
    assert np.abs(model_input(rgb, height=64, width=48) - wanted).max() < 1e-5


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_equals_turning_the_picture_first(orientation: int) -> None:
    stored = Image.fromarray(picture(90, 140))
    stored.getexif()[0x0112] = orientation
    turned = ImageOps.exif_transpose(stored)
    assert upright(stored, orientation).tobytes() == turned.tobytes()
    found = model_input(stored, height=64, width=48, orientation=orientation)
    assert np.abs(before_mean(found) - reference(np.asarray(turned), 64, 48)).max() <= 1.001 / 255


def test_arrays_of_any_layout_are_pictures() -> None:
    rgb = picture(40, 60)
    wanted = model_input(rgb, height=32, width=32)
    assert np.array_equal(model_input(np.asfortranarray(rgb), height=32, width=32), wanted)
    assert np.array_equal(model_input(np.ascontiguousarray(rgb[:, ::-1])[:, ::-1], height=32, width=32), wanted)


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((4, 4, 3), np.float32),
        Image.new("L", (4, 4)),
    ],
)
def test_what_is_not_8_bit_rgb_is_refused(wrong: np.ndarray | Image.Image) -> None:
    with pytest.raises(ValueError, match="a picture"):
        model_input(wrong, height=8, width=8)


def test_a_1024_picture_costs_little() -> None:
    image = Image.fromarray(picture(1024, 1024))
    seconds = []
    for _ in range(7):
        start = time.thread_time()
        model_input(image, height=1024, width=1024)
        seconds.append(time.thread_time() - start)
    assert min(seconds) < 0.025
