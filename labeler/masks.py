"""Low-resolution logits become COCO run-length masks at the picture's size.

Upsampling is bilinear with half-pixel centres (`align_corners=False`, no antialias), then a threshold at 0, as
SAM 2's post-processing does. Only the box that can hold positive values is upsampled, in strips of columns, and
run lengths are taken from each strip, so a 100-megapixel mask needs a few megabytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeler import runlengths
from labeler.types import Array, Mask

STRIP_PIXELS = 1 << 20


@dataclass(frozen=True, slots=True)
class EncodedMask:
    """A mask ready for JSON."""

    rle: dict[str, Any]
    """{"size": [height, width], "counts": str}, column-major, compressed as pycocotools does."""
    area: int
    bbox: tuple[float, float, float, float]
    """Tight x, y, width, height; zeros if empty."""


def encode(logits_hw: Array, *, height: int, width: int) -> EncodedMask:
    """Upsample `logits_hw` [rows, cols] to `height` x `width`, threshold at 0, run-length encode."""
    rows, cols = _Axis.of(logits_hw.max(axis=1) > 0, height), _Axis.of(logits_hw.max(axis=0) > 0, width)
    edges = [_strip_edges(logits_hw, rows, cols, strip, height) for strip in _strips(rows, cols)]
    return _from_edges(np.concatenate(edges) if edges else np.zeros(0, np.int64), height, width)


def encode_mask(mask_hw: Mask) -> EncodedMask:
    """Run-length encode a full-size mask."""
    height, width = mask_hw.shape
    return _from_edges(_edges(np.ascontiguousarray(mask_hw.T).ravel(), 0), height, width)


def decode(rle: dict[str, Any]) -> Mask:
    """The mask of a compressed RLE, bool [height, width]."""
    from pycocotools import mask as coco_mask

    return np.asarray(coco_mask.decode(rle), np.bool_)


def upsample(logits_hw: Array, *, height: int, width: int) -> Array:
    """Bilinear, half-pixel centres, the whole picture: [height, width] in the dtype of `logits_hw`."""
    rows = _Axis.of(np.ones(logits_hw.shape[0], np.bool_), height)
    cols = _Axis.of(np.ones(logits_hw.shape[1], np.bool_), width)
    return _interpolate(logits_hw, rows, cols, slice(0, width))


@dataclass(frozen=True, slots=True, eq=False)
class _Axis:
    """Bilinear taps along one axis, for the output places that can turn out positive."""

    start: int
    low: NDArray[np.intp]
    high: NDArray[np.intp]
    weight: NDArray[np.float64]

    @classmethod
    def of(cls, positive: Mask, side: int) -> _Axis:
        taps = len(positive)
        centre = np.maximum((np.arange(side) + 0.5) * (taps / side) - 0.5, 0)
        low = np.minimum(centre.astype(np.intp), taps - 1)
        high = np.minimum(low + 1, taps - 1)
        # Interpolation cannot exceed its taps: without a positive tap there is no positive pixel.
        touched = np.flatnonzero(positive[low] | positive[high])
        places = slice(int(touched[0]), int(touched[-1]) + 1) if touched.size else slice(0, 0)
        return cls(places.start, low[places], high[places], (centre - low)[places])


def _interpolate(logits_hw: Array, rows: _Axis, cols: _Axis, strip: slice) -> Array:
    """Upsampled logits of the box's rows in a strip of its columns: [rows, strip]."""
    low, high = cols.low[strip], cols.high[strip]
    weight_w = cols.weight[strip].astype(logits_hw.dtype)
    first, last = int(rows.low[0]), int(rows.high[-1]) + 1
    band = logits_hw[first:last]
    wide = band[:, low] * (1 - weight_w) + band[:, high] * weight_w
    weight_h1 = rows.weight.astype(logits_hw.dtype)[:, None]
    upper = wide[rows.low - first]
    upper *= 1 - weight_h1
    lower = wide[rows.high - first]
    lower *= weight_h1
    upper += lower
    return upper


def _strips(rows: _Axis, cols: _Axis) -> list[slice]:
    if not len(rows.low) or not len(cols.low):
        return []
    step = max(1, STRIP_PIXELS // len(rows.low))
    return [slice(start, min(start + step, len(cols.low))) for start in range(0, len(cols.low), step)]


def _strip_edges(logits_hw: Array, rows: _Axis, cols: _Axis, strip: slice, height: int) -> NDArray[np.int64]:
    mask_wh = (_interpolate(logits_hw, rows, cols, strip) > 0).T
    # A column of the box starts `height` pixels after the one before: pad each with one 0 on both ends and
    # take the changes per column.
    padded = np.zeros((mask_wh.shape[0], mask_wh.shape[1] + 2), np.int8)
    padded[:, 1:-1] = mask_wh
    column, row = np.nonzero(padded[:, 1:] != padded[:, :-1])
    edges: NDArray[np.int64] = (column + cols.start + strip.start) * height + row + rows.start
    return edges


def _edges(flat: Mask, offset: int) -> NDArray[np.int64]:
    padded = np.zeros(len(flat) + 2, np.int8)
    padded[1:-1] = flat
    return np.flatnonzero(padded[1:] != padded[:-1]).astype(np.int64) + offset


def _from_edges(edges: NDArray[np.int64], height: int, width: int) -> EncodedMask:
    """`edges`: alternating starts and ends of runs of ones, as flat column-major places."""
    from pycocotools import mask as coco_mask

    starts, ends = edges[0::2], edges[1::2]
    if joined := np.flatnonzero(starts[1:] == ends[:-1]).size:  # a run that goes on in the next column
        keep_start = np.concatenate([[True], starts[1:] != ends[:-1]])
        keep_end = np.concatenate([starts[1:] != ends[:-1], [True]])
        starts, ends = starts[keep_start], ends[keep_end]
        assert len(starts) == len(edges) // 2 - joined
    bounds = np.concatenate([[0], np.stack([starts, ends], axis=1).ravel(), [height * width]])
    counts = np.diff(bounds)
    if counts[-1] == 0 and len(counts) > 1:
        counts = counts[:-1]
    compressed = coco_mask.frPyObjects({"size": [height, width], "counts": counts.tolist()}, height, width)
    rle = {"size": [height, width], "counts": str(compressed["counts"], "ascii")}
    return EncodedMask(rle, int((ends - starts).sum()), runlengths.span_box(starts, ends, height=height))
