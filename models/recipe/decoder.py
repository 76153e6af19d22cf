"""Points, or what memory found, become four masks with their predicted IoU.

A U-Net over 64 pixels goes down with similarity to the clicked places; at 32 pixels it already proposes masks. From
there up it also sees how the colours inside each proposal differ from those outside: the histograms of GrabCut.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from models.recipe.blocks import (
    Conv,
    Residual,
    by_head,
    likeness,
    mlp,
    pooled,
    repeated,
    share,
    spread,
    twice,
    twice_smooth,
    unit,
)
from models.recipe.encoder import IMAGE_CHANNELS, READOUT_CHANNELS
from models.recipe.options import ModelOptions
from models.recipe.tokens import Bumps, kind_gate

MASKS = 4
"""The single mask of several points, then whole, piece and part."""
KEY = 40
_WIDTHS = (0.04, 0.12, 0.35)
_CERTAIN = 10.0
"""Object score of a clicked frame: the person saw the object there."""


@dataclass(frozen=True, slots=True, eq=False)
class Maps:
    """What the decoder computes once per picture."""

    plain: Tensor
    similar: Tensor
    ground: Tensor
    fine_similar: Tensor
    fine_ground: Tensor
    codes: Tensor
    """[b, codes, 128, 128]: the colour class of every pixel, soft."""
    finest: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """masks [n, 4, 256, 256], at128 and at32: their rougher forms; iou [n, 4]; score [n, 1]."""

    masks: Tensor
    at128: Tensor
    at32: Tensor
    iou: Tensor
    score: Tensor


class Decoder(nn.Module):
    def __init__(self, options: ModelOptions) -> None:
        super().__init__()
        c1, c2, c3 = options.decoder
        self.plain, self.similar = nn.Conv2d(IMAGE_CHANNELS, 64, 1), nn.Conv2d(IMAGE_CHANNELS, 96, 1)
        self.ground = nn.Conv2d(64, c1, 3, 1, 1, bias=False)
        self.fine_similar, self.fine_ground = nn.Conv2d(64, 32, 1), nn.Conv2d(64, 16, 1)
        self.codes, self.finest = nn.Conv2d(64, options.codes, 1), nn.Conv2d(32, 12, 1)
        self.key = nn.Conv2d(IMAGE_CHANNELS, KEY, 1)
        self.bumps = nn.ModuleList(Bumps(64, width) for width in _WIDTHS)
        self.fine_bump = Bumps(128, 0.02)
        self.register_buffer("of8", by_head(8, 96), persistent=False)
        self.register_buffer("of4", by_head(4, 32), persistent=False)
        self.register_buffer("which", torch.eye(MASKS)[None], persistent=False)
        self.cues = nn.Conv2d(5 + 16 + 4 + 2 + READOUT_CHANNELS, c1, 3, 1, 1, bias=False)
        self.cue_norm = nn.BatchNorm2d(c1)
        self.film = mlp(64 + 96 + 32, 96, 2 * c1)
        self.down64 = Conv(c1, c1)
        self.down32 = nn.Sequential(Conv(c1, c2, 2), Conv(c2, c2))
        self.down16 = nn.Sequential(Conv(c2, c3, 2), Residual(c3))
        self.context, self.bottom = mlp(c3 + 64 + 96 + 32, c3, c3), Conv(c3, c3)
        self.from16, self.up32 = nn.Conv2d(c3, c2, 1), Conv(c2, c2)
        self.propose = nn.Conv2d(c2, MASKS, 3, 1, 1)
        self.from32, self.proposed64 = nn.Conv2d(c2, c1, 1), nn.Conv2d(2 * MASKS, c1, 3, 1, 1)
        self.up64 = Conv(c1, 32)
        self.from64, self.proposed128 = nn.Conv2d(32, 16, 1), nn.Conv2d(2 * MASKS + 4, 16, 3, 1, 1)
        self.norm128, self.up128 = nn.BatchNorm2d(16), Conv(16, 16)
        self.at128 = nn.Conv2d(16, MASKS, 3, 1, 1)
        self.to256, self.at256 = nn.Conv2d(16, 12, 1), nn.Conv2d(12, MASKS, 3, 1, 1)
        self.iou = mlp(32 + 32 + 5 + c3 + MASKS, 64, 1)
        self.score = mlp(c3 + 4 + 2 * MASKS, 48, 1)
        nn.init.zeros_(self.film[2].weight)
        nn.init.zeros_(self.film[2].bias)
        nn.init.constant_(self.propose.bias, -1.0)
        nn.init.normal_(self.at256.weight, 0, 0.02)
        nn.init.zeros_(self.at256.bias)

    def maps(self, pix: Tensor, hi0: Tensor, hi1: Tensor) -> Maps:
        """pix without its readout channels."""
        plain = self.plain(pix)
        return Maps(
            plain=plain,
            similar=unit(self.similar(pix), 8),
            ground=self.ground(F.relu(plain)),
            fine_similar=unit(self.fine_similar(hi1), 4),
            fine_ground=self.fine_ground(hi1),
            codes=torch.softmax(4 * self.codes(hi1).float(), 1),
            finest=self.finest(hi0),
        )

    def keys(self, pix: Tensor) -> Tensor:
        """[b, 40, 64, 64], of unit length: what memory compares."""
        return unit(self.key(pix), 1)

    def forward(self, maps: Maps, tokens: Tensor, mask: Tensor, no_memory: Tensor, readout: Tensor) -> Answer:
        """tokens [n, t, 256], mask [n, t], no_memory [n, 1], readout [n, 24, 64, 64]; n / b clicks on each picture."""
        count = len(tokens)
        cues, fine, vector, at = self._cues(maps, tokens, mask, no_memory, readout)
        film = self.film(vector).float()[:, :, None, None]
        gain, bias = film.split(film.shape[1] // 2, 1)
        x = F.relu(self.cue_norm(repeated(maps.ground, count) + self.cues(cues)) * (1 + gain) + bias)
        d64 = self.down64(x)
        d32 = self.down32(d64)
        d16 = self.down16(d32)
        context = self.context(torch.cat([d16.float().mean((2, 3)), vector], 1))
        d16 = self.bottom(d16 + context[:, :, None, None])
        u32 = self.up32(twice(self.from16(d16)) + d32)
        at32 = self.propose(u32).float()
        inside = torch.sigmoid(at32)
        contrast = self._contrast(maps.codes, inside)
        wide = twice(inside)
        u64 = twice(self.from32(u32)) + d64 + self.proposed64(torch.cat([wide, F.avg_pool2d(contrast, 2)], 1))
        u64 = self.up64(F.relu(u64))
        u128 = twice(self.from64(u64)) + repeated(maps.fine_ground, count)
        u128 = u128 + self.proposed128(torch.cat([twice(wide), contrast, fine], 1))
        u128 = self.up128(F.relu(self.norm128(u128)))
        at128 = self.at128(u128).float() + twice_smooth(twice_smooth(at32))
        detail = self.at256(F.relu(twice(self.to256(u128)) + repeated(maps.finest, count)))
        iou, score = self._scores(at128.detach(), u64, d16, at, readout)
        return Answer(
            masks=twice_smooth(at128) + detail.float(),
            at128=at128,
            at32=at32,
            iou=iou,
            score=score * (1 - no_memory) + _CERTAIN * no_memory,
        )

    def _cues(
        self, maps: Maps, tokens: Tensor, mask: Tensor, no_memory: Tensor, readout: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Maps for 64 and for 128 pixels, the description of the asked-for place, and where it is."""
        wanted, unwanted = kind_gate(tokens, mask, "positive"), kind_gate(tokens, mask, "negative")
        near, mid, wide = (bump(tokens, wanted) for bump in self.bumps)
        not_near, not_mid = (bump(tokens, unwanted) for bump in self.bumps[:2])
        clicked = no_memory[:, :, None, None]
        remembered = (readout[:, :1] * readout[:, :1]).float()
        at = clicked * share(near) + (1 - clicked) * share(remembered)
        fine_at = clicked * share(self.fine_bump(tokens, wanted)) + (1 - clicked) * share(twice(remembered))
        own = [pooled(at, maps.plain), pooled(at, maps.similar), pooled(fine_at, maps.fine_similar)]
        other = pooled(share(not_near), maps.similar)[:, 0]
        fine = likeness(maps.fine_similar, own[2][:, 0], self.of4)
        colours = self._colours(maps, fine_at, share(self.fine_bump(tokens, unwanted)))
        cues = [near, mid, wide, not_near, not_mid, likeness(maps.similar, own[1][:, 0], self.of8)]
        cues += [likeness(maps.similar, other, self.of8), F.avg_pool2d(torch.cat([fine, colours], 1), 2)]
        cues += [readout.float()]
        return torch.cat(cues, 1), fine, torch.cat(own, 2)[:, 0], at

    def _colours(self, maps: Maps, at: Tensor, not_at: Tensor) -> Tensor:
        """How much likelier each pixel's colour is at the wanted, and at the unwanted points, than anywhere."""
        everywhere = repeated(maps.codes.mean((2, 3))[:, None], len(at))
        found = pooled(torch.cat([at, not_at], 1), maps.codes)
        return spread(torch.log((found + 0.02) / (everywhere + 0.02)), maps.codes)

    def _contrast(self, codes: Tensor, inside: Tensor) -> Tensor:
        """[n, 4, 128, 128]: log ratio of each pixel's colour class inside and outside of each proposal."""
        rough = F.avg_pool2d(codes, 4)
        outside = 1 - inside
        within = pooled(inside, rough) / (inside.sum((2, 3))[:, :, None] + 1)
        without = pooled(outside, rough) / (outside.sum((2, 3))[:, :, None] + 1)
        return spread(torch.log((within + 0.01) / (without + 0.01)), codes)

    def _scores(self, at128: Tensor, u64: Tensor, d16: Tensor, at: Tensor, readout: Tensor) -> tuple[Tensor, Tensor]:
        """Predicted IoU of every mask, from what lies inside it and along its edge; and the object score."""
        inside = F.avg_pool2d(torch.sigmoid(at128), 2)
        edge = inside * (1 - inside)
        area, rim = inside.mean((2, 3)), edge.mean((2, 3))
        sure = (inside * inside).mean((2, 3)) / (area + 1e-4)
        stats = [area.sqrt(), sure, (inside * at).sum((2, 3)), rim / (area + 1e-3), rim.sqrt()]
        features = u64.float()
        body = pooled(inside, features) / (4096 * area[:, :, None] + 1)
        border = pooled(edge, features) / (4096 * rim[:, :, None] + 1)
        whole = d16.float().mean((2, 3))
        # Sums with zeros instead of `expand`, which no GPU delegate takes.
        none = area[:, :, None] * 0.0
        each = [body, border, torch.stack(stats, 2), whole[:, None] + none, self.which + none]
        iou = torch.sigmoid(self.iou(torch.cat(each, 2)).float())[:, :, 0]
        strongest = F.relu(readout[:, :4]).float().amax((2, 3))
        return iou, self.score(torch.cat([whole, strongest, inside.amax((2, 3)), sure], 1)).float()

    def pointers(self, keys: Tensor, at128: Tensor) -> Tensor:
        """[n, 4, 256]: for each mask four tokens of 64: the mean key inside it, the mean key outside, nothing twice."""
        inside = torch.sigmoid(F.avg_pool2d(at128, 2))
        tokens = []
        for weight in (inside, 1 - inside):
            mean = pooled(weight, keys)
            mean = mean * torch.rsqrt((mean * mean).sum(2, keepdim=True) + 1e-4)
            tokens += [mean, mean[:, :, : 64 - KEY] * 0.0]
        return torch.cat([*tokens, *(token * 0.0 for token in tokens)], 2)
