"""Pictures per second beside transformers' Sam2Model with the same weights, in one process on the same cores.

`python benchmarks/pictures_vs_transformers.py CHECKPOINT BUNDLE [--pictures N] [--points 8]`

CHECKPOINT is a transformers folder, BUNDLE its export (`sam2label convert CHECKPOINT BUNDLE`). The two take turns,
picture by picture, so that a busy machine slows both. Both start from RGB pixels and end with a mask per point at the
picture's size, ours as RLE with area and box; transformers decodes all points in one batch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stopwatch import Stopwatch, TimingRuntime, host_share, seconds
from transformers import Sam2Model

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import render

from labeler import annotate, prompts, sam2, segment, workers
from labeler.bundle import load
from labeler.model import roles
from labeler.runtime import LiteRtRuntime
from labeler.sam2 import Sam2
from labeler.types import Point, Rgb, Seed

SIDE = 1024
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STAGES = (
    (sam2.preprocess, "model_input", "preprocessing"),
    (prompts, "encode", "prompt"),
    (segment.prompts, "choose", "choice"),
    (annotate.prompts, "stability", "stability"),
    (annotate.masks, "encode", "mask to RLE"),
)


def main() -> None:
    options = _options()
    cores = workers.usable_cores()
    torch.set_num_threads(cores)
    reference = Sam2Model.from_pretrained(options.checkpoint).eval()
    watch, runtime = Stopwatch(), LiteRtRuntime(load(options.bundle), threads=cores)
    runtime.load(roles(runtime.bundle, "images"))
    model = Sam2(TimingRuntime(runtime, watch), stills=True)
    ours, theirs = [], []
    with watch.watching(STAGES):
        for number in range(options.pictures + 1):
            rgb, clicks = _picture(number, options.points)
            pair = seconds(lambda: _ours(model, watch, rgb, clicks)), seconds(lambda: _theirs(reference, rgb, clicks))  # noqa: B023
            if number == 0:  # graphs set themselves up in their first run
                watch.clear()
                continue
            ours.append(pair[0])
            theirs.append(pair[1])
            print(f"picture {number}: sam2label {pair[0]:.2f} s, transformers {pair[1]:.2f} s", flush=True)
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    print(f"{options.points} points, {cores} threads, {SIDE} x {SIDE}")
    print(f"sam2label    {len(ours) / sum(ours):.3f} pictures/s")
    print(f"transformers {len(theirs) / sum(theirs):.3f} pictures/s")
    print(f"ratio {sum(theirs) / sum(ours):.2f} (median of pictures {statistics.median(ratios):.2f})")
    wall, cpu = host_share(watch)
    print(f"host's share of our time: {wall:.2%} (wall clock), {cpu:.2%} (processor time)")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--pictures", type=int, default=10)
    parser.add_argument("--points", type=int, default=8, help="clicked objects per picture, 1 to 12")
    return parser.parse_args()


def _picture(number: int, points: int) -> tuple[Rgb, list[tuple[float, float]]]:
    rgb, labels = render.render_picture(number, SIDE, SIDE, points)
    return rgb, [render.click_point(labels == i) for i in range(1, points + 1)]


def _ours(model: Sam2, watch: Stopwatch, rgb: Rgb, clicks: Sequence[tuple[float, float]]) -> None:
    seeds = [Seed(i, (Point(x, y),)) for i, (x, y) in enumerate(clicks, 1)]
    with watch.stage("everything else"):
        assert len(list(segment.segment(rgb, seeds, model, height=SIDE, width=SIDE))) == len(clicks)


def _theirs(model: Any, rgb: Rgb, clicks: Sequence[tuple[float, float]]) -> None:
    with torch.inference_mode():
        mean, deviation = (torch.tensor(values).reshape(3, 1, 1) for values in (MEAN, DEVIATION))
        pixels = (torch.from_numpy(np.ascontiguousarray(rgb.transpose(2, 0, 1))) / 255 - mean) / deviation
        points = torch.tensor(clicks, dtype=torch.float32).reshape(1, -1, 1, 2) * (1024 / SIDE)
        labels = torch.ones(points.shape[:3], dtype=torch.int)
        out = model(pixel_values=pixels.unsqueeze(0), input_points=points, input_labels=labels)
        best = out.iou_scores[0].argmax(dim=1)
        logits = out.pred_masks[0, torch.arange(len(clicks)), best].unsqueeze(0)
        large = torch.nn.functional.interpolate(logits, (SIDE, SIDE), mode="bilinear", align_corners=False)
        assert (large[0] > 0).shape == (len(clicks), SIDE, SIDE)


if __name__ == "__main__":
    main()
