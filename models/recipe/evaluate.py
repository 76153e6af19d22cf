"""Every figure of the model card, for one or more bundles: `python -m models.recipe.evaluate --bundle DIR --data DATA`.

The clicks, corrections and clips are the same for all bundles, and run through the labeler itself.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeler.model import find_model
from labeler.sam2 import Sam2
from labeler.types import Point
from models.recipe import clip_figures, picture_figures
from models.recipe.picture_figures import Click
from models.recipe.sets import Case, picture_sets

_TIMED = 15
_COLUMNS = {"chosen": "chosen", "best": "best of 3", "corrected": "after a correction", "scored": "chosen by score"}
"""Of each bundle. The last is what the decoder with scores chooses, where another one serves pictures."""


def evaluate(folder: Path, sets: dict[str, list[Case]], *, clips: int, frames: int) -> dict[str, Any]:
    """All figures of one bundle, JSON-ready."""
    model = find_model(folder, threads=1).load()
    follower = find_model(folder, task="videos", threads=1).load()
    found = {name: picture_figures.clicks(cases, model, follower) for name, cases in sets.items()}
    everything = [click for clicks in found.values() for click in clicks]
    tracking = clip_figures.tracking(follower, clips=clips, frames=frames) if clips else {}
    bundle = model.runtime.bundle
    return {
        "digest": bundle.digest,
        "bytes": sum(spec.nbytes or 0 for spec in bundle.files().values()),
        "milliseconds": milliseconds(model, sets),
        "pictures": {name: picture_figures.summary(clicks) for name, clicks in found.items()},
        "objects": {click.name: round(click.chosen, 3) for click in _by_hand(found)},
        "predicted_iou": picture_figures.calibration(everything),
        "tracking": tracking,
    }


def milliseconds(model: Sam2, sets: dict[str, list[Case]]) -> dict[str, float]:
    """Medians of the verbs that serve pictures, one thread: its processor time, whatever else the machine does."""
    rgb = next(iter(sets.values()))[0].rgb
    prompt = model.prompt([Point(9.0, 9.0)], height=rgb.shape[0], width=rgb.shape[1])
    features = model.encode(rgb)
    verbs: dict[str, Callable[[], object]] = {
        "encode": lambda: model.encode(rgb),
        "decode": lambda: model.decode(features, prompt),
    }
    return {name: 1000 * statistics.median(_seconds(verb) for _ in range(_TIMED)) for name, verb in verbs.items()}


def _seconds(verb: Callable[[], object]) -> float:
    started = time.process_time()
    verb()
    return time.process_time() - started


def _by_hand(found: dict[str, list[Click]]) -> list[Click]:
    """The objects that have names of their own."""
    return [click for name, clicks in found.items() if name.startswith("photograph") for click in clicks]


def table(figures: dict[str, Any], baselines: dict[str, dict[str, float]]) -> str:
    """Markdown: one row per set; then each bundle's calibration and tracking."""
    heads = [f"{name}: {title}" for name in figures for title in _COLUMNS.values()]
    rows = {row: [*base.values(), *_row(figures, row)] for row, base in baselines.items()}
    rows["mean of rows"] = list(np.mean(list(rows.values()), axis=0))
    lines = [_line("one click, mean IoU", "best fixed disc", "GrabCut", *heads), "|---" * (3 + len(heads)) + "|"]
    lines += [_line(row, *(f"{value:.3f}" for value in values)) for row, values in rows.items()]
    for name, one in figures.items():
        lines += ["", _headline(name, one), "", *_calibration(one["predicted_iou"]["bins"])]
        lines += ["", *_tracking(one["tracking"])] if one["tracking"] else []
    return "\n".join(lines)


def _row(figures: dict[str, Any], row: str) -> list[float]:
    return [one["pictures"][row][column] for one in figures.values() for column in _COLUMNS]


def _headline(name: str, one: dict[str, Any]) -> str:
    times = ", ".join(f"{verb} {value:.0f} ms" for verb, value in one["milliseconds"].items())
    score = one["predicted_iou"]
    agreement = f"rank correlation {score['rank_correlation']:.2f}, mean error {score['mean_error']:.2f}"
    return f"{name}: {one['bytes'] / 1e6:.1f} MB; one thread: {times}; predicted IoU: {agreement}"


def _calibration(bins: list[dict[str, float]]) -> list[str]:
    lines = [_line("predicted IoU", "clicks", "mean predicted", "mean true"), "|---" * 4 + "|"]
    each = (
        (f"{b['from']:.1f} to {b['to']:.1f}", b["clicks"], f"{b['predicted']:.2f}", f"{b['true']:.2f}") for b in bins
    )
    return lines + [_line(*cells) for cells in each]


def _tracking(rows: dict[str, dict[str, float]]) -> list[str]:
    columns = list(rows["all"])
    lines = [_line("tracking J", *columns), "|---" * (1 + len(columns)) + "|"]
    return lines + [_line(kind, *(f"{row[column]:.3f}" for column in columns)) for kind, row in rows.items()]


def _line(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def main(say: Callable[[str], None]) -> None:
    parser = argparse.ArgumentParser(prog="python -m models.recipe.evaluate", description=__doc__)
    parser.add_argument("--bundle", type=Path, action="append", required=True, help="may be given several times")
    parser.add_argument(
        "--data", type=Path, required=True, help="folder of the training material; held-out parts are used"
    )
    parser.add_argument("--out", type=Path, help="write the figures as JSON here")
    parser.add_argument("--pictures", type=int, default=48, help="of each drawn set")
    parser.add_argument("--clips", type=int, default=3, help="of each kind")
    parser.add_argument("--frames", type=int, default=20)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    sets = picture_sets(chosen.data, pictures=chosen.pictures)
    baselines = {name: picture_figures.baselines(cases) for name, cases in sets.items()}
    figures = {
        folder.name: evaluate(folder, sets, clips=chosen.clips, frames=chosen.frames) for folder in chosen.bundle
    }
    say(table(figures, baselines))
    if chosen.out:
        chosen.out.write_text(
            json.dumps({"baselines": baselines, "bundles": figures}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main(print)
