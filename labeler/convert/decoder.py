"""The mask decoder: two-way transformer, enlargement, mask product, scores, object pointers.

Mirrors transformers' Sam2VideoMaskDecoder and the part of the prompt encoder that works on masks. All four
candidates leave the graph; choosing among them is the host's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from labeler.convert.layers import Upscale, attend, channels_last_norm, heads, merge_heads, pointwise, scaled, to_nhwc

MASKED = -1e9


class Attention(nn.Module):
    """Sam2VideoAttention for one prompt."""

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.heads = attention.num_attention_heads
        self.query = scaled(attention.q_proj, attention.scaling)
        self.key, self.value, self.out = attention.k_proj, attention.v_proj, attention.o_proj

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (heads(x, self.heads) for x in (self.query(query), self.key(key), self.value(value)))
        return self.out(merge_heads(attend(q, k, v, mask)))


class TwoWayBlock(nn.Module):
    """Sam2VideoTwoWayAttentionBlock."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.self_attention = Attention(block.self_attn)
        self.to_image = Attention(block.cross_attn_token_to_image)
        self.to_tokens = Attention(block.cross_attn_image_to_token)
        self.mlp, self.first = block.mlp, block.skip_first_layer_pe
        self.norm1, self.norm2 = block.layer_norm1, block.layer_norm2
        self.norm3, self.norm4 = block.layer_norm3, block.layer_norm4

    def forward(
        self, tokens: Tensor, image: Tensor, prompt: Tensor, position: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if self.first:
            tokens = self.self_attention(tokens, tokens, tokens, mask)
        else:
            query = tokens + prompt
            tokens = tokens + self.self_attention(query, query, tokens, mask)
        tokens = self.norm1(tokens)
        key = image + position
        tokens = self.norm2(tokens + self.to_image(tokens + prompt, key, image))
        tokens = self.norm3(tokens + self.mlp(tokens))
        image = self.norm4(image + self.to_tokens(key, tokens + prompt, tokens, mask))
        return tokens, image


class MaskPrompt(nn.Module):
    """Sam2VideoMaskEmbedding, or the embedding of "no mask" where `has_mask` is 0: -> [1, 64, 64, 256]"""

    def __init__(self, prompt_encoder: Any) -> None:
        super().__init__()
        embed = prompt_encoder.mask_embed
        self.conv1, self.conv2, self.conv3 = embed.conv1, embed.conv2, pointwise(embed.conv3)
        self.norm1, self.norm2 = channels_last_norm(embed.layer_norm1), channels_last_norm(embed.layer_norm2)
        self.activation = embed.activation
        self.no_mask = nn.Buffer(prompt_encoder.no_mask_embed.weight.detach().reshape(1, 1, 1, -1).clone())

    def forward(self, mask: Tensor, has_mask: Tensor) -> Tensor:
        """mask [1, 256, 256] logits, has_mask [1, 1]"""
        x = self.activation(self.norm1(to_nhwc(self.conv1(mask.reshape(1, 1, 256, 256)))))
        x = self.activation(self.norm2(to_nhwc(self.conv2(x.permute(0, 3, 1, 2)))))
        has = has_mask.reshape(1, 1, 1, 1)
        return self.no_mask + has * (self.conv3(x) - self.no_mask)


class MaskDecoder(nn.Module):
    """image [1, 64, 64, 256] with its dense prompt, hi0, hi1, sparse [1, n, 256], mask -> masks and output tokens."""

    def __init__(self, model: Any, *, by_channel: bool) -> None:
        super().__init__()
        decoder = model.mask_decoder
        fixed = [decoder.obj_score_token.weight, decoder.iou_token.weight, decoder.mask_tokens.weight]
        self.tokens = nn.Buffer(torch.cat(fixed).detach().unsqueeze(0).clone())
        position = model.get_image_wide_positional_embeddings().detach()
        self.position = nn.Buffer(position.flatten(2).transpose(1, 2).clone())
        self.blocks = nn.ModuleList(TwoWayBlock(block) for block in decoder.transformer.layers)
        self.final = Attention(decoder.transformer.final_attn_token_to_image)
        self.norm = decoder.transformer.layer_norm_final_attn
        self.up1, self.up2 = Upscale(decoder.upscale_conv1), Upscale(decoder.upscale_conv2)
        self.up_norm = channels_last_norm(decoder.upscale_layer_norm)
        self.activation, self.hyper = decoder.activation, decoder.output_hypernetworks_mlps
        self.by_channel = by_channel

    def forward(
        self, image: Tensor, hi0: Tensor, hi1: Tensor, sparse: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """-> masks [1, 4, 256, 256], tokens [1, 6 + n, 256]"""
        prompt = torch.cat([self.tokens, sparse], dim=1)
        tokens, keys = prompt, image.reshape(1, 4096, 256)
        for block in self.blocks:
            tokens, keys = block(tokens, keys, prompt, self.position, mask)
        tokens = self.norm(tokens + self.final(tokens + prompt, keys + self.position, keys))
        up = self.activation(self.up_norm(self.up1(keys.reshape(1, 64, 64, 256)) + to_nhwc(hi1)))
        up = self.activation(self.up2(up) + to_nhwc(hi0))
        return self.product(up, tokens), tokens

    def product(self, up: Tensor, tokens: Tensor) -> Tensor:
        """Each mask token's vector against every pixel of `up` [1, 256, 256, 32].

        By channel it is a sum over 256x256 maps, for GPUs whose textures end before 65536; else one matrix product.
        """
        vectors = [mlp(tokens[:, 2 + index]) for index, mlp in enumerate(self.hyper)]
        if self.by_channel:
            maps = [(up * vector.reshape(1, 1, 1, 32)).sum(dim=3) for vector in vectors]
            return torch.cat(maps, dim=0).reshape(1, 4, 256, 256)
        flat = torch.stack(vectors, dim=1) @ up.reshape(1, 65536, 32).transpose(1, 2)
        return flat.reshape(1, 4, 256, 256)


class Prompted(nn.Module):
    """The decoder with its optional prompt inputs, in this order: token_mask, mask_input, has_mask."""

    def __init__(self, model: Any, *, token_mask: bool, mask_input: bool, by_channel: bool) -> None:
        super().__init__()
        self.decoder = MaskDecoder(model, by_channel=by_channel)
        self.token_mask = token_mask
        self.mask_prompt = MaskPrompt(model.prompt_encoder) if mask_input else None
        self.no_mask = nn.Buffer(model.prompt_encoder.no_mask_embed.weight.detach().reshape(1, 1, 1, -1).clone())

    def forward(
        self, pix: Tensor, hi0: Tensor, hi1: Tensor, sparse: Tensor, extras: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        mask, rest = (extras[0], extras[1:]) if self.token_mask else (None, extras)
        dense = self.no_mask if self.mask_prompt is None else self.mask_prompt(*rest)
        return self.decoder(to_nhwc(pix) + dense, hi0, hi1, sparse, None if mask is None else self.additive(mask))

    def additive(self, token_mask: Tensor) -> Tensor:
        """[1, n] of 1 and 0 -> [1, 1, 1, 6 + n] to add to the scores of keys; the model's own tokens always count."""
        used = torch.cat([torch.ones_like(token_mask[:, :1]).expand(1, 6), token_mask], dim=1)
        return ((1 - used) * MASKED).reshape(1, 1, 1, -1)


class ImageDecode(nn.Module):
    """pix, sparse, hi0, hi1, extras -> masks [1, 3, 256, 256]: the three multi-mask candidates."""

    def __init__(self, model: Any, *, token_mask: bool, mask_input: bool, by_channel: bool) -> None:
        super().__init__()
        self.prompted = Prompted(model, token_mask=token_mask, mask_input=mask_input, by_channel=by_channel)

    def forward(self, pix: Tensor, sparse: Tensor, hi0: Tensor, hi1: Tensor, *extras: Tensor) -> tuple[Tensor, ...]:
        masks, _ = self.prompted(pix, hi0, hi1, sparse, extras)
        return (masks[:, 1:],)


class Decode(nn.Module):
    """pix, hi0, hi1, sparse, no_memory, extras -> masks, iou, pointers, object_score."""

    def __init__(self, model: Any, *, token_mask: bool, mask_input: bool, by_channel: bool) -> None:
        super().__init__()
        self.prompted = Prompted(model, token_mask=token_mask, mask_input=mask_input, by_channel=by_channel)
        self.iou, self.score = model.mask_decoder.iou_prediction_head, model.mask_decoder.pred_obj_score_head
        self.pointer = model.object_pointer_proj
        self.no_memory = nn.Buffer(model.no_memory_embedding.detach().reshape(1, -1, 1, 1).clone())

    def forward(
        self, pix: Tensor, hi0: Tensor, hi1: Tensor, sparse: Tensor, no_memory: Tensor, *extras: Tensor
    ) -> tuple[Tensor, ...]:
        pix = pix + no_memory.reshape(1, 1, 1, 1) * self.no_memory
        masks, tokens = self.prompted(pix, hi0, hi1, sparse, extras)
        return masks, self.iou(tokens[:, 1]), self.pointer(tokens[:, 2:6]), self.score(tokens[:, 0])
