"""A labeler Runtime over the modules of a small `Sam2VideoModel`, and that model: the reference for tracking tests.

The runtime has the interface of the graphs (one bundle, parts by name) and none of their rewrites: a key that is
masked is left out, so what it computes is what the reference computes when it never had that key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from transformers import Sam2HieraDetConfig, Sam2VideoConfig, Sam2VideoModel, Sam2VisionConfig
from transformers.models.sam2_video import modeling_sam2_video as reference
from transformers.models.sam2_video.configuration_sam2_video import (
    Sam2VideoMaskDecoderConfig,
    Sam2VideoPromptEncoderConfig,
)

from labeler.bundle import Bundle, ConstantSpec, GraphSpec, Part
from labeler.prompts import Prompt
from labeler.sam2 import Sam2
from labeler.types import Array, Box, Point, Rgb, Seed

SIDE = 128
TOKENS = 4
"""Sparse tokens the decoder takes: up to three clicks."""


GAINS = {
    "memory_attention.*[qk]_proj*": 2.0,
    "memory_attention.*": 1.0,
    "mask_decoder.transformer.*": 1.0,
    "mask_decoder.conv_s*": 0.2,
    "memory_encoder.projection*": 3.0,
    "mask_decoder.iou_prediction_head.proj_out*": 3.0,
    "*": 0.8,
}


def small_model(seed: int = 0, *, score: float = 3.0) -> Sam2VideoModel:
    """SAM 2.1 with its own memory sizes, a small encoder and 128 pixels; seeded weights, float32 values in float64.

    Weights are scaled so that memory matters but does not amplify float64 rounding to 1e-6 within 20 frames, and masks
    are neither empty nor full. Object scores lie within 1 of `score` - 0.5: at 3 every object is visible, at 0.5 some.
    """
    config = Sam2VideoConfig(
        vision_config=Sam2VisionConfig(
            backbone_config=Sam2HieraDetConfig(
                hidden_size=16,
                image_size=[SIDE, SIDE],
                blocks_per_stage=[1, 1, 2, 1],
                embed_dim_per_stage=[16, 32, 64, 128],
                num_attention_heads_per_stage=[1, 1, 2, 2],
                global_attention_blocks=[3],
            ).to_dict(),
            backbone_channel_list=[128, 64, 32, 16],
            backbone_feature_sizes=[[SIDE // 4] * 2, [SIDE // 8] * 2, [SIDE // 16] * 2],
        ).to_dict(),
        prompt_encoder_config=Sam2VideoPromptEncoderConfig(image_size=SIDE).to_dict(),
        mask_decoder_config=Sam2VideoMaskDecoderConfig(mlp_dim=256).to_dict(),
        image_size=SIDE,
        memory_attention_rope_feat_sizes=[SIDE // 16, SIDE // 16],
        memory_attention_feed_forward_hidden_size=256,
        memory_attention_num_layers=2,
    )
    model = Sam2VideoModel(config).eval()
    _tame(model, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        model.mask_decoder.pred_obj_score_head.proj_out.bias.fill_(score)
    return model.double()


def _tame(model: Sam2VideoModel, generator: torch.Generator) -> None:
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if "norm" in name:
                continue
            if weight.dim() < 2:
                weight.copy_(0.02 * noise)
                continue
            gain = next(gain for pattern, gain in GAINS.items() if fnmatchcase(name, pattern))
            weight.copy_(noise * gain / weight[0].numel() ** 0.5)
        for parameter in (
            model.memory_temporal_positional_encoding,
            model.no_object_pointer,
            model.no_memory_embedding,
            model.occlusion_spatial_embedding_parameter,
        ):
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
        for layer in model.memory_encoder.memory_fuser.layers:
            layer.scale.fill_(0.3)
        model.shared_image_embedding.positional_embedding.copy_(torch.randn(2, 128, generator=generator))
        model.prompt_encoder.shared_embedding.positional_embedding.copy_(
            model.shared_image_embedding.positional_embedding
        )


def write_bundle(model: Sam2VideoModel, folder: Path, *, slots: Sequence[int] = (2, 7, 8)) -> Bundle:
    """The description of the model's graphs, with its host constants as files."""
    side, pix = model.image_size, model.backbone_feature_sizes[-1][0]
    features = (
        Part("pix", (256, pix, pix)),
        Part("hi0", (32, 4 * pix, 4 * pix)),
        Part("hi1", (64, 2 * pix, 2 * pix)),
    )
    prompt = Part("sparse", (TOKENS, 256)), Part("token_mask", (TOKENS,)), Part("no_memory", (1,))
    decoded = Part("masks", (4, 4 * pix, 4 * pix)), Part("iou", (4,)), Part("pointers", (4, 256))
    graphs = {
        "encode": _graph([Part("image", (3, side, side))], features),
        "decode": _graph([*features, *prompt], [*decoded, Part("object_score", (1,))]),
        "memorize": _graph(
            [features[0], Part("mask", (side, side)), Part("occluded", (1,))], [Part("memory", (pix * pix, 64))]
        ),
    }
    for count in slots:
        bank = Part("memory", (count, pix * pix, 64)), Part("temporal", (count, 64))
        pointers = Part("pointers", (64, 64)), Part("pointer_positions", (64, 64))
        mask = Part("key_mask", (count * pix * pix + 64,))
        graphs[f"memcond{count}"] = _graph([features[0], *bank, *pointers, mask], [features[0]])
    return Bundle(
        folder=folder,
        name="small-torch",
        version="0",
        license="Apache-2.0",
        origin="seeded",
        graphs=graphs,
        constants=_write_constants(model, folder),
        stills="video",
        image_candidate_0=None,
        provenance={},
    )


