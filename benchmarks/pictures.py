"""How fast pictures are labelled, and what of a worker's time is not spent inside graphs.

`python benchmarks/pictures.py [--model DIR] [--pictures N] [--points 8]`
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from stopwatch import Stopwatch, TimingRuntime, host_share, table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import render

from labeler import annotate, hub, images, prompts, sam2, segment, workers
from labeler.bundle import Bundle
from labeler.images import ImageLabeler, ImageTask
from labeler.journal import Header, Journal
from labeler.model import ModelSpec, roles
from labeler.runtime import LiteRtRuntime
from labeler.sam2 import Sam2
from labeler.types import Item, Point, Seed

SIDE = 1024
WARM_UP = 2
"""Pictures that are labelled before the clock starts: graphs set themselves up in their first run."""

STAGES = (
    (images, "content_identity", "hashing the file"),
    (images, "read_picture", "reading"),
    (sam2.preprocess, "model_input", "preprocessing"),
    (prompts, "encode", "prompt"),
    (segment.prompts, "choose", "choice"),
    (annotate.prompts, "stability", "stability"),
    (annotate.masks, "encode", "mask to RLE"),
    (Journal, "append", "journal"),
)


def main() -> None:
    options = _options()
    bundle = hub.resolve(options.model, models_dir=hub.default_models_dir()).bundle
    cores = workers.usable_cores()
    print(
        f"{bundle.name} {bundle.version}, {options.pictures} pictures of {SIDE} x {SIDE}, {options.points} points each"
    )
    with tempfile.TemporaryDirectory(prefix="sam2label-") as folder:
        tasks = list(_tasks(Path(folder), options.pictures + WARM_UP, options.points))
        for number, threads in ((1, cores), (cores, 1)):
            rate = _rate(bundle, tasks, number=number, threads=threads)
            print(f"workers {number} x threads {threads}: {rate:.3f} pictures/s")
        for threads in sorted({1, cores}):
            _take_apart(bundle, tasks, Path(folder) / f"labels-{threads}", threads=threads)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", help="bundle folder or name; default: as sam2label chooses")
    parser.add_argument("--pictures", type=int, default=12)
    parser.add_argument("--points", type=int, choices=range(1, 13), default=8, help="clicked objects per picture")
    return parser.parse_args()


def _tasks(folder: Path, pictures: int, points: int) -> Iterator[ImageTask]:
    """JPEGs of rendered scenes with one click on each object."""
    for number in range(pictures):
        rgb, labels = render.render_picture(number, SIDE, SIDE, points)
        path = folder / f"{number}.jpg"
        Image.fromarray(rgb).save(path, quality=90)
        clicks = (render.click_point(labels == i) for i in range(1, points + 1))
        yield ImageTask(Item(path.name, path), tuple(Seed(i, (Point(x, y),)) for i, (x, y) in enumerate(clicks, 1)))


def _rate(bundle: Bundle, tasks: Sequence[ImageTask], *, number: int, threads: int) -> float:
    """Pictures per second once every worker has had the time for a first one."""
    labeler = ImageLabeler(ModelSpec(bundle, threads, "images"))
    ends = []
    for _, record in workers.run(labeler.stream, iter([*tasks[:number], *tasks]), workers=number):
        if record is None:
            ends.append(time.perf_counter())
        else:
            assert not isinstance(record, workers.Crash), record
            assert record.status == "done", record.error
    return (len(ends) - number) / (ends[-1] - ends[number - 1])


def _take_apart(bundle: Bundle, tasks: Sequence[ImageTask], out: Path, *, threads: int) -> None:
    """Label in this process with every stage timed."""
    watch = Stopwatch()
    runtime = LiteRtRuntime(bundle, threads=threads)
    runtime.load(roles(bundle, "images"))
    labeler = ImageLabeler(Sam2(TimingRuntime(runtime, watch), stills=True))
    with Journal(out, Header("images", "benchmark", bundle.digest, {})) as journal, watch.watching(STAGES):
        for number, task in enumerate(tasks):
            if number == WARM_UP:
                watch.clear()
            with watch.stage("everything else"):
                record = labeler.label(task)
                journal.append(record)
            assert record.status == "done", record.error
    runtime.close()
    items, wall, cpu = len(tasks) - WARM_UP, *host_share(watch)
    whole = sum(map(sum, watch.wall.values())) / items
    pixels = int(np.median([annotation.area for annotation in record.annotations]))
    print(f"one worker, threads {threads}: {whole:.3f} s per picture; median mask of the last one {pixels} pixels")
    print(*table(watch, items=items), sep="\n")
    print(f"  host's share of a worker's time: {wall:.2%} (wall clock), {cpu:.2%} (processor time)")


if __name__ == "__main__":
    main()
