"""One training step on pictures, and one on clips."""

from __future__ import annotations

import torch
from torch import Tensor

from models.recipe import losses, tokens
from models.recipe.clicks import Targets, choose, corrected
from models.recipe.decoder import Answer, Maps
from models.recipe.draws import Draws
from models.recipe.encoder import READOUT_CHANNELS
from models.recipe.model import Model, normalised
from models.recipe.options import TrainOptions

_MEANT = (0.8, 0.15, 0.05)
"""How often a click means the whole, the piece, the part."""
_SEEN_TRUE = 0.4
"""Share of clips whose first frame enters memory with its true mask."""
_SWAPPED = 0.15
"""Share of clips whose last frame is another clip's: the object is gone."""


def picture_step(
    model: Model, images: Tensor, labels: Tensor, draws: Draws, options: TrainOptions, *, fine: bool
) -> tuple[Tensor, dict[str, float]]:
    """images [b, 3, 256, 256] uint8 -> the loss and what to log."""
    targets = choose(labels, draws, per_picture=options.clicks, weights=_MEANT)
    maps = model.decoder.maps(*model.encoder(_resized(model, images)))
    places, positive = targets.places, torch.ones(targets.places.shape[:2], dtype=torch.bool, device=images.device)
    ambiguous = float(draws.uniform(1)) >= options.corrections
    if not ambiguous:
        with torch.no_grad():
            first = click(model, maps, places, positive)
        places, positive = corrected(targets, chosen(first))
    answer = click(model, maps, places, positive)
    loss, true = losses.clicked(answer, targets, fine=draws if fine else None, ambiguous=ambiguous)
    picked = true.gather(1, 1 + answer.iou[:, 1:].argmax(1, keepdim=True))
    count = targets.valid.sum().clamp(min=1)
    log = {"iou0": true[:, 0], "best": true[:, 1:].amax(1), "picked": picked[:, 0]}
    prefix = "" if ambiguous else "second_"
    return loss.sum() / count, {prefix + k: float((v * targets.valid).sum() / count) for k, v in log.items()}


def click(model: Model, maps: Maps, places: Tensor, positive: Tensor) -> Answer:
    """The answer to points [n, p, 2] with labels [n, p]."""
    count = len(places)
    sparse, mask = tokens.points(places, positive, model.options.prompt_tokens)
    nothing = torch.zeros(count, READOUT_CHANNELS, 64, 64, device=places.device)
    answer: Answer = model.decoder(maps, sparse, mask, torch.ones(count, 1, device=places.device), nothing)
    return answer


def chosen(answer: Answer) -> Tensor:
    """[n, 1, 256, 256]: the mask that a host takes after one click or on a tracked frame."""
    best = 1 + answer.iou[:, 1:].argmax(1)
    return answer.masks[torch.arange(len(best)), best][:, None]


def clip_step(
    model: Model, images: Tensor, labels: Tensor, draws: Draws, options: TrainOptions, *, fine: bool
) -> tuple[Tensor, dict[str, float]]:
    """images [b, t, 3, 256, 256] uint8: a click on the first frame is followed through the others."""
    images, labels = _with_departures(images, labels, draws)
    clips, frames = images.shape[:2]
    targets = choose(labels[:, 0], draws, per_picture=options.objects, weights=(1.0, 0.0, 0.0))
    features = [f.reshape(clips, frames, *f.shape[1:]) for f in model.encoder(_resized(model, images.flatten(0, 1)))]
    recall = _Recall(model, clips * options.objects)
    total, log = torch.zeros((), device=images.device), {}
    for time in range(frames):
        pix, hi0, hi1 = (f[:, time] for f in features)
        maps = model.decoder.maps(pix, hi0, hi1)
        mask = (labels[:, time, 0].repeat_interleave(options.objects, 0) == targets.number[:, None, None])[
            :, None
        ].float()
        visible = (mask.sum((1, 2, 3)) >= 16).float()
        if time == 0:
            answer = click(model, maps, targets.places, torch.ones_like(targets.places[..., 0], dtype=torch.bool))
            loss, _ = losses.clicked(answer, targets, fine=draws if fine else None, ambiguous=True)
        else:
            answer, readout = recall.follow(maps, pix)
            loss, true = losses.followed(answer, readout, mask, visible, fine=draws if fine else None)
            loss = loss * targets.valid
            picked = true.gather(1, 1 + answer.iou[:, 1:].argmax(1, keepdim=True))[:, 0]
            log[f"frame{time}"] = float((picked * visible).sum() / visible.sum().clamp(min=1))
            log[f"score{time}"] = float(((answer.score[:, 0] > 0) == (visible > 0)).float().mean())
        total = total + loss.sum() / targets.valid.sum().clamp(min=1)
        if time < frames - 1:
            recall.remember(answer, pix, _kept(answer, mask, draws, first=time == 0), first=time == 0)
    return total / frames, log


