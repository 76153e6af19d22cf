"""What each graph must compute, by transformers' own modules and none of the rewrites.

A masked key or token is left out here, so the masks of the graphs are proved too. Parts are tensors [1, *shape].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

Parts: TypeAlias = Mapping[str, Tensor]


def run(model: Any, role: str, parts: Parts) -> dict[str, Tensor]:
    """The outputs of the graph `role` for `parts`."""
    with torch.no_grad():
        return ROLES["recall" if role.startswith("memcond") else role](model, parts)


def encode(model: Any, parts: Parts) -> dict[str, Tensor]:
    maps = model.get_image_features(parts["image"]).fpn_hidden_states
    shaped = [
        x.permute(1, 2, 0).reshape(1, -1, *size) for x, size in zip(maps, model.backbone_feature_sizes, strict=True)
    ]
    return {"pix": shaped[2], "hi0": shaped[0], "hi1": shaped[1]}


def image_encode(model: Any, parts: Parts) -> dict[str, Tensor]:
    hi0, hi1, pix = model.get_image_embeddings(parts["image"])
    return {"pix": pix, "hi0": hi0, "hi1": hi1}


def decode(model: Any, parts: Parts) -> dict[str, Tensor]:
    no_memory = parts["no_memory"].reshape(1, 1, 1, 1) * model.no_memory_embedding.reshape(1, -1, 1, 1)
    parts = {**parts, "pix": parts["pix"] + no_memory}
    single, iou0, token0, score = run_decoder(model, parts, several=False)
    masks, iou, tokens, _ = run_decoder(model, parts, several=True)
    return {
        "masks": torch.cat([single, masks], dim=2)[0],
        "iou": torch.cat([iou0, iou], dim=2)[0],
        "pointers": model.object_pointer_proj(torch.cat([token0, tokens], dim=2))[0],
        "object_score": score[0],
    }


def image_decode(model: Any, parts: Parts) -> dict[str, Tensor]:
    return {"masks": run_decoder(model, parts, several=True)[0][0]}


def run_decoder(model: Any, parts: Parts, *, several: bool) -> tuple[Tensor, ...]:
    """masks, predicted IoUs, mask tokens, object score: of candidates 1 to 3, or of 0 whatever its stability."""
    sparse, prompt = parts["sparse"], model.prompt_encoder
    if "token_mask" in parts:
        sparse = sparse[:, parts["token_mask"][0] > 0]
    dense = prompt.no_mask_embed.weight.reshape(1, -1, 1, 1).expand(1, -1, 64, 64)
    if "has_mask" in parts and parts["has_mask"].item():
        dense = prompt.mask_embed(parts["mask_input"].unsqueeze(1))
    decoder, dynamic = model.mask_decoder, model.mask_decoder.dynamic_multimask_via_stability
    decoder.dynamic_multimask_via_stability = False
    try:
        return tuple(
            decoder(
                image_embeddings=parts["pix"],
                image_positional_embeddings=model.get_image_wide_positional_embeddings(),
                sparse_prompt_embeddings=sparse.unsqueeze(1),
                dense_prompt_embeddings=dense,
                multimask_output=several,
                high_resolution_features=[parts["hi0"], parts["hi1"]],
            )
        )
    finally:
        decoder.dynamic_multimask_via_stability = dynamic


def memorize(model: Any, parts: Parts) -> dict[str, Tensor]:
    memory, _ = model.memory_encoder(parts["pix"], parts["mask"].unsqueeze(1))
    occlusion = parts["occluded"].reshape(1, 1, 1, 1) * model.occlusion_spatial_embedding_parameter[..., None, None]
    return {"memory": (memory + occlusion).flatten(2).transpose(1, 2)}


def recall(model: Any, parts: Parts) -> dict[str, Tensor]:
    slots = parts["memory"].shape[1]
    keys = parts["key_mask"][0] > -1
    used, tokens = keys[: slots * 4096].reshape(slots, 4096)[:, 0], keys[slots * 4096 :]
    spatial = positions(model.memory_encoder, 64) + parts["temporal"][0, used].unsqueeze(1)
    memory = torch.cat([parts["memory"][0, used].flatten(0, 1), parts["pointers"][0, tokens]])
    position = torch.cat([spatial.flatten(0, 1), parts["pointer_positions"][0, tokens]])
    seen = model.memory_attention(
        current_vision_features=parts["pix"].flatten(2).permute(2, 0, 1),
        current_vision_position_embeddings=positions(model.vision_encoder.neck, 256).unsqueeze(1),
        memory=memory.unsqueeze(1),
        memory_posision_embeddings=position.unsqueeze(1),
        num_object_pointer_tokens=int(tokens.sum()),
    )
    return {"pix": seen.reshape(1, 4096, 256).transpose(1, 2).reshape(1, 256, 64, 64)}


def positions(owner: Any, channels: int) -> Tensor:
    """The sine embedding of the 64x64 map, [4096, channels]."""
    table: Tensor = owner.position_encoding((1, channels, 64, 64), "cpu", torch.float32)
    return table[0].flatten(1).T


ROLES: dict[str, Callable[[Any, Parts], dict[str, Tensor]]] = {
    "encode": encode,
    "image_encode": image_encode,
    "decode": decode,
    "image_decode": image_decode,
    "memorize": memorize,
    "recall": recall,
}
