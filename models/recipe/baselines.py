"""What a model must beat: a disc of one radius for all, and GrabCut that knows only the click."""

from __future__ import annotations

import cv2
import numpy as np

from labeler.types import Mask, Point, Rgb

RADII = (6, 8, 12, 16, 24, 32, 48, 64, 96)
"""Pixels of a picture of 256 x 256."""
_SIDE = 256
_SURE, _LIKELY, _POSSIBLE = 4, 24, 80
"""Radii within which a pixel is the object, probably the object, probably not; beyond it is not."""


def disc(point: Point, radius: float, *, height: int, width: int) -> Mask:
    """A disc on the picture squeezed to 256 x 256: an ellipse on the picture itself."""
    y, x = np.mgrid[:height, :width]
    return np.hypot((x - point.x) * _SIDE / width, (y - point.y) * _SIDE / height) < radius


def grab_cut(rgb: Rgb, point: Point) -> Mask:
    """OpenCV's GrabCut at 256 x 256, started from a disc of 24 pixels around the click; what hangs together with it."""
    height, width = rgb.shape[:2]
    small = cv2.resize(np.ascontiguousarray(rgb[..., ::-1]), (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
    column, row = int(point.x * _SIDE / width), int(point.y * _SIDE / height)
    y, x = np.mgrid[:_SIDE, :_SIDE]
    away = np.hypot(x - column, y - row)
    labels = np.full((_SIDE, _SIDE), cv2.GC_BGD, np.uint8)
    for radius, label in ((_POSSIBLE, cv2.GC_PR_BGD), (_LIKELY, cv2.GC_PR_FGD), (_SURE, cv2.GC_FGD)):
        labels[away < radius] = label
    cv2.setRNGSeed(1)
    cv2.grabCut(small, labels, None, np.zeros((1, 65)), np.zeros((1, 65)), 3, cv2.GC_INIT_WITH_MASK)
    inside = np.isin(labels, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.uint8)
    _, parts = cv2.connectedComponents(inside)
    mine = (parts == parts[row, column]).astype(np.uint8)
    return cv2.resize(mine, (width, height), interpolation=cv2.INTER_NEAREST) > 0


def iou(a: Mask, b: Mask) -> float:
    """1 for two empty masks."""
    union = np.count_nonzero(a | b)
    return np.count_nonzero(a & b) / union if union else 1.0