def _graph(inputs: Sequence[Part], outputs: Sequence[Part]) -> GraphSpec:
    return GraphSpec("none.tflite", None, None, layout="flat", inputs=tuple(inputs), outputs=tuple(outputs))


def _write_constants(model: Sam2VideoModel, folder: Path) -> dict[str, ConstantSpec]:
    not_a_point = model.prompt_encoder.not_a_point_embed.weight
    time = model.temporal_positional_encoding_projection_layer
    values: dict[str, dict[str, torch.Tensor]] = {
        "prompt": {"not_a_point": not_a_point[0]},
        "track_sparse": {"track_sparse": not_a_point.expand(2, -1)},
        "temporal": {"temporal": model.memory_temporal_positional_encoding[:, 0, 0]},
        "no_object_pointer": {"no_object_pointer": model.no_object_pointer[0]},
        "pointer_time": {"weight": time.weight, "bias": time.bias},
    }
    specs = {}
    for role, parts in values.items():
        flat = torch.cat([part.flatten() for part in parts.values()]).detach()
        assert torch.equal(flat, flat.float().double()), "the reference and the files must hold the same values"
        flat.float().numpy().astype("<f4").tofile(folder / f"{role}.bin")
        shapes = tuple(Part(name, tuple(part.shape)) for name, part in parts.items())
        specs[role] = ConstantSpec(f"{role}.bin", None, None, parts=shapes)
    return specs


