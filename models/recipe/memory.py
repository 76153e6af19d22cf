"""What is kept of a frame, and what it says about the next one: one masked softmax over all remembered places."""

from __future__ import annotations

from math import log

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from models.recipe.decoder import KEY
from models.recipe.encoder import IMAGE_CHANNELS, READOUT_CHANNELS

_LEARNED = READOUT_CHANNELS - 3
_NEVER = -1e4


class Memory(nn.Module):
    """Tokens of 64: a unit key of 40, then inside, outside, a place for the pointers' vote, and 21 learned values.

    The row of the temporal table decides how far from its old place something is looked for (value 0, through softplus)
    and how much a slot counts (value 1).
    """

    def __init__(self) -> None:
        super().__init__()
        self.mask1, self.mask2 = nn.Conv2d(1, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)
        self.look = nn.Conv2d(IMAGE_CHANNELS, 24, 1)
        self.value = nn.Sequential(nn.Conv2d(40, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, _LEARNED, 1))
        self.hidden = nn.Parameter(torch.zeros(_LEARNED))
        table = torch.zeros(7, 64)
        table[:6, 0], table[6, 0] = 12.0, 1.0
        self.temporal = nn.Parameter(table)
        self.sharpness, self.pointer_sharpness = (
            nn.Parameter(torch.tensor(log(14.0))),
            nn.Parameter(torch.tensor(log(8.0))),
        )
        x, y = _grid(64)
        self.register_buffer("places", torch.stack([x, y, torch.ones(4096), x * x + y * y], 1)[None, None], False)
        x, y = _grid(32)
        far = torch.stack([2 * x, 2 * y, -(x * x + y * y), -torch.ones(1024)])
        self.register_buffer("old_places", far[None, None], False)
        use, inside = torch.full((64,), _NEVER), torch.zeros(64)
        use[0::4] = use[1::4] = 0
        inside[0::4] = 1
        self.register_buffer("pointer_use", use[None, None, None], False)
        self.register_buffer("pointer_inside", inside[None, None, None], False)

    def memorize(self, keys: Tensor, look: Tensor, mask: Tensor, occluded: Tensor) -> Tensor:
        """keys [n, 40, 64, 64], look [n, 24, 64, 64], mask [n, 1, 256, 256], occluded [n, 1] -> [n, 64, 64, 64]."""
        inside = F.avg_pool2d(mask, 4)
        seen = F.relu(self.mask2(F.relu(self.mask1(mask))))
        value = self.value(torch.cat([seen, look], 1)).float()
        value = value + occluded[:, :, None, None] * self.hidden[None, :, None, None]
        return torch.cat([keys.float(), inside, 1 - inside, inside * 0.0, value], 1)

    def readout(self, keys: Tensor, slots: list[Tensor], temporal: Tensor, pointers: Tensor, masked: Tensor) -> Tensor:
        """keys [n, 40, 64, 64], slots of [n, 64, 64, 64], temporal [n, slots, 64], pointers [n, 64, 64].

        Gives [n, 24, 64, 64]. masked [n, slots * 1024 + 64]: 0 for what may be read, -1e9 for the rest; a slot is
        read at 32 x 32 places.
        """
        count, query = len(keys), keys.reshape(len(keys), 1, KEY, 4096).transpose(2, 3)
        old_keys, values = zip(*(self._slot(slot, temporal[:, i]) for i, slot in enumerate(slots)), strict=True)
        ones = query[..., :1] * 0.0 + 1.0
        asked = torch.cat([query * self.sharpness.exp(), self.places.expand(count, -1, -1, -1), ones], 3)
        # Transposes sit on right operands or on results: XNNPACK refuses a left operand that is transposed.
        fit = torch.matmul(asked, torch.cat(old_keys, 2).transpose(2, 3)) + masked[:, None, None, :-64]
        found = torch.matmul(torch.softmax(fit, 3), torch.cat(values, 3).transpose(2, 3))
        pointed = torch.matmul(pointers[:, None, :, :KEY], keys.reshape(count, 1, KEY, 4096)).transpose(2, 3)
        vote = pointed * self.pointer_sharpness.exp()
        vote = torch.softmax(vote + self.pointer_use + masked[:, None, None, -64:], 3)
        vote = (vote * self.pointer_inside).sum(3, keepdim=True)
        found = torch.cat([found[..., :2], vote, found[..., 3:]], 3)
        return found.reshape(count, 4096, READOUT_CHANNELS).transpose(1, 2).reshape(count, READOUT_CHANNELS, 64, 64)

    def _slot(self, slot: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        """Keys [n, 1, 1024, 45], with place and bias behind, and values [n, 1, 24, 1024] of one remembered frame."""
        small = F.avg_pool2d(slot, 2).reshape(len(slot), 1, 64, 1024)
        key = small[:, :, :KEY]
        key = key * torch.rsqrt((key * key).sum(2, keepdim=True) + 1e-4)
        # Softplus, in operators that every delegate takes.
        near = torch.log(1 + row[:, 0].clamp(max=30).exp()).reshape(-1, 1, 1, 1) * self.old_places
        bias = row[:, 1].reshape(-1, 1, 1, 1) + key[:, :, :1] * 0.0
        return torch.cat([key, near, bias], 2).transpose(2, 3), small[:, :, KEY:]


def _grid(side: int) -> tuple[Tensor, Tensor]:
    axis = 2 * (torch.arange(side) + 0.5) / side - 1
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    return x.reshape(-1), y.reshape(-1)
