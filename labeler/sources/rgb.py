"""Any Pillow pixel type to 8-bit RGB.

Rules, each recorded in the notes where it changed more than the storage:
- grey of more than 8 bits (16-bit, 32-bit, float) is stretched: the picture's smallest finite value becomes 0, its
  largest 255. A picture of one value is black. NaN and -inf become 0, +inf 255.
- transparency (alpha channel, transparent palette entry or colour): composited over white.
- everything else: Pillow's own conversion; colour profiles are not applied.

Pictures that are not RGB already are converted in strips: beside the source and the result, a few megabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

STRIP_PIXELS = 1 << 21

DEEP_GREY = frozenset({"I;16", "I;16L", "I;16B", "I;16N", "I", "F"})


def to_rgb(image: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """8-bit RGB of a loaded picture, and notes on what was done to it. An RGB picture comes back as the same object."""
    if image.mode in DEEP_GREY:
        return _grey_to_rgb(image)
    if image.has_transparency_data:
        return _by_strips(image, _over_white), ("transparency composited over white",)
    if image.mode == "RGB":
        return image, ()
    return _by_strips(image, lambda strip: strip.convert("RGB")), ()


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    # Pillow's crop, too, asks its process-wide limit.
    rows = max(1, min(STRIP_PIXELS, Image.MAX_IMAGE_PIXELS or STRIP_PIXELS) // image.width)
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


def _by_strips(image: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    rgb = Image.new("RGB", image.size)
    for top, strip in _strips(image):
        rgb.paste(convert(strip), (0, top))
    return rgb


def _over_white(strip: Image.Image) -> Image.Image:
    # Pillow has no direct way from premultiplied grey to RGBA.
    rgba = (strip.convert("LA") if strip.mode == "La" else strip).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")


def _grey_to_rgb(image: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    low, high = _finite_range(image)
    scale = 255 / (high - low) if high > low else 1.0
    key = image.info.get("transparency")

    def convert(strip: Image.Image) -> Image.Image:
        values = np.asarray(strip)
        grey = _to_bytes((values.astype(np.float64) - low) * scale)
        if isinstance(key, int):
            grey[values == key] = 255
        return Image.fromarray(grey).convert("RGB")

    notes = [f"grey values {low:g} to {high:g} stretched to 0 to 255"]
    notes += ["transparency composited over white"] if isinstance(key, int) else []
    return _by_strips(image, convert), tuple(notes)


def _finite_range(image: Image.Image) -> tuple[float, float]:
    """Smallest and largest finite value; 0, 0 where there is none."""
    low, high = np.inf, -np.inf
    for _, strip in _strips(image):
        values = np.asarray(strip)
        finite = values[np.isfinite(values)] if image.mode == "F" else values
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low <= high else (0.0, 0.0)


def _to_bytes(grey: NDArray[np.float64]) -> NDArray[np.uint8]:
    finite: NDArray[np.float64] = np.nan_to_num(grey, nan=0.0, posinf=255.0, neginf=0.0)
    return finite.round().astype(np.uint8)
