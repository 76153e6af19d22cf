"""A picture becomes features: a convolutional pyramid with one global attention, and back up."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from models.recipe.blocks import Attention, Conv, Residual, twice
from models.recipe.options import ModelOptions

IMAGE_CHANNELS = 232
READOUT_CHANNELS = 24
"""The last channels of `pix` are empty: memory writes what it finds there."""


class Encoder(nn.Module):
    """[b, 3, 256 s, 256 s] -> pix [b, 232, 64, 64], hi0 [b, 32, 256, 256], hi1 [b, 64, 128, 128].

    hi0 and hi1 begin with the plain colours, which the decoder's histograms need.
    """

    def __init__(self, options: ModelOptions) -> None:
        super().__init__()
        self.stride = options.stride
        c0, c1, c2, c3, c4 = options.widths
        self.stem = Conv(6, c0, options.stride)
        self.at128 = nn.Sequential(Conv(c0, c1, 2), Conv(c1, c1))
        self.at64 = nn.Sequential(Conv(c1, c2, 2), Residual(c2))
        self.at32 = nn.Sequential(Conv(c2, c3, 2), Residual(c3), Residual(c3))
        self.at16 = nn.Sequential(Conv(c3, c4, 2), Residual(c4), Residual(c4), Attention(c4))
        self.from16, self.up32 = nn.Conv2d(c4, c3, 1), Conv(c3, c3)
        self.from32, self.up64 = nn.Conv2d(c3, c2, 1), Conv(c2, c2)
        self.from64, self.up128 = nn.Conv2d(c2, c1, 1), Conv(c1, c1)
        self.pix64, self.pix32, self.pix16 = nn.Conv2d(c2, 120, 1), nn.Conv2d(c3, 64, 1), nn.Conv2d(c4, 48, 1)
        self.hi1 = nn.Conv2d(c1, 61, 1)
        self.hi0, self.hi0_up = nn.Conv2d(c0, 16, 1), nn.Conv2d(c1, 13, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # Beside the picture itself, a copy of zero mean and unit contrast, for dark microscopy and flat light.
        centred = x.float() - x.float().mean((2, 3), keepdim=True)
        level = centred * torch.rsqrt((centred * centred).mean((1, 2, 3), keepdim=True) + 1e-3)
        f0 = self.stem(torch.cat([x, level.to(x.dtype)], 1))
        f1 = self.at128(f0)
        f2 = self.at64(f1)
        f3 = self.at32(f2)
        f4 = self.at16(f3)
        f3 = self.up32(twice(self.from16(f4)) + f3)
        f2 = self.up64(twice(self.from32(f3)) + f2)
        f1 = self.up128(twice(self.from64(f2)) + f1)
        pix = torch.cat([self.pix64(f2), twice(self.pix32(f3)), twice(twice(self.pix16(f4)))], 1)
        colour = F.avg_pool2d(x, self.stride) if self.stride > 1 else x
        hi0 = torch.cat([colour.to(f0.dtype), self.hi0(f0), twice(self.hi0_up(f1))], 1)
        return pix, hi0, torch.cat([F.avg_pool2d(colour, 2).to(f0.dtype), self.hi1(f1)], 1)