class _Recall:
    """The bank of a clip in training: all frames so far, the clicked one as such, as the host's bank has them."""

    def __init__(self, model: Model, count: int) -> None:
        self.model, self.count = model, count
        self.slots: list[Tensor] = []
        self.pointers: list[Tensor] = []

    def follow(self, maps: Maps, pix: Tensor) -> tuple[Answer, Tensor]:
        model, device = self.model, pix.device
        table, held = model.memory.temporal, len(self.slots)
        rows = [table[6], *(table[held - 1 - i] for i in range(1, held))]
        temporal = torch.stack(rows)[None].expand(self.count, -1, -1)
        used = torch.cat(self.pointers, 1)
        empty = 64 - used.shape[1]
        pointers = torch.cat([used, torch.zeros(self.count, empty, 64, device=device)], 1)
        masked = torch.zeros(self.count, held * 1024 + 64, device=device)
        masked[:, held * 1024 + used.shape[1] :] = -1e9
        keys = model.decoder.keys(pix).repeat_interleave(self.count // len(pix), 0)
        with torch.autocast(device.type, enabled=False):
            readout = model.memory.readout(
                keys.float(), [s.float() for s in self.slots], temporal.float(), pointers.float(), masked
            )
        sparse, mask = (
            x.to(device).expand(self.count, *x.shape) for x in tokens.no_prompt(model.options.prompt_tokens)
        )
        return model.decoder(maps, sparse, mask, torch.zeros(self.count, 1, device=device), readout), readout

    def remember(self, answer: Answer, pix: Tensor, mask: Tensor, *, first: bool) -> None:
        model, each = self.model, self.count // len(pix)
        hidden = torch.zeros_like(answer.score) if first else (answer.score.detach() <= 0).float()
        keys, look = (x.repeat_interleave(each, 0) for x in (model.decoder.keys(pix), model.memory.look(pix)))
        self.slots.append(model.memory.memorize(keys, look, mask * (1 - hidden[:, :, None, None]), hidden))
        pointer = model.decoder.pointers(keys, answer.at128.detach())
        best = 1 + answer.iou[:, 1:].argmax(1)
        pointer = pointer[torch.arange(self.count), best] * (1 - hidden)
        self.pointers.append(pointer.reshape(self.count, 4, 64))


def _kept(answer: Answer, mask: Tensor, draws: Draws, *, first: bool) -> Tensor:
    """The mask that memory takes: hard after a click, at times the true one, soft on tracked frames."""
    said = chosen(answer).detach()
    if not first:
        return torch.sigmoid(said)
    true = draws.chance(_SEEN_TRUE, len(mask))[:, None, None, None]
    return torch.where(true, mask, (said > 0).float())


def _with_departures(images: Tensor, labels: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
    """Played backwards at times; at times the last frame is another clip's, without any of the objects."""
    if bool(draws.chance(0.5, 1)):
        images, labels = images.flip(1), labels.flip(1)
    gone = draws.chance(_SWAPPED, len(images))[:, None, None, None]
    last, empty = torch.where(gone, images[:, -1].roll(1, 0), images[:, -1]), labels[:, -1] * ~gone
    return torch.cat([images[:, :-1], last[:, None]], 1), torch.cat([labels[:, :-1], empty[:, None]], 1)


def _resized(model: Model, images: Tensor) -> Tensor:
    """The encoder's input; scenes of 256 pixels are enlarged for an encoder of 512."""
    x, stride = normalised(images), model.options.stride
    x = x if stride == 1 else torch.nn.functional.interpolate(x, scale_factor=float(stride), mode="bilinear")
    return x.contiguous(memory_format=torch.channels_last)  # a quarter less time on two cores


__all__ = ["Targets", "clip_step", "picture_step"]
