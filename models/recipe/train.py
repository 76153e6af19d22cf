"""Train the model on rendered scenes: `python -m models.recipe.train --scenes F --out RUN`, again with --resume.

Set MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_ARENA_MAX=1 on a CPU, as run.sh does: without them a
small machine spends half of its time in page faults.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from models.recipe import norms
from models.recipe.batches import Store
from models.recipe.devices import choose_device
from models.recipe.draws import Draws
from models.recipe.model import Model, load, normalised
from models.recipe.options import ModelOptions, TrainOptions
from models.recipe.steps import clip_step, picture_step

LAST = "last.pt"
_SAVE_SECONDS = 240
_WARM_UP = 40
_SETTLING = 40
"""Batches whose statistics the batch norms keep."""


@dataclass(slots=True)
class Run:
    """Everything that a checkpoint holds."""

    model: Model
    optimizer: torch.optim.Optimizer
    options: TrainOptions
    step: int = 0
    progress: float = 0.0
    """Share of the run that is done: of its steps, or of its minutes where those end first."""
    settled: bool = False
    """Whether batch norms stand still."""
    keyed: bool = False
    """Whether memory's keys have been whitened, which is done when clips come in."""

    def save(self, path: Path) -> None:
        """Whole or not at all."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "model_options": self.model.options.record(),
            "train_options": self.options.record(),
            "step": self.step,
            "progress": self.progress,
            "settled": self.settled,
            "keyed": self.keyed,
        }
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)


def begin(model_options: ModelOptions, options: TrainOptions, device: torch.device) -> Run:
    torch.manual_seed(options.seed)
    model = Model(model_options).to(device)
    return Run(model, _optimizer(model), options)


def begin_from(path: Path, options: TrainOptions, device: torch.device) -> Run:
    """A new run, with the model of a checkpoint; its batch norms stay at rest."""
    model = load(torch.load(path, map_location=device, weights_only=True)).to(device)
    return Run(model, _optimizer(model), options, settled=True, keyed=True)


def resume(path: Path, device: torch.device) -> Run:
    state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    model = load(state).to(device)
    optimizer = _optimizer(model)
    optimizer.load_state_dict(state["optimizer"])
    options = TrainOptions(**state["train_options"])
    return Run(model, optimizer, options, *(state[name] for name in ("step", "progress", "settled", "keyed")))


def train(
    run: Run, scenes: Path, device: torch.device, *, until: int | None = None, minutes: float | None = None
) -> Iterator[dict[str, float]]:
    """Go on to the end of the run, to step `until`, or for `minutes`, after which the schedule has ended too.

    Yields what each step measured. With `minutes` the clock shapes the schedule; without, the seed decides every bit.
    """
    stores = {name: Store.open(scenes, name) for name in ("scenes", "clips")}
    run.model.to(memory_format=torch.channels_last)
    started, before = time.monotonic(), run.progress
    while run.step < (run.options.steps if until is None else until):
        run.progress = run.step / run.options.steps
        if minutes is not None:
            run.progress = max(run.progress, before + (1 - before) * (time.monotonic() - started) / 60 / minutes)
        if run.progress >= 1:
            break
        yield _step(run, stores, device) | {"step": float(run.step), "seconds": time.monotonic() - started}


def _step(run: Run, stores: dict[str, Store], device: torch.device) -> dict[str, float]:
    options, model = run.options, run.model
    draws = Draws(options.seed * 1_000_003 + run.step, device)
    follows = run.progress >= options.clips_from
    if run.step == 0 and run.settled and options.wake:
        norms.wake(model, lambda: _show(model, stores["scenes"], draws))
        run.settled = run.keyed = False
    if not run.settled and run.progress >= options.settle_from:
        norms.settle(model, lambda: _show(model, stores["scenes"], draws))
        run.settled = True
    if not run.keyed and follows:
        _whiten_keys(model, stores["clips"], draws)
        run.keyed = True
    model.train(not run.settled)
    fine = run.progress >= options.fine_from
    rate = options.rate * min(1.0, (run.step + 1) / _WARM_UP) * (0.5 + 0.5 * math.cos(math.pi * run.progress) + 0.003)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    with _mixed_precision(device):
        if follows and run.step % 3 == 2:
            loss, log = clip_step(model, *stores["clips"].take(draws, options.clips), draws, options, fine=fine)
        else:
            images, labels = (x[:, 0] for x in stores["scenes"].take(draws, options.images))
            loss, log = picture_step(model, images, labels, draws, options, fine=fine)
    run.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), 4.0))
    if math.isfinite(norm):
        run.optimizer.step()
    run.step += 1
    return log | {"loss": float(loss.detach()), "norm": norm, "rate": rate, "progress": run.progress}


def _show(model: Model, scenes: Store, draws: Draws) -> None:
    with _mixed_precision(draws.device):
        for _ in range(_SETTLING):
            images, labels = (x[:, 0] for x in scenes.take(draws, 8))
            picture_step(model, images, labels, draws, TrainOptions(clicks=2), fine=False)


@torch.no_grad()
def _whiten_keys(model: Model, clips: Store, draws: Draws) -> None:
    model.eval()
    images, _ = clips.take(draws, 8)
    x = normalised(images[:, 0])
    stride = model.options.stride
    x = nn.functional.interpolate(x, scale_factor=float(stride)) if stride > 1 else x
    model.whiten_keys(model.encoder(x)[0][:, :, ::2, ::2])


def _mixed_precision(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type != "mps")


def _optimizer(model: Model) -> torch.optim.Optimizer:
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": 0.02}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, 1e-3, betas=(0.9, 0.99))


def _means(rows: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {n: round(sum(v := [r[n] for r in rows if n in r]) / len(v), 4) for n in names} | {"step": rows[-1]["step"]}


def main(say: Callable[[str], None]) -> None:
    parser = argparse.ArgumentParser(prog="python -m models.recipe.train", description=__doc__)
    parser.add_argument("--scenes", type=Path, required=True, help="folder that models.recipe.render wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder for last.pt and log.jsonl")
    parser.add_argument("--resume", action="store_true", help="go on from OUT/last.pt")
    parser.add_argument("--start", type=Path, help="begin a new run with this model: last.pt, or one read back")
    parser.add_argument("--minutes", type=float, help="end, with a finished schedule, after so many minutes")
    parser.add_argument("--until", type=int, help="stop before this step; the schedule goes on when resumed")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    for field in (*fields(ModelOptions), *fields(TrainOptions)):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=json.loads, help=f"default {field.default}")
    chosen = parser.parse_args()
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    device = choose_device(chosen.device)
    chosen.out.mkdir(parents=True, exist_ok=True)
    _drive(_run(chosen, device), chosen, device, say)


def _run(chosen: argparse.Namespace, device: torch.device) -> Run:
    if chosen.resume:
        return resume(chosen.out / LAST, device)
    options = _options(TrainOptions(), chosen)
    if chosen.start:
        return begin_from(chosen.start, options, device)
    return begin(_options(ModelOptions(), chosen), options, device)


def _drive(run: Run, chosen: argparse.Namespace, device: torch.device, say: Callable[[str], None]) -> None:
    rows: list[dict[str, float]] = []
    saved = time.monotonic()
    with (chosen.out / "log.jsonl").open("a", encoding="utf-8") as log:
        for row in train(run, chosen.scenes, device, until=chosen.until, minutes=chosen.minutes):
            rows.append(row)
            if len(rows) == 50:
                line = json.dumps(_means(rows))
                log.write(line + "\n")
                log.flush()
                say(line)
                rows.clear()
            if time.monotonic() - saved > _SAVE_SECONDS:
                run.save(chosen.out / LAST)
                saved = time.monotonic()
    run.save(chosen.out / LAST)


def _options(defaults: Any, chosen: argparse.Namespace) -> Any:
    given = {f.name: value for f in fields(defaults) if (value := getattr(chosen, f.name)) is not None}
    return replace(defaults, **{name: tuple(v) if isinstance(v, list) else v for name, v in given.items()})


if __name__ == "__main__":
    main(print)
