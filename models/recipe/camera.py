"""What a camera and a file do to a picture: exposure, blur, noise, JPEG."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from models.recipe.draws import Draws

_RADIUS = 6
_LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
"""Quantisation table of the JPEG standard (ITU-T T.81, K.1) at quality 50."""


@dataclass(frozen=True, slots=True, eq=False)
class Camera:
    """One camera per scene; the same for all frames of a clip."""

    contrast: Tensor
    light: Tensor
    blur: Tensor
    noise: Tensor
    coarseness: Tensor
    """Multiple of the JPEG table; 0: not compressed."""

    @classmethod
    def draw(cls, draws: Draws, count: int) -> Camera:
        return cls(
            contrast=draws.between(0.7, 1.2, count, 1, 1, 1),
            light=draws.between(-0.1, 0.1, count, 1, 1, 1),
            blur=draws.between(0.4, 1.4, count) * draws.chance(0.35, count),
            noise=draws.between(0.004, 0.035, count, 1, 1, 1) * draws.chance(0.4, count, 1, 1, 1),
            coarseness=draws.between(0.3, 1.6, count) * draws.chance(0.4, count),
        )

    def shoot(self, rgb: Tensor, draws: Draws) -> Tensor:
        """Colours in 0..1 as uint8."""
        rgb = (rgb - 0.5) * self.contrast + 0.5 + self.light
        rgb = smoothed(rgb, self.blur) + self.noise * draws.normal(*rgb.shape)
        rgb = _compressed(rgb.clamp(0, 1), self.coarseness)
        return (rgb.clamp(0, 1) * 255).round().to(torch.uint8)


def smoothed(rgb: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur of each picture by its own sigma [n] in pixels, up to 4; 0 leaves it alone."""
    blurred = sigma > 0
    if not bool(blurred.any()):
        return rgb
    picked, channels = rgb[blurred], rgb.shape[1]
    offsets = torch.arange(-_RADIUS, _RADIUS + 1, device=rgb.device)
    kernel = (-0.5 * (offsets / sigma[blurred][:, None]) ** 2).exp()
    kernel = (kernel / kernel.sum(1, keepdim=True)).repeat_interleave(channels, 0)[:, None]
    flat = picked.reshape(1, -1, *picked.shape[2:])
    for shaped, edge in (
        (kernel[:, :, None, :], (_RADIUS, _RADIUS, 0, 0)),
        (kernel[..., None], (0, 0, _RADIUS, _RADIUS)),
    ):
        flat = F.conv2d(F.pad(flat, edge, mode="reflect"), shaped, groups=flat.shape[1])
    result = rgb.clone()
    result[blurred] = flat.reshape(picked.shape)
    return result


def _compressed(rgb: Tensor, coarseness: Tensor) -> Tensor:
    """The loss of JPEG: luminance and colour differences quantised in blocks of 8 x 8."""
    lossy = coarseness > 0
    if not bool(lossy.any()):
        return rgb
    picked = rgb[lossy] * 255 - 128
    luma = (picked * torch.tensor([0.299, 0.587, 0.114], device=rgb.device)[None, :, None, None]).sum(1, keepdim=True)
    planes = torch.cat([luma, picked[:, :1] - luma, picked[:, 2:] - luma], 1)
    count, _, height, width = planes.shape
    blocks = planes.reshape(count, 3, height // 8, 8, width // 8, 8).transpose(3, 4)
    basis = _cosines(rgb.device)
    table = torch.tensor(_LUMINANCE, device=rgb.device) * coarseness[lossy].reshape(-1, 1, 1, 1, 1, 1)
    table = table * torch.tensor([1.0, 1.8, 1.8], device=rgb.device).reshape(1, 3, 1, 1, 1, 1)
    quantised = ((basis @ blocks @ basis.T) / table).round() * table
    planes = (basis.T @ quantised @ basis).transpose(3, 4).reshape(count, 3, height, width)
    luma, red, blue = planes.split(1, 1)
    green = luma - (0.299 * red + 0.114 * blue) / 0.587
    result = rgb.clone()
    result[lossy] = (torch.cat([luma + red, green, luma + blue], 1) + 128) / 255
    return result


def _cosines(device: torch.device) -> Tensor:
    """The orthonormal cosine basis of length 8, one row per frequency."""
    k, n = torch.arange(8, device=device)[:, None], torch.arange(8, device=device)[None]
    basis = ((2 * n + 1) * k * pi / 16).cos() / 2
    basis[0] /= 2**0.5
    return basis
