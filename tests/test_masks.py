"""Masks against pycocotools and PyTorch's interpolation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pycocotools import mask as coco_mask

from labeler import masks

SIDES = st.integers(1, 40)


def oracle(mask_hw: np.ndarray) -> dict[str, object]:
    return coco_mask.encode(np.asfortranarray(mask_hw.astype(np.uint8)))


def check(encoded: masks.EncodedMask, mask_hw: np.ndarray) -> None:
    expected = oracle(mask_hw)
    assert encoded.rle == {"size": list(mask_hw.shape), "counts": expected["counts"].decode()}
    assert encoded.area == coco_mask.area(expected) == int(mask_hw.sum())
    assert list(encoded.bbox) == coco_mask.toBbox(expected).tolist()
    assert np.array_equal(masks.decode(encoded.rle), mask_hw)


@given(hnp.arrays(np.bool_, st.tuples(SIDES, SIDES)))
@settings(max_examples=300, deadline=None)
def test_rle_equals_pycocotools(mask_hw: np.ndarray) -> None:
    check(masks.encode_mask(mask_hw), mask_hw)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 9), (9, 1), (30, 10), (10, 30), (7, 13), (1, 200), (200, 1)])
@pytest.mark.parametrize("kind", ["empty", "full", "one_pixel", "one_row", "one_column", "last_pixel", "border"])
def test_rle_of_edge_cases(height: int, width: int, kind: str) -> None:
    mask_hw = np.zeros((height, width), np.bool_)
    if kind == "full":
        mask_hw[:] = True
    elif kind == "one_pixel":
        mask_hw[height // 2, width // 2] = True
    elif kind == "one_row":
        mask_hw[height // 2] = True
    elif kind == "one_column":
        mask_hw[:, width // 2] = True
    elif kind == "last_pixel":
        mask_hw[-1, -1] = True
    elif kind == "border":
        mask_hw[[0, -1]] = mask_hw[:, [0, -1]] = True
    check(masks.encode_mask(mask_hw), mask_hw)


@st.composite
def smooth_logits(draw: st.DrawFn) -> np.ndarray:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    coarse = rng.standard_normal((draw(st.integers(1, 12)), draw(st.integers(1, 12))))
    shift = draw(st.sampled_from([-9.0, -1.5, 0.0, 1.5, 9.0]))
    side = draw(st.sampled_from([16, 64, 256]))
    return (masks.upsample(coarse, height=side, width=side) + shift).astype(np.float32)


@given(smooth_logits(), st.integers(1, 900), st.integers(1, 900), st.sampled_from([1, 1000, masks.STRIP_PIXELS]))
@settings(max_examples=120, deadline=None)
def test_the_box_in_strips_equals_full_upsampling(logits_hw: np.ndarray, height: int, width: int, strip: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masks, "STRIP_PIXELS", strip)
        encoded = masks.encode(logits_hw, height=height, width=width)
    check(encoded, masks.upsample(logits_hw, height=height, width=width) > 0)


@given(
    hnp.arrays(np.float32, (256, 256), elements=st.sampled_from([-1.0, -1.0, -1.0, 0.5])),
    st.sampled_from([(300, 100), (100, 300), (1, 777), (777, 1), (1, 1), (255, 257), (1080, 1920)]),
)
@settings(max_examples=25, deadline=None)
def test_scattered_positives(logits_hw: np.ndarray, shape: tuple[int, int]) -> None:
    height, width = shape
    expected = masks.upsample(logits_hw, height=height, width=width) > 0
    check(masks.encode(logits_hw, height=height, width=width), expected)


@pytest.mark.parametrize("shape", [(1024, 1024), (480, 640), (37, 911), (100, 60), (1, 5), (256, 256)])
def test_upsampling_equals_pillow_and_half_pixel_bilinear(shape: tuple[int, int]) -> None:
    from PIL import Image

    logits_hw = np.random.default_rng(1).standard_normal((256, 256)).astype(np.float32)
    height, width = shape
    found = masks.upsample(logits_hw, height=height, width=width)
    assert np.abs(found - _half_pixel(logits_hw, height, width)).max() < 1e-5
    if height >= 256 and width >= 256:  # when it shrinks, Pillow antialiases
        pillow = Image.fromarray(logits_hw, "F").resize((width, height), Image.Resampling.BILINEAR)
        assert np.abs(found - np.asarray(pillow)).max() < 1e-4


def _half_pixel(logits_hw: np.ndarray, height: int, width: int) -> np.ndarray:
    """Pixel by pixel in float64, straight from the definition."""
    rows, cols = logits_hw.shape
    out = np.empty((height, width))
    source = logits_hw.astype(np.float64)
    xs = np.clip((np.arange(width) + 0.5) * cols / width - 0.5, 0, cols - 1)
    for row in range(height):
        y = min(max((row + 0.5) * rows / height - 0.5, 0), rows - 1)
        top = source[int(y)]
        low = source[min(int(y) + 1, rows - 1)]
        line = top * (1 - (y - int(y))) + low * (y - int(y))
        out[row] = np.interp(xs, np.arange(cols), line)
    return out


@pytest.mark.slow
def test_a_huge_mask_needs_little_memory() -> None:
    """10,000 x 10,000 pixels: a full mask alone would be 100 MB."""
    import tracemalloc

    rows, cols = np.mgrid[:256, :256]
    logits_hw = (100 - np.hypot(rows - 128, cols - 128)).astype(np.float32)
    tracemalloc.start()
    masks.encode(logits_hw, height=10_000, width=10_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6
