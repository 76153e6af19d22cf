"""Seconds per tracked frame, by stage, and beside transformers' Sam2VideoModel with the same weights.

`python benchmarks/clips.py [--model BUNDLE] [--checkpoint DIR] [--frames N]`

Ours is all that `sam2label videos` does for a clip with one object, from the video file to the journal. With a
checkpoint (a transformers folder, BUNDLE its export) transformers' own loop takes turns with it, frame by frame on the
same cores, so that a busy machine slows both. Its frames lie in memory, preprocessed; it ends with a mask at the
frame's size.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import av
import numpy as np
from stopwatch import GRAPH, Stopwatch, TimingRuntime, host_share, table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import render

from labeler import annotate, clips, hub, preprocess, prompts, sam2, segment, snapshots, track, workers
from labeler.bundle import Bundle
from labeler.clips import ClipLabeler, ClipOptions, ClipTask, SelectedFrames
from labeler.files import replace_bytes
from labeler.journal import Header, Journal
from labeler.memory import MemoryBank
from labeler.model import ModelSpec, roles
from labeler.runtime import LiteRtRuntime
from labeler.sam2 import Sam2
from labeler.types import WHOLE_CLIP, Item, Point, Record, Rgb, Seed

HEIGHT, WIDTH = 720, 1280
SHORT = 4
"""Frames of the short clips: the first warms everything up, the others give more of the first frames' times."""
SHORT_CLIPS = 3

