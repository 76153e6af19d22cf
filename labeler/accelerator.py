"""Decide which graphs run on the GPU: only those that were seen to compute there what they compute on the CPU.

LiteRT compiles graphs for a GPU, says that they are fully accelerated, raises nothing, and may still return garbage.
So each graph is run once on both with inputs from a fixed scene, the GPU in a child process of its own, since
a driver can crash or hang.
"""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from labeler import agreement
from labeler.bundle import Bundle
from labeler.errors import AcceleratorError, LabelerError
from labeler.runtime import Device, LiteRtRuntime
from labeler.sam2 import Sam2
from labeler.track import Tracker
from labeler.types import Array, Point, Rgb, Seed

Wanted = Literal["cpu", "gpu", "auto"]

PROBE_SECONDS = 180.0
"""A graph that takes longer to compile and run three times on the GPU counts as hanging."""
_NO_GPU = re.compile(r"No adapters found|Failed to initialize WebGPU environment")
_NO_DRIVER = re.compile(r"Couldn't load [^:\n]*: [^:\n)]*")
_TELLING = re.compile(r"^(?:E\d{4}[^\]]*\] |Warning: |ERROR: )(.*)", re.MULTILINE)
_CHILD = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from labeler import accelerator; accelerator.child()"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where each graph runs, why, and the one line to tell a person ("" where nothing was left open)."""

    devices: Mapping[str, Device]
    reasons: Mapping[str, str]
    summary: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one graph on the GPU. Without a `fault` it matched the CPU."""

    fault: str | None
    told: str = ""
    """What LiteRT or the driver wrote meanwhile: the first line of it."""
    gpu_seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def pays(self) -> bool:
        return self.fault is None and self.gpu_seconds < self.cpu_seconds

    def __str__(self) -> str:
        if self.fault is not None:
            return self.fault + self.told
        return f"matches the cpu; {self.gpu_seconds:.3f} s on the gpu, {self.cpu_seconds:.3f} s on the cpu"


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One run of a graph on the CPU."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    seconds: float


def choose(
    bundle: Bundle, roles: Sequence[str], *, wanted: Wanted, threads: int, timeout: float = PROBE_SECONDS
) -> Chosen:
    """Where to run the graphs `roles`. `cpu` tries nothing; `auto` takes the GPU for graphs that match and gain.

    `gpu` raises AcceleratorError naming every graph that cannot be had there or does not match. `timeout`: seconds
    for one graph.
    """
    if wanted == "cpu":
        return Chosen(dict.fromkeys(roles, "cpu"), dict.fromkeys(roles, "the cpu was asked for"), "")
    verdicts = probe(bundle, roles, threads=threads, timeout=timeout)
    reasons = {role: str(verdict) for role, verdict in verdicts.items()}
    if wanted == "gpu" and (faults := [_fault(bundle, role, v) for role, v in verdicts.items() if v.fault]):
        raise AcceleratorError("\n".join(dict.fromkeys(faults)))
    devices: dict[str, Device] = {
        role: "gpu" if wanted == "gpu" or verdict.pays else "cpu" for role, verdict in verdicts.items()
    }
    return Chosen(devices, reasons, _summary(devices, reasons))


def probe(bundle: Bundle, roles: Sequence[str], *, threads: int, timeout: float = PROBE_SECONDS) -> dict[str, Verdict]:
    """Run each graph on the CPU and on the GPU and compare. Takes seconds to minutes."""

    def ask(role: str, sample: Path | None) -> Verdict:
        return _ask(bundle, role, sample, threads=threads, timeout=timeout)

    first = min(roles, key=lambda role: (bundle.folder / bundle.graphs[role].file).stat().st_size)
    verdict = ask(first, None)
    if verdict.fault and (lacking := _NO_GPU.search(verdict.fault)):
        driver = _NO_DRIVER.search(verdict.fault + verdict.told)
        why = "; ".join(found.group() for found in (lacking, driver) if found)
        return dict.fromkeys(roles, Verdict(f"there is no usable gpu: {why}"))
    with tempfile.TemporaryDirectory(prefix="sam2label-") as folder:
        return _compare_all(bundle, roles, Path(folder), ask, threads=threads)


def _compare_all(
    bundle: Bundle, roles: Sequence[str], folder: Path, ask: Callable[[str, Path], Verdict], *, threads: int
) -> dict[str, Verdict]:
    verdicts: dict[str, Verdict] = {}
    for role, sample in reference(bundle, roles, threads=threads).items():
        twin = next((r for r in verdicts if bundle.graphs[r] == bundle.graphs[role]), None)
        if twin is None:
            path = folder / f"{role}.npz"
            arrays: dict[str, Any] = {f"in.{n}": a for n, a in sample.inputs.items()} | {
                f"out.{n}": a for n, a in sample.outputs.items()
            }
            np.savez(path, **arrays)
            verdict = ask(role, path)
            path.unlink()
        else:
            verdict = verdicts[twin]
        verdicts[role] = replace(verdict, cpu_seconds=sample.seconds)
    return {role: verdicts[role] for role in roles}


@dataclass(slots=True, eq=False)
class _Recorder:
    """A runtime that keeps the first run of each graph."""

    bundle: Bundle
    runtime: LiteRtRuntime
    samples: dict[str, Sample] = field(default_factory=dict)

    def run(self, graph: str, /, **parts: Array) -> dict[str, Array]:
        self.runtime.load([graph])
        began = time.perf_counter()
        outputs = self.runtime.run(graph, **parts)
        self.samples.setdefault(graph, Sample(parts, outputs, time.perf_counter() - began))
        return outputs


def reference(bundle: Bundle, roles: Sequence[str], *, threads: int) -> dict[str, Sample]:
    """What the graphs compute on the CPU for a disc on a textured ground: clicked once, then followed."""
    runtime = LiteRtRuntime(bundle, threads=threads)
    recorder = _Recorder(bundle, runtime)
    try:
        for _ in _play(recorder, roles):
            if set(roles) <= recorder.samples.keys():
                return {role: recorder.samples[role] for role in roles}
    finally:
        runtime.close()
    raise AssertionError(f"the fixed scene does not use {set(roles) - recorder.samples.keys()}")


def _play(recorder: _Recorder, roles: Sequence[str]) -> Iterator[None]:
    rgb, click = scene()
    height, width = rgb.shape[:2]
    seed = Seed(1, (click,))
    if {"image_encode", "image_decode"} & set(roles):
        model = Sam2(recorder, stills=True)
        model.decode(model.encode(rgb), model.prompt(seed.points, height=height, width=width))
        yield
    if {"encode", "decode"} >= set(roles):
        model = Sam2(recorder)
        model.decode(model.encode(rgb), model.prompt(seed.points, height=height, width=width))
        yield
    model = Sam2(recorder)
    tracker = Tracker(model)
    features = model.encode(rgb)
    tracker.click(seed, features, height=height, width=width)
    yield
    for frame in range(1, max(recorder.bundle.memory_slots) + 1):
        tracker.follow(seed, frame, features)
        yield


def scene() -> tuple[Rgb, Point]:
    """A picture [192, 256, 3] with a bright disc, and a click in its middle. Always the same."""
    y, x = np.mgrid[:192, :256]
    rgb = 90 + 30 * np.sin(x / 17)[..., None] + np.random.default_rng(7).normal(0, 12, (192, 256, 3))
    rgb[np.hypot(x - 120, y - 90) < 45] += (110, 60, -40)
    return rgb.clip(0, 255).astype(np.uint8), Point(120, 90)


def _ask(bundle: Bundle, role: str, sample: Path | None, *, threads: int, timeout: float) -> Verdict:
    """Have a child process load a graph on the GPU and, with a sample, run and compare it."""
    command = [sys.executable, "-c", _CHILD, json.dumps(sys.path)]
    task = pickle.dumps((bundle, role, sample, threads))
    try:
        done = subprocess.run(command, input=task, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        return Verdict(f"gave no result within {timeout:g} s", _told(error.stderr))
    if done.returncode:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        return Verdict(f"the process that tried it died with {how}", _told(done.stderr))
    fault, seconds = json.loads(done.stdout.splitlines()[-1])
    return Verdict(fault, _told(done.stderr), seconds)


def _told(stderr: bytes | None) -> str:
    lines = _TELLING.findall((stderr or b"").decode(errors="replace"))
    return f"; {lines[0].strip()}" if lines else ""


def child() -> None:
    """The child process: a pickled task on standard input, [fault, seconds] as JSON on standard output."""
    bundle, role, sample, threads = pickle.load(sys.stdin.buffer)
    try:
        answer = _try(bundle, role, sample, threads)
    except LabelerError as error:
        answer = (str(error), 0.0)
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


def _try(bundle: Bundle, role: str, sample: Path | None, threads: int) -> tuple[str | None, float]:
    runtime = LiteRtRuntime(bundle, threads=threads, devices={role: "gpu"})
    runtime.load([role])
    if sample is None:
        return None, 0.0
    with np.load(sample) as arrays:
        inputs = {name.removeprefix("in."): arrays[name] for name in arrays if name.startswith("in.")}
        expected = {name.removeprefix("out."): arrays[name] for name in arrays if name.startswith("out.")}
    if fault := agreement.fault(expected, runtime.run(role, **inputs), inputs):
        return fault, 0.0
    # Shaders are made in the first run. A second one with the same arrays would not be written again.
    began = time.perf_counter()
    runtime.run(role, **{name: array.copy() for name, array in inputs.items()})
    return None, time.perf_counter() - began


def _fault(bundle: Bundle, role: str, verdict: Verdict) -> str:
    return f"{bundle.graphs[role].file} ({role}): not on the gpu: {verdict}; use --accelerator auto or cpu"


def _summary(devices: Mapping[str, Device], reasons: Mapping[str, str]) -> str:
    """For example: gpu for encode; cpu for decode (correlation ...)."""
    on_gpu = ", ".join(role for role, device in devices.items() if device == "gpu")
    by_reason: dict[str, list[str]] = {}
    for role in (role for role, device in devices.items() if device == "cpu"):
        by_reason.setdefault(reasons[role], []).append(role)
    on_cpu = [f"cpu for {', '.join(members)} ({reason})" for reason, members in by_reason.items()]
    return "; ".join([f"gpu for {on_gpu}"] * bool(on_gpu) + on_cpu)
