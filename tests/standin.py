"""A seeded full-size checkpoint that stands in for trained SAM 2.1 weights, which tests must not download.

Random weights are chaotic: thresholds and memory amplify the last digits, the chosen candidate flips, masks are noise.
So these are tamed as trained weights are: objects count as visible, masks are made of a few smooth directions of the
decoder's features around zero (neither empty nor full) and depend on the clicks, predicted IoUs lie apart, and memory
is a modest part of a frame's features. Attention to it is selective: memories in the wrong places or pointers left out
change a mask by percents. What only trained weights can show, whether a mask is any good, is not shown.
"""

from __future__ import annotations

import math
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {},
    "small": {"blocks_per_stage": [1, 2, 11, 2], "global_attention_blocks": [7, 10, 13]},
    "base-plus": {
        "hidden_size": 112,
        "embed_dim_per_stage": [112, 224, 448, 896],
        "num_attention_heads": 2,
        "num_attention_heads_per_stage": [2, 4, 8, 16],
        "blocks_per_stage": [2, 3, 16, 3],
        "global_attention_blocks": [12, 16, 20],
        "window_positional_embedding_background_size": [14, 14],
    },
    "large": {
        "hidden_size": 144,
        "embed_dim_per_stage": [144, 288, 576, 1152],
        "num_attention_heads": 2,
        "num_attention_heads_per_stage": [2, 4, 8, 16],
        "blocks_per_stage": [2, 6, 36, 4],
        "global_attention_blocks": [23, 33, 43],
        "window_size_per_stage": [8, 4, 16, 8],
    },
}

RULES: tuple[tuple[str, str, float], ...] = (
    ("*norm*.weight", "around one", 0.1),
    ("*norm*.bias", "plain", 0.1),
    ("*.bias", "plain", 0.05),
    ("*_embed.weight", "plain", 0.5),
    ("mask_decoder.iou_token.weight", "plain", 0.5),
    ("mask_decoder.obj_score_token.weight", "plain", 0.5),
    ("mask_decoder.mask_tokens.weight", "plain", 0.5),
    ("no_*", "plain", 0.5),
    ("memory_temporal_positional_encoding", "plain", 0.3),
    ("occlusion_spatial_embedding_parameter", "plain", 0.3),
    ("*.pos_embed", "plain", 0.3),
    ("*.pos_embed_window", "plain", 0.1),
    ("*.scale", "plain", 0.3),
    ("mask_decoder.conv_s*", "by fan-in", 0.05),
    ("mask_decoder.transformer.layers.*.cross_attn_image_to_token.o_proj.weight", "by fan-in", 0.15),
    ("mask_decoder.transformer.layers.*.self_attn.*", "by fan-in", 1.0),
    ("mask_decoder.transformer.layers.*", "by fan-in", 0.5),
    ("mask_decoder.output_hypernetworks_mlps.*", "by fan-in", 1.4),
    ("mask_decoder.transformer.final*", "by fan-in", 0.5),
    ("memory_attention.layers.*.cross_attn_image.[qk]_proj.weight", "by fan-in", 2.0),
    ("memory_attention.*", "by fan-in", 0.5),
    ("memory_encoder.projection.weight", "by fan-in", 1.6),
    ("object_pointer_proj.*", "by fan-in", 2.0),
    ("*", "by fan-in", 0.8),
)
"""First matching pattern of a parameter's name decides how it is drawn."""


def write_checkpoint(folder: Path, *, size: str = "tiny", seed: int = 0) -> Path:
    """Write config.json and model.safetensors of a stand-in, as `transformers` saves SAM 2.1."""
    build(size, seed=seed).save_pretrained(folder)
    return folder