STAGES = (
    (clips, "content_identity", "hashing the file"),
    (clips, "open_clip", "indexing the clip"),
    (sam2.preprocess, "model_input", "preprocessing"),
    (prompts, "encode", "prompt"),
    (segment.prompts, "choose", "choice"),
    (MemoryBank, "inputs", "bank"),
    (track, "memory_mask", "mask for memory"),
    (annotate.prompts, "stability", "stability"),
    (annotate.masks, "encode", "mask to RLE"),
    (snapshots, "dump", "snapshot"),
    (Journal, "add", "journal"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One frame. Seconds by the wall clock and of processor time; transformers' are 0 where it did not run."""

    bank: str
    ours: tuple[float, float]
    theirs: tuple[float, float]
    stages: Stopwatch


def main() -> None:
    options = _options()
    bundle = hub.resolve(options.model, models_dir=hub.default_models_dir()).bundle
    cores = workers.usable_cores()
    shots = list(render.render_clip("crossing", 1, options.frames, HEIGHT, WIDTH))
    frames = [rgb for rgb, _ in shots]
    seed = Seed(1, (Point(*map(float, render.click_point(shots[0][1] == 1))),))
    print(f"{bundle.name} {bundle.version}, clip of {len(frames)} x {WIDTH} x {HEIGHT}, one object, {cores} threads")
    theirs = None if options.checkpoint is None else Theirs(options.checkpoint, threads=cores)
    turns: list[Turn] = []
    with (
        tempfile.TemporaryDirectory(prefix="sam2label-") as folder,
        _labeler(bundle, threads=cores) as (labeler, watch),
    ):
        for number, length in enumerate([SHORT] * SHORT_CLIPS + [len(frames)]):
            out = Path(folder) / str(number)
            ours = _ours(labeler, watch, frames[:length], seed, out)
            for turn in _in_turns(ours, theirs and theirs.track(frames[:length], seed), watch, bundle.memory_slots[-1]):
                if number:
                    turns.append(turn)
                    print(_line(turn), flush=True)
    for bank in dict.fromkeys(turn.bank for turn in turns):
        _tell(bank, [turn for turn in turns if turn.bank == bank])
    whole = _together(turn.stages for turn in turns[-len(frames) :])
    print("the whole clip: host's share {:.2%} (wall clock), {:.2%} (processor time)".format(*host_share(whole)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", help="bundle folder or name; default: as sam2label chooses")
    parser.add_argument("--checkpoint", type=Path, help="the same weights for transformers; default: ours alone")
    parser.add_argument("--frames", type=int, default=16)
    return parser.parse_args()


@contextmanager
def _labeler(bundle: Bundle, *, threads: int) -> Iterator[tuple[ClipLabeler, Stopwatch]]:
    """A labeler whose every stage is timed."""
    watch, runtime = Stopwatch(), LiteRtRuntime(bundle, threads=threads)
    runtime.load(roles(bundle, "videos"))
    model = Sam2(TimingRuntime(runtime, watch))
    read = mock.patch.object(SelectedFrames, "read", _timed_read(watch, SelectedFrames.read))
    with mock.patch.object(ModelSpec, "load", return_value=model), read, watch.watching(STAGES):
        yield ClipLabeler(ModelSpec(bundle, threads, "videos"), ClipOptions()), watch
    runtime.close()


def _timed_read(watch: Stopwatch, read: Callable[..., Iterator[Rgb]]) -> Callable[..., Iterator[Rgb]]:
    def timed(frames: SelectedFrames, indices: range) -> Iterator[Rgb]:
        running = read(frames, indices)
        while True:
            with watch.stage("reading"):
                rgb = next(running, None)
            if rgb is None:
                return
            yield rgb

    return timed


def _ours(labeler: ClipLabeler, watch: Stopwatch, frames: Sequence[Rgb], seed: Seed, out: Path) -> Iterator[None]:
    """Label a clip as a run does; gives way after every frame's record is in the journal."""
    out.mkdir()
    path = _encoded(out / "clip.mp4", frames)
    task = ClipTask(Item(path.name, path), (seed,), out)
    with Journal(out, Header("videos", "benchmark", labeler.model.bundle.digest, {})) as journal:
        running = labeler.stream(task)
        while True:
            with watch.stage("everything else"):
                result = next(running)
                if isinstance(result, Record):
                    assert result.status == "done", result.error
                    journal.add(result)
                elif result.content is not None:
                    replace_bytes(out / result.name, result.content)
            if isinstance(result, Record):
                if result.frame == WHOLE_CLIP:
                    return
                yield


def _encoded(path: Path, frames: Sequence[Rgb]) -> Path:
    with av.open(str(path), "w") as file:
        stream: Any = file.add_stream("libx264", rate=25, options={"crf": "20"})
        stream.height, stream.width, stream.pix_fmt = HEIGHT, WIDTH, "yuv420p"
        for rgb in frames:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        file.mux(stream.encode())
    return path


class Theirs:
    """The loop of transformers, offline: the click is run first, then the clip is propagated."""

    def __init__(self, checkpoint: Path, *, threads: int) -> None:
        import torch
        from transformers import Sam2VideoModel

        torch.set_num_threads(threads)
        self._model: Any = Sam2VideoModel.from_pretrained(checkpoint).eval()

    def track(self, frames: Sequence[Rgb], seed: Seed) -> Iterator[None]:
        """Gives way after every frame."""
        import torch
        from transformers.models.sam2_video.modeling_sam2_video import Sam2VideoInferenceSession

        side = self._model.config.image_size
        pixels = np.stack([preprocess.model_input(rgb, height=side, width=side) for rgb in frames])
        session = Sam2VideoInferenceSession(
            video=torch.from_numpy(pixels), video_height=HEIGHT, video_width=WIDTH, dtype=torch.float32
        )
        places = torch.tensor([[point.x * side / WIDTH, point.y * side / HEIGHT] for point in seed.points])
        inputs = {"point_coords": places[None, None], "point_labels": torch.ones(1, 1, len(places), dtype=torch.int)}
        session.add_point_inputs(session.obj_id_to_idx(seed.object_id), seed.frame, inputs)
        session.obj_with_new_inputs = [seed.object_id]
        yield
        for number in range(len(frames)):
            with torch.inference_mode():
                logits = self._model(session, frame_idx=number).pred_masks
                large = torch.nn.functional.interpolate(logits, (HEIGHT, WIDTH), mode="bilinear", align_corners=False)
                assert (large > 0).shape[-2:] == (HEIGHT, WIDTH)
            yield


def _in_turns(ours: Iterator[None], theirs: Iterator[None] | None, watch: Stopwatch, limit: int) -> Iterator[Turn]:
    if theirs is not None:
        next(theirs)  # the session is set up before the clock starts
    for number in count():
        watch.clear()
        mine = _seconds(ours)
        if mine is None:
            return
        other = None if theirs is None else _seconds(theirs)
        stages = _together([watch])
        yield Turn(_bank(number, stages, limit), mine, other or (0.0, 0.0), stages)


def _seconds(work: Iterator[None]) -> tuple[float, float] | None:
    """What the next frame takes; None at the end."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in work:
        return time.perf_counter() - wall, time.process_time() - cpu
    return None


def _bank(number: int, stages: Stopwatch, limit: int) -> str:
    """Which memory a frame was tracked with."""
    graphs = [name.removeprefix(GRAPH) for name in stages.wall if name.startswith(f"{GRAPH}memcond")]
    if not graphs:
        return "clicked"
    if graphs[0] != f"memcond{limit}":
        return graphs[0]
    return f"{graphs[0]}, bank {'full' if number >= limit else 'filling'}"


def _together(watches: Any) -> Stopwatch:
    total = Stopwatch()
    for watch in watches:
        for name in watch.wall:
            total.wall[name] += watch.wall[name]
            total.cpu[name] += watch.cpu[name]
    return total


def _line(turn: Turn) -> str:
    beside = f", transformers {turn.theirs[0]:.2f} s" if turn.theirs[0] else ""
    return f"  {turn.bank}: sam2label {turn.ours[0]:.2f} s{beside}"


def _tell(bank: str, turns: Sequence[Turn]) -> None:
    ours, theirs = (np.array([getattr(turn, side) for turn in turns]) for side in ("ours", "theirs"))
    print(f"{bank}, {len(turns)} frames: sam2label {np.median(ours[:, 0]):.3f} s per frame (median)")
    if theirs.any():
        wall, cpu = np.median(theirs / ours, axis=0)
        print(f"  transformers {np.median(theirs[:, 0]):.3f} s; ratio {wall:.2f} (processor time: {cpu:.2f})")
    stages = _together(turn.stages for turn in turns)
    print(*table(stages, items=len(turns)), sep="\n")
    print("  host's share {:.2%} (wall clock), {:.2%} (processor time)".format(*host_share(stages)))


if __name__ == "__main__":
    main()