class TorchRuntime:
    """Runs the modules of `model` in float64; counts the runs of each graph in `runs`."""

    def __init__(self, model: Sam2VideoModel, bundle: Bundle) -> None:
        self.model, self.bundle = model, bundle
        self.runs: Counter[str] = Counter()

    def run(self, graph: str, /, **parts: Array) -> dict[str, Array]:
        spec = self.bundle.graphs[graph]
        assert {part.name: part.shape for part in spec.inputs} == {name: part.shape for name, part in parts.items()}
        self.runs[graph] += 1
        tensors = {name: torch.from_numpy(np.asarray(part, np.float64)) for name, part in parts.items()}
        with torch.inference_mode(), throughout(torch.float64):
            outputs = getattr(self, "_" + graph.rstrip("0123456789"))(**tensors)
        return {part.name: outputs[part.name].reshape(part.shape).numpy() for part in spec.outputs}

    def _encode(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        maps = self.model.get_image_features(image[None], return_dict=True).fpn_hidden_states
        return {name: level.permute(1, 2, 0) for name, level in zip(("hi0", "hi1", "pix"), maps, strict=True)}

    def _decode(self, **parts: torch.Tensor) -> dict[str, torch.Tensor]:
        model = self.model
        pix = parts["pix"] + parts["no_memory"] * model.no_memory_embedding.reshape(-1, 1, 1)
        dense = model.prompt_encoder.no_mask_embed.weight.reshape(1, -1, 1, 1).expand(1, -1, *pix.shape[1:])
        call = {
            "image_embeddings": pix[None],
            "image_positional_embeddings": model.get_image_wide_positional_embeddings(),
            "sparse_prompt_embeddings": parts["sparse"][parts["token_mask"] > 0][None, None],
            "dense_prompt_embeddings": dense,
            "high_resolution_features": [parts["hi0"][None], parts["hi1"][None]],
        }
        with _all_candidates(model) as tokens:
            masks, iou, _, score = model.mask_decoder(multimask_output=False, **call)
        pointers = model.object_pointer_proj(tokens[0])
        return {"masks": masks, "iou": iou, "pointers": pointers, "object_score": score}

    def _memcond(self, **parts: torch.Tensor) -> dict[str, torch.Tensor]:
        model, pix, memory = self.model, parts["pix"], parts["memory"]
        slots, tokens, channels = memory.shape
        spatial = model.memory_encoder.position_encoding((1, channels, *pix.shape[1:]), pix.device, pix.dtype)
        positions = spatial[0].flatten(1).T + parts["temporal"][:, None]
        used = parts["key_mask"] == 0
        keys = torch.cat([memory.reshape(-1, channels), parts["pointers"]])[used]
        positions = torch.cat([positions.reshape(-1, channels), parts["pointer_positions"]])[used]
        sine = model.vision_encoder.neck.position_encoding((1, *pix.shape), pix.device, pix.dtype)
        out = model.memory_attention(
            current_vision_features=pix.flatten(1).T[:, None],
            current_vision_position_embeddings=sine.flatten(2).permute(2, 0, 1),
            memory=keys[:, None],
            memory_posision_embeddings=positions[:, None],
            num_object_pointer_tokens=int(used[slots * tokens :].sum()),
        )
        return {"pix": out.squeeze(1).transpose(1, 2)}

    def _memorize(self, **parts: torch.Tensor) -> dict[str, torch.Tensor]:
        memory, _ = self.model.memory_encoder(parts["pix"][None], parts["mask"][None, None])
        occluded = parts["occluded"] * self.model.occlusion_spatial_embedding_parameter[0]
        return {"memory": memory[0].flatten(1).T + occluded}


@contextmanager
def _all_candidates(model: Sam2VideoModel) -> Iterator[list[torch.Tensor]]:
    """Let the mask decoder return all candidates at once; yields a list that their tokens are put into."""
    decoder = model.mask_decoder
    tokens: list[torch.Tensor] = []
    handle = decoder.transformer.register_forward_hook(lambda _, __, out: tokens.append(out[0][:, :, 2:6]))
    with patch.object(decoder, "_dynamic_multimask_via_stability", lambda masks, iou: (masks, iou)):
        yield tokens
    handle.remove()


class TorchSam2(Sam2):
    """Sam2 with the reference's prompt encoder, in float64 and at the small model's own size."""

    runtime: TorchRuntime

    def prompt(self, points: Sequence[Point], box: Box | None = None, *, height: int, width: int) -> Prompt:
        assert box is None
        coordinates, labels = model_clicks(points, height=height, width=width)
        with torch.inference_mode():
            tokens, _ = self.runtime.model.prompt_encoder(coordinates, labels, None, None)
        sparse_nc = np.zeros((TOKENS, 256))
        sparse_nc[: tokens.shape[2]] = tokens[0, 0].numpy()
        used = np.float64(np.arange(TOKENS) < tokens.shape[2])
        return Prompt(sparse_nc, np.asarray(used), ambiguous=len(points) == 1)


def model_clicks(
    points: Sequence[Point], *, height: int, width: int, side: int = SIDE
) -> tuple[torch.Tensor, torch.Tensor]:
    """Coordinates [1, 1, n, 2] and labels [1, 1, n] as the reference's processor gives them."""
    places = [[point.x * side / width, point.y * side / height] for point in points]
    labels = [int(point.positive) for point in points]
    return torch.tensor([[places]], dtype=torch.float64), torch.tensor([[labels]])


class ArrayFrames:
    """A clip held in memory; counts reads."""

    def __init__(self, frames: Sequence[Rgb]) -> None:
        self._frames = frames
        self.height, self.width = frames[0].shape[:2]
        self.reads: list[int] = []

    def __len__(self) -> int:
        return len(self._frames)

    def read(self, indices: range) -> Iterator[Rgb]:
        for index in indices:
            self.reads.append(index)
            yield self._frames[index]


def moving_frames(count: int, *, height: int = SIDE, width: int = SIDE, seed: int = 0) -> list[Rgb]:
    """A textured background with three coloured discs that move across it."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    ground = 110 + 40 * np.sin(x / 9)[..., None] * np.cos(y / 7)[..., None] + rng.normal(0, 8, (height, width, 3))
    colours = np.array([[220, 60, 50], [60, 200, 90], [70, 90, 230]])
    frames = []
    for t in range(count):
        picture = ground + rng.normal(0, 3, ground.shape)
        for i, (cx, cy) in enumerate(disc_centres(t, count, height=height, width=width)):
            inside = (x - cx) ** 2 + (y - cy) ** 2 < (0.12 * min(height, width)) ** 2
            picture[inside] = colours[i] + 15 * np.sin(x[inside] / 3)[:, None]
        frames.append(np.clip(picture, 0, 255).astype(np.uint8))
    return frames


def disc_centres(t: int, count: int, *, height: int = SIDE, width: int = SIDE) -> list[tuple[float, float]]:
    """Centres (x, y) of the three discs on frame `t` of `moving_frames`."""
    way = 0.2 + 0.6 * t / max(count - 1, 1)
    return [(width * way, height * 0.25), (width * (1 - way), height * 0.5), (width * 0.5, height * (0.9 - 0.5 * way))]


class _PreciseTorch:
    """The torch module, with its usual and its narrow floating type replaced by `dtype`."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.float = self.float32 = self.bfloat16 = dtype

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextmanager
def throughout(dtype: torch.dtype, *, bfloat16_memory: bool = False) -> Iterator[None]:
    """Switch off the reference's casts to float32 and, unless asked for, to bfloat16."""
    precise = _PreciseTorch(dtype)
    if bfloat16_memory:
        precise.bfloat16 = torch.bfloat16
    with patch.object(reference, "torch", precise), patch.object(torch.Tensor, "float", lambda found: found.to(dtype)):
        yield


class Reference:
    """`Sam2VideoModel`'s own loop in its weights' type. Offline: all seeds run first, then the clip is propagated."""

    def __init__(
        self, model: Sam2VideoModel, frames: Sequence[Array] | None = None, *, bfloat16_memory: bool = False
    ) -> None:
        """`frames`: encoder inputs [3, side, side]; None for a stream."""
        self._model = model
        self._bfloat16_memory = bfloat16_memory
        video = None if frames is None else torch.from_numpy(np.stack(frames)).to(model.dtype)
        side = model.image_size
        self.session = reference.Sam2VideoInferenceSession(
            video=video, video_height=side, video_width=side, dtype=model.dtype
        )

    def add(self, seeds: Sequence[Seed], *, height: int, width: int) -> None:
        """Add clicks without running them."""
        for seed in seeds:
            coordinates, labels = model_clicks(seed.points, height=height, width=width, side=self._model.image_size)
            index = self.session.obj_id_to_idx(seed.object_id)
            self.session.add_point_inputs(index, seed.frame, {"point_coords": coordinates, "point_labels": labels})
        self.session.obj_with_new_inputs = [seed.object_id for seed in seeds]

    def click(self, seeds: Sequence[Seed], *, height: int, width: int) -> None:
        """Add and run clicks, frame by frame."""
        for frame in sorted({seed.frame for seed in seeds}):
            self.add([seed for seed in seeds if seed.frame == frame], height=height, width=width)
            with self._precisely():
                self._model(self.session, frame_idx=frame)

    def propagate(
        self, *, start: int, reverse: bool = False, count: int | None = None
    ) -> dict[int, dict[int, tuple[Array, float]]]:
        """Per frame and object: low-resolution logits and object score. `count`: frames, if not all that are left."""
        with self._precisely():
            walk = self._model.propagate_in_video_iterator(self.session, start_frame_idx=start, reverse=reverse)
            return {out.frame_idx: _results(out) for out in islice(walk, count)}

    def next(self, frame: Array) -> dict[int, tuple[Array, float]]:
        """Streaming: the results of the next frame, after the clicks that were added to it."""
        with self._precisely():
            return _results(self._model(self.session, frame=torch.from_numpy(frame).to(self._model.dtype)))

    def _precisely(self) -> AbstractContextManager[None]:
        return throughout(self._model.dtype, bfloat16_memory=self._bfloat16_memory)


def _results(out: reference.Sam2VideoSegmentationOutput) -> dict[int, tuple[Array, float]]:
    masks, scores = out.pred_masks.flatten(0, -3).numpy(), out.object_score_logits.flatten().tolist()
    return dict(zip(out.object_ids, zip(masks, scores, strict=True), strict=True))


def with_slots(bundle: Bundle, *slots: int) -> Bundle:
    """The same bundle with only these memory graphs."""
    kept = {role: spec for role, spec in bundle.graphs.items() if not role.startswith("memcond")}
    return replace(bundle, graphs=kept | {f"memcond{count}": bundle.graphs[f"memcond{count}"] for count in slots})
