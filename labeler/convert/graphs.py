"""Every graph of a bundle: its file, its module, its parts in order."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from labeler.bundle import GraphSpec, Part
from labeler.convert.decoder import Decode, ImageDecode
from labeler.convert.hiera import Encode
from labeler.convert.memorize import Memorize
from labeler.convert.memory import Recall
from labeler.convert.options import ConvertOptions

IMAGE = (Part("image", (3, 1024, 1024)),)
PIX, HI0, HI1 = Part("pix", (256, 64, 64)), Part("hi0", (32, 256, 256)), Part("hi1", (64, 128, 128))
PICTURE_LIKE = ("image", "masks")
"""Parts that keep their four dimensions in the flat layout when they are alone, as published."""


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """One graph to export; the module takes and returns one tensor [1, *shape] for each part."""

    role: str
    file: str
    module: nn.Module
    inputs: tuple[Part, ...]
    outputs: tuple[Part, ...]

    def spec(self, options: ConvertOptions) -> GraphSpec:
        return GraphSpec(self.file, None, None, options.layout, self.inputs, self.outputs)

    def export_form(self, options: ConvertOptions) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """The module in the wanted layout, and zeros of its inputs' shapes."""
        if options.layout == "parts":
            return Separate(self.module), tuple(torch.zeros(1, *part.shape) for part in self.inputs)
        return Flat(self.module, self.inputs, self.outputs), (torch.zeros(flat_shape(self.inputs)),)


def flat_shape(parts: tuple[Part, ...]) -> tuple[int, ...]:
    """Shape of the one tensor that holds `parts` end to end."""
    if len(parts) == 1 and parts[0].name in PICTURE_LIKE:
        return (1, *parts[0].shape)
    return (1, sum(part.size for part in parts))


class Flat(nn.Module):
    """A module behind one input and one output tensor, its parts end to end."""

    def __init__(self, module: nn.Module, inputs: tuple[Part, ...], outputs: tuple[Part, ...]) -> None:
        super().__init__()
        self.module, self.inputs, self.output_shape = module, inputs, flat_shape(outputs)

    def forward(self, x: Tensor) -> Tensor:
        parts, start = [], 0
        for part in self.inputs:
            piece = x if prod(x.shape) == part.size else x[:, start : start + part.size]
            parts.append(piece.reshape(1, *part.shape))
            start += part.size
        results = [result.reshape(1, -1) for result in self.module(*parts)]
        return (torch.cat(results, dim=1) if len(results) > 1 else results[0]).reshape(self.output_shape)


class Separate(nn.Module):
    """A module with one tensor per part."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *parts: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.module(*parts))


def graphs(model: Any, options: ConvertOptions) -> tuple[Graph, ...]:
    """All graphs that `options` ask for, over the weights of a transformers Sam2VideoModel."""
    video = (
        Graph("encode", "sam2v_encode.tflite", Encode(model, no_memory=False), IMAGE, (PIX, HI0, HI1)),
        decode(model, options),
        Graph("memorize", "sam2v_memorize.tflite", Memorize(model), *memorize_parts()),
        *(recall(model, slots) for slots in sorted(options.memory_slots)),
    )
    return (*video, *image_pair(model, options)) if options.image_pair else video


def decoder_options(options: ConvertOptions) -> dict[str, bool]:
    return {
        "token_mask": options.prompt_tokens > 2,
        "mask_input": options.mask_input,
        "by_channel": options.layout == "parts",
    }


def extra_inputs(options: ConvertOptions) -> tuple[Part, ...]:
    tokens = (Part("token_mask", (options.prompt_tokens,)),) if options.prompt_tokens > 2 else ()
    mask = (Part("mask_input", (256, 256)), Part("has_mask", (1,))) if options.mask_input else ()
    return (*tokens, *mask)


def decode(model: Any, options: ConvertOptions) -> Graph:
    inputs = (
        PIX,
        HI0,
        HI1,
        Part("sparse", (options.prompt_tokens, 256)),
        Part("no_memory", (1,)),
        *extra_inputs(options),
    )
    outputs = (Part("masks", (4, 256, 256)), Part("iou", (4,)), Part("pointers", (4, 256)), Part("object_score", (1,)))
    return Graph("decode", "sam2v_decode.tflite", Decode(model, **decoder_options(options)), inputs, outputs)


def image_pair(model: Any, options: ConvertOptions) -> tuple[Graph, Graph]:
    inputs = (PIX, Part("sparse", (options.prompt_tokens, 256)), HI0, HI1, *extra_inputs(options))
    module = ImageDecode(model, **decoder_options(options))
    return (
        Graph("image_encode", "sam2_encoder.tflite", Encode(model, no_memory=True), IMAGE, (PIX, HI0, HI1)),
        Graph("image_decode", "sam2_decoder.tflite", module, inputs, (Part("masks", (3, 256, 256)),)),
    )


def memorize_parts() -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    return (PIX, Part("mask", (1024, 1024)), Part("occluded", (1,))), (Part("memory", (4096, 64)),)


def recall(model: Any, slots: int) -> Graph:
    inputs = (
        PIX,
        Part("memory", (slots, 4096, 64)),
        Part("temporal", (slots, 64)),
        Part("pointers", (64, 64)),
        Part("pointer_positions", (64, 64)),
        Part("key_mask", (slots * 4096 + 64,)),
    )
    return Graph(f"memcond{slots}", f"sam2v_memcond{slots}.tflite", Recall(model, slots=slots), inputs, (PIX,))
