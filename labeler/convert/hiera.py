"""The image encoder (Hiera trunk and feature pyramid) in channels-last form of rank four.

Mirrors transformers' Sam2VisionModel at its one input size.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from labeler.convert.layers import (
    attend,
    chained,
    double_size,
    heads,
    linear,
    merge_heads,
    pointwise,
    scaled,
    to_nchw,
    to_nhwc,
)


def split_windows(x: Tensor, size: int) -> Tensor:
    """[1, h, w, c] -> [windows, size * size, c], padded with zeros at the right and bottom."""
    x = functional.pad(x, (0, 0, 0, -x.shape[2] % size, 0, -x.shape[1] % size))
    _, height, width, channels = x.shape
    x = x.reshape(height // size, size, width // size, size * channels).transpose(1, 2)
    return x.reshape(height * width // size**2, size * size, channels)


def join_windows(x: Tensor, size: int, height: int, width: int) -> Tensor:
    """The inverse of `split_windows`, cut to [1, height, width, c]."""
    rows, columns, channels = -(-height // size), -(-width // size), x.shape[2]
    x = x.reshape(rows, columns, size, size * channels).transpose(1, 2)
    return x.reshape(1, rows * size, columns * size, channels)[:, :height, :width]


def pool(x: Tensor) -> Tensor:
    """2x2 maximum of [b, h, w, c]."""
    return to_nhwc(functional.max_pool2d(to_nchw(x), 2, 2))


class Block(nn.Module):
    """Sam2MultiScaleBlock: attention inside windows, or over the whole map where the window size is 0."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.norm1, self.norm2, self.mlp = block.layer_norm1, block.layer_norm2, block.mlp
        self.window, self.pools = block.window_size, block.query_stride is not None
        self.skip = block.proj if block.dim != block.dim_out else None
        self.channels, self.heads = block.dim_out, block.attn.num_attention_heads
        # Three products instead of one: a slice of their common result would be one more pass over it.
        weights, biases = block.attn.qkv.weight.chunk(3), block.attn.qkv.bias.chunk(3)
        query, self.key, self.value = (linear(*pair) for pair in zip(weights, biases, strict=True))
        self.query = scaled(query, block.attn.scale)
        self.out = block.attn.proj

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        residual = x if self.skip is None else self.skip(normed)
        if self.pools:
            residual = pool(residual)
        height, width = x.shape[1:3]
        side = self.window or height
        windows = split_windows(normed, side) if self.window else normed.reshape(1, height * width, -1)
        mixed = self.attention(windows, side)
        height, width = residual.shape[1:3]
        if self.window:
            mixed = join_windows(mixed, side // 2 if self.pools else side, height, width)
        else:
            mixed = mixed.reshape(1, height, width, self.channels)
        x = residual + self.out(mixed)
        return x + self.mlp(self.norm2(x))

    def attention(self, x: Tensor, side: int) -> Tensor:
        query, key, value = self.query(x), self.key(x), self.value(x)
        if self.pools:
            query = pool(query.reshape(-1, side, side, self.channels)).reshape(-1, side * side // 4, self.channels)
        return merge_heads(attend(heads(query, self.heads), heads(key, self.heads), heads(value, self.heads)))


class Encode(nn.Module):
    """image [1, 3, 1024, 1024] -> pix [1, 256, 64, 64], hi0 [1, 32, 256, 256], hi1 [1, 64, 128, 128].

    With `no_memory` the embedding of "no memory" is in `pix` already, as the image decoder wants it.
    """

    def __init__(self, model: Any, *, no_memory: bool) -> None:
        super().__init__()
        trunk, neck = model.vision_encoder.backbone, model.vision_encoder.neck
        self.patch = trunk.patch_embed.projection
        self.ends = tuple(trunk.stage_ends)
        self.blocks = nn.ModuleList(Block(block) for block in trunk.blocks)
        grid = tuple(side // 4 for side in trunk.config.image_size)
        self.position = nn.Buffer(trunk._get_pos_embed(grid).detach().clone())
        self.deepest, self.deep = pointwise(neck.convs[0]), pointwise(neck.convs[1])
        self.middle = chained(model.mask_decoder.conv_s1, neck.convs[2])
        self.fine = chained(model.mask_decoder.conv_s0, neck.convs[3])
        if no_memory:
            self.deep.bias = nn.Parameter(self.deep.bias + model.no_memory_embedding.reshape(-1), requires_grad=False)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        x = to_nhwc(self.patch(image)) + self.position
        stages = []
        for index, block in enumerate(self.blocks):
            x = block(x)
            if index in self.ends:
                stages.append(x)
        pix = self.deep(stages[2]) + double_size(self.deepest(stages[3]))
        return to_nchw(pix), to_nchw(self.fine(stages[0])), to_nchw(self.middle(stages[1]))
