"""What the host needs of the checkpoint besides graphs: prompt embeddings and the memory bank's vectors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labeler.bundle import ConstantSpec, Part

FILES = {
    "image_prompt": "sam2_prompt.bin",
    "prompt": "sam2v_prompt.bin",
    "track_sparse": "sam2v_track_sparse.bin",
    "temporal": "sam2v_mtpe.bin",
    "no_object_pointer": "sam2v_no_obj_ptr.bin",
    "pointer_time": "sam2v_tpos_proj.bin",
    "box": "sam2v_box.bin",
}


def constants(model: Any, *, image_pair: bool) -> dict[str, dict[str, Tensor]]:
    """Parts by name, by role. `point_embed` rows are: negative, positive, top left, bottom right."""
    prompt = model.prompt_encoder
    negative, positive, top_left, bottom_right = prompt.point_embed.weight
    shared = {"gaussian": prompt.shared_embedding.positional_embedding, "positive": positive}
    not_a_point = {"not_a_point": prompt.not_a_point_embed.weight[0]}
    unprompted = torch.zeros(1, 1, 1, 2), -torch.ones(1, 1, 1, dtype=torch.int32)
    projection = model.temporal_positional_encoding_projection_layer
    found = {
        "prompt": shared | {"negative": negative} | not_a_point,
        "track_sparse": {"track_sparse": prompt._embed_points(*unprompted, pad=True)[0, 0]},
        "temporal": {"temporal": model.memory_temporal_positional_encoding[:, 0, 0]},
        "no_object_pointer": {"no_object_pointer": model.no_object_pointer[0]},
        "pointer_time": {"weight": projection.weight, "bias": projection.bias},
        "box": {"top_left": top_left, "bottom_right": bottom_right},
    }
    return found | {"image_prompt": shared | not_a_point} if image_pair else found


def write_constants(found: Mapping[str, Mapping[str, Tensor]], folder: Path) -> dict[str, ConstantSpec]:
    """Write one little-endian float32 file per role, the parts end to end."""
    specs = {}
    for role, parts in found.items():
        flat = [part.detach().float().reshape(-1).numpy() for part in parts.values()]
        np.concatenate(flat).astype("<f4").tofile(folder / FILES[role])
        shapes = tuple(Part(name, tuple(part.shape)) for name, part in parts.items())
        specs[role] = ConstantSpec(FILES[role], None, None, shapes)
    return specs
