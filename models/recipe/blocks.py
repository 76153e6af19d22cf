"""Small pieces that several parts of the model share."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class Conv(nn.Sequential):
    """Convolution, batch norm (folded into the weights at export), ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), nn.ReLU())


class Residual(nn.Module):
    """Two convolutions around which the input goes on."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = Conv(channels, channels)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        nn.init.constant_(self.norm.weight, 0.3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.norm(self.second(self.first(x))))


class Attention(nn.Module):
    """Global self-attention and a small MLP over a 16 x 16 map."""

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.query, self.key = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.value, self.out = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.wide, self.narrow = nn.Linear(channels, 2 * channels), nn.Linear(2 * channels, channels)
        self.position = nn.Parameter(0.1 * torch.randn(1, 256, channels))

    def forward(self, x: Tensor) -> Tensor:
        count, channels, height, width = x.shape
        tokens = x.reshape(count, channels, 256).transpose(1, 2)
        y = self.norm1(tokens) + self.position
        query, key, value = (self._split(linear(y)) for linear in (self.query, self.key, self.value))
        weight = torch.softmax((query @ key.transpose(2, 3)).float() * (channels // self.heads) ** -0.5, 3)
        mixed = (weight.to(value.dtype) @ value).transpose(1, 2).reshape(count, 256, channels)
        tokens = tokens + self.out(mixed)
        tokens = tokens + self.narrow(F.relu(self.wide(self.norm2(tokens))))
        return tokens.transpose(1, 2).reshape(count, channels, height, width)

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), 256, self.heads, -1).transpose(1, 2)


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def twice(x: Tensor) -> Tensor:
    """Enlarged two times, each value repeated."""
    return F.interpolate(x, scale_factor=2.0, mode="nearest")


def twice_smooth(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)


def unit(x: Tensor, heads: int) -> Tensor:
    """[n, c, h, w] with each head's channels scaled to length one."""
    count, channels, height, width = x.shape
    parts = x.float().reshape(count, heads, channels // heads, height * width)
    return (parts * torch.rsqrt((parts * parts).sum(2, keepdim=True) + 1e-4)).reshape(x.shape)


def share(weight: Tensor) -> Tensor:
    """A map [n, 1, h, w] scaled to the sum one."""
    return weight / (weight.sum((2, 3), keepdim=True) + 1e-3)


def pooled(weight: Tensor, x: Tensor) -> Tensor:
    """Means of x [b, c, h, w] under weights [n, m, h, w], n / b of them for each picture: [n, m, c]."""
    pictures, channels = x.shape[:2]
    rows = weight.reshape(pictures, 1, -1, weight.shape[2] * weight.shape[3])
    mean = torch.matmul(rows, x.reshape(pictures, 1, channels, -1).transpose(2, 3))
    return mean.reshape(len(weight), weight.shape[1], channels)


def spread(vectors: Tensor, x: Tensor) -> Tensor:
    """Products of vectors [n, m, c] with every pixel of x [b, c, h, w]: [n, m, h, w]."""
    pictures, channels, height, width = x.shape
    rows = vectors.reshape(pictures, 1, -1, channels)
    product = torch.matmul(rows, x.reshape(pictures, 1, channels, -1))
    return product.reshape(len(vectors), vectors.shape[1], height, width)


def by_head(heads: int, channels: int) -> Tensor:
    """[heads, channels]: 1 where a channel belongs to a head. Kept as a buffer: a graph would compute it each time."""
    return torch.eye(heads).repeat_interleave(channels // heads, 1)


def likeness(x: Tensor, vector: Tensor, own: Tensor) -> Tensor:
    """Cosine of every pixel of x (`unit` by heads) with vectors [n, c]: [n, heads, h, w]. own: `by_head`."""
    heads = len(own)
    parts = vector.float().reshape(len(vector), heads, -1)
    parts = parts * torch.rsqrt((parts * parts).sum(2, keepdim=True) + 1e-4)
    return spread(parts.reshape(len(vector), 1, -1) * own, x)


def repeated(x: Tensor, count: int) -> Tensor:
    """Maps of pictures [b, ...], repeated for the n / b clicks on each."""
    return x if len(x) == count else x.repeat_interleave(count // len(x), 0)
