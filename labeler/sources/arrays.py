"""A picture that is in memory already."""

from __future__ import annotations

import numpy as np
from PIL import Image

from labeler.errors import SourceError
from labeler.sources.pictures import Picture
from labeler.types import Rgb


def array_picture(rgb_hwc: Rgb) -> Picture:
    """An upright picture from uint8 RGB [height, width, 3]. Raises SourceError for any other array: none is coerced."""
    array = np.asarray(rgb_hwc)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or not array.size:
        raise SourceError(f"the array is {array.dtype} {list(array.shape)}, expected uint8 RGB [height, width, 3]")
    height, width, _ = array.shape
    return Picture(Image.fromarray(array), 1, height, width, 1)
