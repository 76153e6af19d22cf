"""The whole model and its checkpoints."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from models.recipe.decoder import KEY, Decoder
from models.recipe.encoder import IMAGE_CHANNELS, Encoder
from models.recipe.memory import Memory
from models.recipe.options import ModelOptions

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Model(nn.Module):
    def __init__(self, options: ModelOptions) -> None:
        super().__init__()
        self.options = options
        self.encoder, self.decoder, self.memory = Encoder(options), Decoder(options), Memory()

    @torch.no_grad()
    def whiten_keys(self, pix: Tensor) -> None:
        """Make keys of pix [n, 232, 64, 64] that spread evenly: a start from which memory is learnt quickly."""
        flat = pix.float().transpose(0, 1).reshape(IMAGE_CHANNELS, -1).cpu().double()
        mean = flat.mean(1)
        flat = flat - mean[:, None]
        values, vectors = torch.linalg.eigh(flat @ flat.T / flat.shape[1])
        weight = (vectors.flip(1)[:, :KEY] / values.flip(0)[:KEY].clamp(min=1e-8) ** 0.4).T
        self.decoder.key.weight.copy_(weight.float()[:, :, None, None])
        self.decoder.key.bias.copy_((-weight @ mean).float())


def normalised(images: Tensor) -> Tensor:
    """uint8 [..., 3, h, w] as the contract's input."""
    mean, std = (torch.tensor(v, device=images.device)[:, None, None] for v in (_MEAN, _STD))
    return (images.float() / 255 - mean) / std


def load(checkpoint: dict[str, Any]) -> Model:
    """The model of a checkpoint that `train` wrote."""
    fields = {key: tuple(v) if isinstance(v, list) else v for key, v in checkpoint["model_options"].items()}
    model = Model(ModelOptions(**fields))
    model.load_state_dict(checkpoint["model"])
    return model
