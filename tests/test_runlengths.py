"""Run lengths read without C code equal pycocotools' reading of them; what is malformed is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pycocotools import mask as coco_mask

from labeler import runlengths

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40)


def compressed(mask_hw: Any) -> str:
    return str(coco_mask.encode(np.asfortranarray(mask_hw.astype(np.uint8)))["counts"], "ascii")


@given(hnp.arrays(np.bool_, SHAPES))
@settings(deadline=None)
def test_equals_pycocotools(mask_hw: Any) -> None:
    height, width = mask_hw.shape
    text = compressed(mask_hw)
    runs = runlengths.parse(text, height=height, width=width)
    rle = {"size": [height, width], "counts": text}
    flat = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    np.testing.assert_array_equal(flat.reshape(width, height).T, mask_hw)
    assert runlengths.area(runs) == coco_mask.area(rle)
    assert list(runlengths.bbox(runs, height=height)) == list(coco_mask.toBbox(rle))
    row, column = height // 2, width - 1
    assert runlengths.holds(runs, row=row, column=column, height=height) == mask_hw[row, column]


def test_long_runs_and_falling_differences() -> None:
    mask = np.zeros((3000, 2000), bool)
    mask[1:2990, 3] = mask[5, 4:1900] = mask[-1, -1] = True
    runs = runlengths.parse(compressed(mask), height=3000, width=2000)
    assert runlengths.area(runs) == mask.sum()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "empty or cut short"),
        ("P", "empty or cut short"),
        ("4 4", "character 1 does not belong"),
        ("4é", "character 1 does not belong"),
        ("5", r"the runs cover 5 pixels, 2 x 3 are 6"),
        ("7", r"the runs cover 7 pixels"),
        ("7O", "run 1 is negative"),
        ("PPPPPPPPPP0", "too long"),
    ],
)
def test_malformed_text_is_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        runlengths.parse(text, height=2, width=3)


@given(st.text(max_size=30), st.integers(1, 9), st.integers(1, 9))
def test_any_text_is_read_or_refused(text: str, height: int, width: int) -> None:
    try:
        runs = runlengths.parse(text, height=height, width=width)
    except ValueError:
        return
    assert int(runs.sum()) == height * width
    assert 0 <= runlengths.area(runs) <= height * width
