"""The model as the graphs of the contract: one module for each, over parts of batch one."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from labeler.bundle import Part
from labeler.convert.graphs import HI0, HI1, IMAGE, PIX, Graph
from models.recipe import tokens
from models.recipe.blocks import Conv, Residual
from models.recipe.encoder import IMAGE_CHANNELS
from models.recipe.model import Model
from models.recipe.options import SIDE
from models.recipe.packing import Features, pack, remembered, unpack

MEMORY_SLOTS = (2, 7)


class Encode(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model, self.shrink = model, 1024 // (SIDE * model.options.stride)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        pix, hi0, hi1 = self.model.encoder(F.avg_pool2d(image, self.shrink))
        decoder = self.model.decoder
        return pack(Features(decoder.maps(pix, hi0, hi1), decoder.keys(pix), self.model.memory.look(pix)))


class Decode(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.decoder, self.ground, self.codes = model.decoder, model.options.decoder[0], model.options.codes

    def forward(
        self, pix: Tensor, hi0: Tensor, hi1: Tensor, sparse: Tensor, no_memory: Tensor, token_mask: Tensor
    ) -> tuple[Tensor, ...]:
        features = unpack(pix, hi0, hi1, ground=self.ground, codes=self.codes)
        answer = self.decoder(features.maps, sparse, token_mask, no_memory, pix[:, IMAGE_CHANNELS:])
        return answer.masks, answer.iou, self.decoder.pointers(features.keys, answer.at128), answer.score


class ImageDecode(nn.Module):
    """The published decoder of pictures: one click, three masks, best first, nothing else."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.decode = Decode(model)
        self.register_buffer("places", torch.arange(3.0)[None, :, None], False)
        self.register_buffer("first", torch.tensor([[2e-6, 1e-6, 0.0]]), False)

    def forward(self, pix: Tensor, sparse: Tensor, hi0: Tensor, hi1: Tensor) -> tuple[Tensor, ...]:
        one = sparse[:, :1, 0] * 0.0 + 1.0
        masks, iou, _, _ = self.decode(pix, hi0, hi1, sparse, one, sparse[:, :, 0] * 0.0 + 1.0)
        # Sorted by products alone: a candidate's place is the number of better ones; of equals the first is better.
        score = iou[:, 1:] + self.first
        better = torch.sigmoid((score[:, None] - score[:, :, None]) * 1e8)
        place = better.sum(2) - 0.5
        order = torch.relu(1 - (place[:, None] - self.places).abs())
        return (torch.matmul(order[:, None], masks[:, 1:].reshape(1, 1, 3, -1)).reshape(1, 3, 256, 256),)


class Memorize(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.memory = model.memory

    def forward(self, pix: Tensor, mask: Tensor, occluded: Tensor) -> tuple[Tensor, ...]:
        keys, look = remembered(pix)
        # The host's -10 .. 10 as 0 .. 1.
        inside = F.avg_pool2d(mask.reshape(1, 1, 1024, 1024), 1024 // SIDE) * 0.05 + 0.5
        return (self.memory.memorize(keys, look, inside, occluded).reshape(1, 64, 4096).transpose(1, 2),)


class Recall(nn.Module):
    def __init__(self, model: Model, slots: int) -> None:
        super().__init__()
        self.memory, self.slots = model.memory, slots

    def forward(
        self, pix: Tensor, memory: Tensor, temporal: Tensor, pointers: Tensor, _positions: Tensor, key_mask: Tensor
    ) -> tuple[Tensor, ...]:
        held = [memory[:, i].transpose(1, 2).reshape(1, 64, 64, 64) for i in range(self.slots)]
        masks = [key_mask[:, i * 4096 : (i + 1) * 4096].reshape(1, 1, 64, 64) for i in range(self.slots)]
        masked = [F.avg_pool2d(each, 2).reshape(1, 1024) for each in masks] + [key_mask[:, self.slots * 4096 :]]
        readout = self.memory.readout(remembered(pix)[0], held, temporal, pointers, torch.cat(masked, 1))
        return (torch.cat([pix[:, :IMAGE_CHANNELS], readout], 1),)


def graphs(model: Model) -> tuple[Graph, ...]:
    """All graphs of a bundle over a model whose batch norms were folded."""
    count = model.options.prompt_tokens
    asked = (Part("sparse", (count, 256)), Part("no_memory", (1,)), Part("token_mask", (count,)))
    answered = (Part("masks", (4, 256, 256)), Part("iou", (4,)), Part("pointers", (4, 256)), Part("object_score", (1,)))
    kept = (PIX, Part("mask", (1024, 1024)), Part("occluded", (1,)))
    return (
        Graph("encode", "sam2v_encode.tflite", Encode(model), IMAGE, (PIX, HI0, HI1)),
        Graph("decode", "sam2v_decode.tflite", Decode(model), (PIX, HI0, HI1, *asked), answered),
        Graph("memorize", "sam2v_memorize.tflite", Memorize(model), kept, (Part("memory", (4096, 64)),)),
        *(_recall(model, slots) for slots in MEMORY_SLOTS),
        _image_decode(model),
    )


def _image_decode(model: Model) -> Graph:
    inputs = (PIX, Part("sparse", (2, 256)), HI0, HI1)
    return Graph("image_decode", "sam2_decoder.tflite", ImageDecode(model), inputs, (Part("masks", (3, 256, 256)),))


def _recall(model: Model, slots: int) -> Graph:
    inputs = (
        PIX,
        Part("memory", (slots, 4096, 64)),
        Part("temporal", (slots, 64)),
        Part("pointers", (64, 64)),
        Part("pointer_positions", (64, 64)),
        Part("key_mask", (slots * 4096 + 64,)),
    )
    return Graph(f"memcond{slots}", f"sam2v_memcond{slots}.tflite", Recall(model, slots), inputs, (PIX,))


def constants(model: Model) -> dict[str, dict[str, Tensor]]:
    """What the host needs besides graphs; pointers have no place in time, so their projection is zero."""
    kinds = {kind: tokens.embedding(kind) for kind in ("positive", "negative", "not_a_point")}
    alone = {"gaussian": tokens.gaussian()} | {kind: kinds[kind] for kind in ("positive", "not_a_point")}
    return {
        "image_prompt": alone,
        "prompt": {"gaussian": tokens.gaussian()} | kinds,
        "track_sparse": {"track_sparse": tokens.no_prompt(2)[0]},
        "temporal": {"temporal": model.memory.temporal},
        "no_object_pointer": {"no_object_pointer": torch.zeros(256)},
        "pointer_time": {"weight": torch.zeros(64, 256), "bias": torch.zeros(64)},
    }


def folded(model: Model) -> Model:
    """The model in evaluation mode, batch norms merged into the convolutions before them."""
    model.eval()
    for module in model.modules():
        if isinstance(module, Conv):
            module[0], module[1] = fuse_conv_bn_eval(module[0], module[1]), nn.Identity()
        if isinstance(module, Residual):
            module.second, module.norm = fuse_conv_bn_eval(module.second, module.norm), nn.Identity()
    return model