def build(size: str = "tiny", *, seed: int = 0) -> Any:
    """The stand-in as a transformers Sam2VideoModel in float32."""
    from transformers import Sam2VideoConfig, Sam2VideoModel

    backbone = SIZES[size]
    vision: dict[str, Any] = {
        "model_type": "sam2_vision_model",
        "backbone_config": {"model_type": "sam2_hiera_det_model", **backbone},
    }
    if "embed_dim_per_stage" in backbone:
        vision["backbone_channel_list"] = backbone["embed_dim_per_stage"][::-1]
    model: Any = Sam2VideoModel(Sam2VideoConfig(vision_config=vision)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(draw(name, parameter, generator))
        gaussian = torch.randn(2, 128, generator=generator)
        model.shared_image_embedding.positional_embedding.copy_(gaussian)
        model.prompt_encoder.shared_embedding.positional_embedding.copy_(gaussian)
        tame(model, generator)
    return model


def draw(name: str, parameter: Tensor, generator: torch.Generator) -> Tensor:
    noise = torch.randn(parameter.shape, generator=generator)
    kind, deviation = next((kind, value) for pattern, kind, value in RULES if fnmatchcase(name, pattern))
    if kind == "by fan-in":
        return deviation * noise / math.sqrt(parameter[0].numel())
    return deviation * noise + (1.0 if kind == "around one" else 0.0)


def tame(model: Any, generator: torch.Generator) -> None:
    decoder = model.mask_decoder
    for conv in (decoder.upscale_conv1, decoder.upscale_conv2):  # no checkerboard: the four sub-pixels nearly agree
        mean = conv.weight.mean(dim=(2, 3), keepdim=True)
        conv.weight.copy_(2 * mean + 0.1 * (conv.weight - mean))
    decoder.pred_obj_score_head.proj_out.weight.mul_(0.3)
    decoder.pred_obj_score_head.proj_out.bias.fill_(3.0)
    decoder.iou_prediction_head.proj_out.weight.mul_(0.05)
    decoder.iou_prediction_head.proj_out.bias.copy_(torch.tensor([0.2, 0.6, 1.8, -0.6]))
    directions = principal_directions(model)
    for index, mlp in enumerate(decoder.output_hypernetworks_mlps):
        mix = 1.5 * torch.randn(len(directions), mlp.proj_out.in_features, generator=generator) / math.sqrt(256)
        mlp.proj_out.weight.copy_(directions.T @ mix)
        mlp.proj_out.bias.copy_(directions[index])


def principal_directions(model: Any) -> Tensor:
    """Four directions in which the decoder's pixel features of a picture vary most, [4, 32]: logits around zero."""
    seen: list[Tensor] = []
    hook = model.mask_decoder.upscale_conv2.register_forward_hook(lambda *call: seen.append(call[2]))
    embeddings = model.get_image_embeddings(preprocess(picture(1024, 1024, seed=1)))
    click = {"input_points": torch.full((1, 1, 1, 2), 512.0), "input_labels": torch.ones(1, 1, 1, dtype=torch.int)}
    model._single_frame_forward(image_embeddings=embeddings, **click)
    hook.remove()
    features = torch.nn.functional.gelu(seen[0] + embeddings[0]).reshape(32, -1)
    mean = features.mean(dim=1, keepdim=True)
    _, vectors = torch.linalg.eigh((features - mean) @ (features - mean).T)
    mean = mean / mean.norm()
    top = vectors[:, -4:].T.flip(0)
    top = top - (top @ mean) * mean.T
    top = top * torch.sign(top[:, :1])
    spread = ((top @ features) ** 2).mean(dim=1, keepdim=True).sqrt()
    return 4.0 * top / spread


def picture(height: int, width: int, *, seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A rendered scene, RGB uint8 [height, width, 3]: smooth ground, a dozen shaded ellipses, mild noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    scene = np.stack(
        [60 + 90 * (a * x + b * y) + 30 * np.sin(6 * (a * y - b * x)) for a, b in rng.random((3, 2))], axis=2
    )
    for _ in range(12):
        cx, cy, rx, ry, shade = *rng.random(2), *rng.uniform(0.04, 0.2, 2), rng.uniform(0.4, 1.0)
        distance = ((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2
        colour = rng.uniform(20, 235, 3) * (1 - 0.4 * np.clip(distance, 0, 1))[..., None] ** shade
        scene = np.where(distance[..., None] < 1, colour, scene)
    noisy = scene + rng.normal(0, 3, scene.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def preprocess(rgb: np.ndarray[Any, np.dtype[np.uint8]]) -> Tensor:
    """A 1024x1024 picture as the encoder takes it, [1, 3, 1024, 1024]."""
    scaled = torch.from_numpy(rgb.astype(np.float32)) / 255
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return ((scaled - mean) / deviation).permute(2, 0, 1).unsqueeze(0)


if __name__ == "__main__":
    write_checkpoint(Path(sys.argv[1]), size=sys.argv[2] if len(sys.argv) > 2 else "tiny")
