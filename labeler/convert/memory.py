"""Memory attention (what the past says about this frame) in rank-four, batch-first form.

Mirrors transformers' Sam2VideoMemoryAttention over a fixed number of memory slots and 64 pointer tokens.
The interleaved rotary embedding becomes the half-split one by permuting the rows of the query and key
projections, which leaves every product of a query and a key as it was.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from labeler.convert.layers import joined, linear, scaled, to_nhwc


def half_split(channels: int) -> Tensor:
    """Order that puts the even channels first: pair (2i, 2i+1) lands at (i, i + channels / 2)."""
    return torch.cat([torch.arange(0, channels, 2), torch.arange(1, channels, 2)])


def permuted(layer: nn.Linear) -> nn.Linear:
    order = half_split(layer.out_features)
    return linear(layer.weight[order], layer.bias[order])


def rotary_table(memory_attention: Any) -> tuple[Tensor, Tensor]:
    """cos and sin [4096, 256] in half-split order, the sign of the rotation in the first half of sin."""
    rotary = memory_attention.rotary_emb
    if hasattr(memory_attention, "position_ids"):  # transformers since 5.2x computes them on each call
        like = torch.zeros(1, dtype=torch.float32)
        cos, sin = rotary(like, memory_attention.position_ids)
    else:
        cos, sin = rotary()
    order = half_split(cos.shape[-1])
    cos, sin = (table.detach().reshape(-1, table.shape[-1])[:, order].clone() for table in (cos, sin))
    sin[:, : sin.shape[1] // 2] *= -1
    return cos, sin


class Rotary(nn.Module):
    """Turns each pixel's channels by angles that say where it is: [1, slots, 4096, 256] -> the same."""

    def __init__(self, memory_attention: Any) -> None:
        super().__init__()
        cos, sin = rotary_table(memory_attention)
        self.cos, self.sin = nn.Buffer(cos[None, None]), nn.Buffer(sin[None, None])

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return x * self.cos + torch.cat([x[..., half:], x[..., :half]], dim=-1) * self.sin


class RotaryAttention(nn.Module):
    """Sam2VideoRoPEAttention: one head of 256 channels."""

    def __init__(self, attention: Any, rotary: Rotary) -> None:
        super().__init__()
        self.query = scaled(permuted(attention.q_proj), attention.scaling)
        self.key, self.value, self.out = permuted(attention.k_proj), attention.v_proj, attention.o_proj
        self.value_and_out = joined(attention.o_proj, attention.v_proj)
        self.rotary = rotary

    def to_itself(self, x: Tensor) -> Tensor:
        """[1, 1, 4096, 256] -> the same"""
        query, key = self.rotary(self.query(x)), self.rotary(self.key(x))
        return self.out(torch.softmax(query @ key.transpose(-1, -2), dim=-1) @ self.value(x))

    def to_memory(
        self, x: Tensor, spatial: tuple[Tensor, Tensor], pointers: tuple[Tensor, Tensor], mask: Tensor
    ) -> Tensor:
        """x [1, 1, 4096, 256]; key and value sources: spatial [1, slots, 4096, 64], pointers [1, 1, 64, 64]."""
        query = self.rotary(self.query(x))
        keys = self.rotary(self.key(spatial[0])).reshape(1, 1, -1, 256)
        keys = torch.cat([keys, self.key(pointers[0])], dim=2)
        values = torch.cat([spatial[1].reshape(1, 1, -1, 64), pointers[1]], dim=2)
        # The mask as one more channel: the product adds it, which spares a pass over the scores, 16% of the time.
        query, keys = torch.cat([query, torch.ones_like(query[..., :1])], dim=-1), torch.cat([keys, mask], dim=-1)
        # A pixel's weights add up to 1, so that values can be mixed first and projected then: products with 64 channels
        # instead of 256, a third less arithmetic in all with seven slots.
        return self.value_and_out(torch.softmax(query @ keys.transpose(-1, -2), dim=-1) @ values)


class Layer(nn.Module):
    """Sam2VideoMemoryAttentionLayer."""

    def __init__(self, layer: Any, rotary: Rotary) -> None:
        super().__init__()
        self.itself, self.memory = (
            RotaryAttention(layer.self_attn, rotary),
            RotaryAttention(layer.cross_attn_image, rotary),
        )
        self.norm1, self.norm2, self.norm3 = layer.layer_norm1, layer.layer_norm2, layer.layer_norm3
        self.linear1, self.linear2, self.activation = layer.linear1, layer.linear2, layer.activation

    def forward(
        self, x: Tensor, spatial: tuple[Tensor, Tensor], pointers: tuple[Tensor, Tensor], mask: Tensor
    ) -> Tensor:
        x = x + self.itself.to_itself(self.norm1(x))
        x = x + self.memory.to_memory(self.norm2(x), spatial, pointers, mask)
        return x + self.linear2(self.activation(self.linear1(self.norm3(x))))


class Recall(nn.Module):
    """pix, memory, temporal, pointers, pointer_positions, key_mask -> pix as the memory sees it [1, 256, 64, 64]."""

    def __init__(self, model: Any, *, slots: int) -> None:
        super().__init__()
        attention, self.slots = model.memory_attention, slots
        rotary = Rotary(attention)
        self.layers = nn.ModuleList(Layer(layer, rotary) for layer in attention.layers)
        self.norm = attention.layer_norm
        dtype = next(attention.parameters()).dtype
        image = model.vision_encoder.neck.position_encoding((1, 256, 64, 64), "cpu", dtype)
        past = model.memory_encoder.position_encoding((1, 64, 64, 64), "cpu", dtype)
        self.position = nn.Buffer(0.1 * to_nhwc(image).reshape(1, 1, 4096, 256))
        self.past_position = nn.Buffer(to_nhwc(past).reshape(1, 1, 4096, 64).clone())

    def forward(
        self,
        pix: Tensor,
        memory: Tensor,
        temporal: Tensor,
        pointers: Tensor,
        pointer_positions: Tensor,
        key_mask: Tensor,
    ) -> tuple[Tensor, ...]:
        x = to_nhwc(pix).reshape(1, 1, 4096, 256) + self.position
        spatial = memory + self.past_position + temporal.reshape(1, self.slots, 1, 64), memory
        tokens = pointers.reshape(1, 1, 64, 64)
        named = tokens + pointer_positions.reshape(1, 1, 64, 64), tokens
        mask = key_mask.reshape(1, 1, -1, 1)
        for layer in self.layers:
            x = layer(x, spatial, named, mask)
        return (self.norm(x).transpose(2, 3).reshape(1, 256, 64, 64),)
