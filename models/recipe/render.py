"""Render scenes and clips once, so that training only reads them: `python -m models.recipe.render --data D --out F`."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from models.recipe import compositor, sources
from models.recipe.devices import choose_device
from models.recipe.draws import Draws
from models.recipe.options import FRAMES, SIDE
from models.recipe.sources import Bank

_CHUNK = 16
_KINDS = 6
"""Of so many chunks one is of nuclei, and one of crowds."""


def render(bank: Bank, out: Path, *, name: str, count: int, frames: int, seed: int, device: torch.device) -> None:
    """Write OUT/`name`-images.npy and `name`-labels.npy, uint8 [count, frames, 3, 256, 256]; `count` in whole chunks.

    Chunk i is drawn from the seed (seed, i), so that a longer file begins with the shorter one.
    """
    out.mkdir(parents=True, exist_ok=True)
    shape = (count // _CHUNK * _CHUNK, frames, 3, SIDE, SIDE)
    files = [
        np.lib.format.open_memmap(out / f"{name}-{part}.npy", "w+", np.uint8, shape) for part in ("images", "labels")
    ]
    for chunk in range(count // _CHUNK):
        draws = Draws(seed * 1_000_003 + chunk, device)
        for file, values in zip(files, _draw(bank, draws, frames, chunk), strict=True):
            file[chunk * _CHUNK : (chunk + 1) * _CHUNK] = values.cpu().numpy()


def _draw(bank: Bank, draws: Draws, frames: int, chunk: int) -> tuple[Tensor, Tensor]:
    kind = chunk % _KINDS if frames == 1 else None
    if kind == _KINDS - 1 and bank.nuclei:
        return compositor.nuclei(bank, draws, _CHUNK)
    if kind == _KINDS // 2:
        return compositor.crowds(bank, draws, _CHUNK)
    return compositor.scenes(bank, draws, _CHUNK, frames=frames)


def main(say: Callable[[str], None]) -> None:
    parser = argparse.ArgumentParser(prog="python -m models.recipe.render", description=__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with fruit, emoji, clipart, nuclei, background"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scenes", type=int, default=8000)
    parser.add_argument("--clips", type=int, default=1600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="auto")
    chosen = parser.parse_args()
    started = time.monotonic()
    bank, device = sources.load(chosen.data, "train"), choose_device(chosen.device)
    say(f"{len(bank.sprites)} cut-outs, {len(bank.backdrops)} backdrops, {len(bank.nuclei)} nuclei pictures")
    for name, count, frames, seed in (
        ("scenes", chosen.scenes, 1, chosen.seed),
        ("clips", chosen.clips, FRAMES, chosen.seed + 1),
    ):
        render(bank, chosen.out, name=name, count=count, frames=frames, seed=seed, device=device)
        say(f"{count} {name}, {time.monotonic() - started:.0f} s")
    about = {"sprites": len(bank.sprites), "nuclei": len(bank.nuclei), "seed": chosen.seed}
    (chosen.out / "about.json").write_text(json.dumps(about) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(print)
