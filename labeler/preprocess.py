"""A picture to what the image encoders take: SAM 2.1's own transform.

Resize without letterbox (rows and columns scale separately), bilinear with antialias, /255, channel mean and deviation.
Pillow's BILINEAR is that filter; it rounds to 8 bits after each of its two passes, so values lie within 1/255 of the
same computation in floating point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from labeler.types import Rgb

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)

_TRANSPOSES = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def model_input(image: Image.Image | Rgb, *, height: int, width: int, orientation: int = 1) -> NDArray[np.float32]:
    """The encoder's input [3, height, width], C-contiguous and new, from an 8-bit RGB picture of any size.

    `image` is a Pillow picture of mode RGB or an array [rows, columns, 3] of uint8. `orientation` is an EXIF
    orientation still to be applied to it (`Picture.orientation`): the picture is made small first and turned then, so a
    large one is never held twice. Raises ValueError for other modes, shapes and types.
    """
    stored = (height, width) if orientation >= 5 else (width, height)
    small = upright(_as_picture(image).resize(stored, Image.Resampling.BILINEAR), orientation)
    planes = np.empty((3, height, width), dtype=np.float32)
    for channel, plane, mean, deviation in zip(small.split(), planes, MEAN, DEVIATION, strict=True):
        np.multiply(np.asarray(channel), np.float32(1 / (255 * deviation)), out=plane)
        plane -= np.float32(mean / deviation)
    return planes


def upright(image: Image.Image, orientation: int) -> Image.Image:
    """The picture with an EXIF orientation (EXIF 2.3, tag 0x0112; 1 to 8) applied: a new picture unless it is 1."""
    return image if orientation == 1 else image.transpose(_TRANSPOSES[orientation])


def _as_picture(image: Image.Image | Rgb) -> Image.Image:
    if isinstance(image, np.ndarray):
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            raise ValueError(f"a picture is uint8 [height, width, 3], not {image.dtype} {list(image.shape)}")
        return Image.fromarray(image)
    if image.mode != "RGB":
        raise ValueError(f"a picture of mode RGB is needed, not {image.mode}")
    return image
