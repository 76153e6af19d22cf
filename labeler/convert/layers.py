"""Building blocks of the rewritten graphs: NHWC, no tensor of more than four dimensions.

GPU delegates refuse or mis-compute five-dimensional tensors and gathers, so windows, heads and
transposed convolutions are written as reshapes, slices, transpositions and plain matrix products.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A Linear with these values."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
    return layer


def scaled(layer: nn.Linear, factor: float) -> nn.Linear:
    """`layer` with its result multiplied by `factor`: folds the attention's scale into the query."""
    return linear(layer.weight * factor, layer.bias * factor)


def pointwise(conv: nn.Conv2d) -> nn.Linear:
    """A 1x1 convolution as a Linear over channels-last pixels."""
    return linear(conv.weight[:, :, 0, 0], conv.bias)


def joined(second: nn.Linear, first: nn.Linear) -> nn.Linear:
    """Two Linears, one after the other, as one."""
    outer, inner = second.weight.double(), first.weight.double()
    weight, bias = outer @ inner, outer @ first.bias.double() + second.bias.double()
    return linear(weight.to(first.weight.dtype), bias.to(first.weight.dtype))


def chained(second: nn.Conv2d, first: nn.Conv2d) -> nn.Linear:
    """Two 1x1 convolutions, one after the other, as one Linear."""
    return joined(pointwise(second), pointwise(first))


def channels_last_norm(norm: nn.LayerNorm) -> nn.LayerNorm:
    """The checkpoint's channels-first LayerNorm for channels-last input."""
    plain = nn.LayerNorm(norm.normalized_shape, eps=norm.eps)
    plain.weight, plain.bias = norm.weight, norm.bias
    return plain


def to_nhwc(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)


def to_nchw(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


def heads(x: Tensor, count: int) -> Tensor:
    """[b, n, c] -> [b, heads, n, c / heads]"""
    batch, length, channels = x.shape
    return x.reshape(batch, length, count, channels // count).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[b, heads, n, d] -> [b, n, heads * d]"""
    batch, count, length, depth = x.shape
    return x.transpose(1, 2).reshape(batch, length, count * depth)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax attention; the scale is already in the query, `mask` is added to the scores."""
    scores = query @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores + mask
    return torch.softmax(scores, dim=-1) @ value


class Upscale(nn.Module):
    """ConvTranspose2d of kernel 2 and stride 2 as one matrix product and one transposition, channels last."""

    def __init__(self, conv: nn.ConvTranspose2d) -> None:
        super().__init__()
        assert conv.kernel_size == conv.stride == (2, 2)
        assert conv.bias is not None
        self.channels = conv.out_channels
        weight = conv.weight.permute(2, 3, 1, 0).reshape(4 * self.channels, conv.in_channels)
        self.mix = linear(weight, conv.bias.repeat(4))

    def forward(self, x: Tensor) -> Tensor:
        """[1, h, w, c] -> [1, 2h, 2w, c']"""
        height, width = x.shape[1:3]
        rows = self.mix(x).reshape(height, width, 2, 2 * self.channels).transpose(1, 2)
        return rows.reshape(1, 2 * height, 2 * width, self.channels)


def double_size(x: Tensor) -> Tensor:
    """Nearest-neighbour enlargement by two without a gather: [1, h, w, c] -> [1, 2h, 2w, c]"""
    _, height, width, channels = x.shape
    wide = torch.cat([x, x], dim=3).reshape(height, 1, 2 * width, channels)
    return torch.cat([wide, wide], dim=1).reshape(1, 2 * height, 2 * width, channels)
