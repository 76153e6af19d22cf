"""Inputs to try a bundle's graphs on: noise of the right size, and what a picture gives from graph to graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from labeler.bundle import Bundle, GraphSpec
from labeler.convert import reference

Trial: TypeAlias = dict[str, Tensor]


def picture() -> Tensor:
    """A drawn scene as the encoder takes it: smooth ground and shaded discs, [1, 3, 1024, 1024]."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:1:1024j, 0:1:1024j]
    scene = np.stack([np.sin(5 * (a * x + b * y)) for a, b in rng.random((3, 2))])
    for cx, cy, radius in rng.uniform((0, 0, 0.05), (1, 1, 0.2), (12, 3)):
        distance = np.hypot(x - cx, y - cy) / radius
        scene = np.where(distance < 1, rng.uniform(-2, 2, (3, 1, 1)) * (1 - 0.5 * distance), scene)
    return torch.from_numpy(scene + rng.normal(0, 0.05, scene.shape)).float().unsqueeze(0)


def trials(model: Any, bundle: Bundle, image: Tensor) -> dict[str, dict[str, Trial]]:
    """By role, then by kind ("random", "picture"): parts [1, *shape]."""
    generator = torch.Generator().manual_seed(0)
    seen = reference.run(model, "encode", {"image": image})
    carried = picture_parts(model, seen, image)
    found: dict[str, dict[str, Trial]] = {}
    for role, spec in bundle.graphs.items():
        pictured = fit(spec, image_parts(model, seen) | carried if role == "image_decode" else carried, generator)
        found[role] = {"random": noise(pictured, generator), "picture": pictured}
    return found


def picture_parts(model: Any, seen: Trial, image: Tensor) -> Trial:
    """Every part that a picture, one click on it and one memory of it give."""
    prompt, _ = model.prompt_encoder(
        torch.full((1, 1, 1, 2), 400.0), torch.ones(1, 1, 1, dtype=torch.int32), None, None
    )
    first = seen | {"sparse": prompt[0], "no_memory": torch.ones(1, 1)}
    decoded = reference.run(model, "decode", first)
    best = decoded["masks"][:, 1 + int(decoded["iou"][0, 1:].argmax())]
    large = torch.nn.functional.interpolate(best.unsqueeze(1), (1024, 1024), mode="bilinear", align_corners=False)
    mask = (large[:, 0] > 0).float() * 20 - 10
    memorized = reference.run(model, "memorize", seen | {"mask": mask, "occluded": torch.zeros(1, 1)})
    pointer = decoded["pointers"][0, 1].reshape(4, 64)
    return (
        first
        | {"image": image, "mask": mask, "mask_input": best, "occluded": torch.zeros(1, 1)}
        | {
            "memory": memorized["memory"],
            "temporal": model.memory_temporal_positional_encoding.reshape(1, -1, 64),
            "pointers": pointer.repeat(16, 1).unsqueeze(0),
            "pointer_positions": 0.1 * pointer.repeat(16, 1).unsqueeze(0),
        }
    )


def image_parts(model: Any, seen: Trial) -> Trial:
    """The features as the image decoder takes them, with the embedding of "no memory" in them."""
    return {"pix": seen["pix"] + model.no_memory_embedding.reshape(1, -1, 1, 1)}


def fit(spec: GraphSpec, parts: Mapping[str, Tensor], generator: torch.Generator) -> Trial:
    """The parts of one graph: memory in as many slots as it has, the prompt in as many tokens, the rest masked."""
    fitted = {}
    for part in spec.inputs:
        if part.name == "memory":
            fitted[part.name] = parts["memory"].reshape(1, 1, 4096, 64).expand(1, *part.shape).clone()
        elif part.name == "temporal":
            rows = torch.arange(part.shape[0]) % parts["temporal"].shape[1]
            fitted[part.name] = parts["temporal"][:, rows]
        elif part.name == "key_mask":
            fitted[part.name] = key_mask(part.shape[0], spec.input("memory").shape[0])
        elif part.name == "sparse":
            unused = torch.randn(1, part.shape[0], part.shape[1], generator=generator)
            unused[:, : parts["sparse"].shape[1]] = parts["sparse"]
            fitted[part.name] = unused
        elif part.name == "token_mask":
            fitted[part.name] = (torch.arange(part.shape[0]) < parts["sparse"].shape[1]).float().unsqueeze(0)
        elif part.name == "has_mask":
            fitted[part.name] = torch.ones(1, 1)
        else:
            fitted[part.name] = parts[part.name]
    return fitted


def key_mask(keys: int, slots: int) -> Tensor:
    """The last slot and the last 8 pointers empty; a lone slot stays filled."""
    mask = torch.zeros(1, keys)
    if slots > 1:
        mask[:, (slots - 1) * 4096 : slots * 4096] = -1e9
    mask[:, -32:] = -1e9
    return mask


def noise(like: Trial, generator: torch.Generator) -> Trial:
    """Normal values with each part's own spread; flags and masks of keys stay as they are."""
    kept = ("key_mask", "token_mask", "has_mask", "no_memory")
    random = {
        name: part if name in kept else part.std() * torch.randn(part.shape, generator=generator)
        for name, part in like.items()
        if name != "occluded"
    }
    if "mask" in random:
        random["mask"] = torch.sigmoid(random["mask"]) * 20 - 10
    return random | ({"occluded": torch.ones(1, 1)} if "occluded" in like else {})
