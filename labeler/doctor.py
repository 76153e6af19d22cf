"""Say what is here to label with, and try it out. Touches no network."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from labeler import __version__, accelerator, hub, masks, workers
from labeler.bundle import Bundle
from labeler.errors import BundleError, LabelerError
from labeler.images import ImageLabeler
from labeler.model import ModelSpec, roles
from labeler.pipeline import worker_bytes
from labeler.provenance import LIBRARIES
from labeler.types import Mask, Point, Rgb, Seed

PYTHON = (3, 11)
GOOD_IOU = 0.8
"""The small bundle that ships reaches 0.94 on the disc; a model that does not find it labels nothing else either."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination."""

    subject: str
    good: bool
    text: str


def examine(model: str | None, *, models_dir: Path, device: accelerator.Wanted = "auto") -> Iterator[Finding]:
    """Findings one by one, as they are made: versions, bundles, machine, accelerators, a self-test.

    `model`: the bundle to try, by default the one that labelling would take. Where there is a GPU the check of it can
    take minutes; `device` "cpu" leaves it out.
    """
    yield from _versions()
    yield from _known(models_dir)
    try:
        bundle = hub.resolve(model, models_dir=models_dir).bundle
    except BundleError as error:
        yield from (Finding("model", False, fault) for fault in error.faults)
        return
    yield Finding("model", True, f"{bundle.name} {bundle.version}: all files are whole")
    yield _machine(bundle)
    threads = workers.usable_cores()
    try:
        chosen = accelerator.choose(bundle, _all_roles(bundle), wanted=device, threads=threads)
        yield Finding("accelerator", True, chosen.summary or "cpu, nothing else was tried")
        yield self_test(ModelSpec(bundle, threads, "images", chosen.devices))
    except LabelerError as error:
        yield Finding("accelerator", False, "; ".join(str(error).splitlines()))


def self_test(spec: ModelSpec) -> Finding:
    """Label a disc and compare with it."""
    rgb, disc, click = scene()
    try:
        record = ImageLabeler(spec)(rgb, [Seed(1, (click,))])
    except LabelerError as error:
        return Finding("self-test", False, str(error))
    if record.error:
        return Finding("self-test", False, record.error)
    mask = masks.decode(dict(record.annotations[0].rle))
    iou = int(np.count_nonzero(mask & disc)) / int(np.count_nonzero(mask | disc))
    return Finding(
        "self-test",
        iou >= GOOD_IOU,
        f"one click on a disc: IoU {iou:.3f} (at least {GOOD_IOU} is good), {record.seconds:.2f} s",
    )


def scene() -> tuple[Rgb, Mask, Point]:
    """A plain picture [192, 256, 3] with a bright disc, the disc's true mask, and a click in its middle."""
    row, column = np.mgrid[:192, :256]
    disc: Mask = np.hypot(column - 120, row - 90) < 45
    rgb = np.full((192, 256, 3), (70, 90, 80), np.uint8)
    rgb[disc] = (220, 150, 40)
    return rgb, disc, Point(120, 90)


def _versions() -> Iterator[Finding]:
    yield Finding("sam2label", True, __version__)
    wanted = ".".join(map(str, PYTHON))
    good = sys.version_info >= PYTHON
    yield Finding("python", good, platform.python_version() + ("" if good else f", at least {wanted} is needed"))
    for name in LIBRARIES:
        try:
            yield Finding(name, True, version(name))
        except PackageNotFoundError:
            yield Finding(name, False, "is not installed; install sam2label again with pip")


def _known(models_dir: Path) -> Iterator[Finding]:
    for known in hub.known(models_dir):
        place = f" in {known.folder}" if known.folder else f"; to install: sam2label models pull {known.name}"
        fault = f": {known.fault}" if known.fault else ""
        yield Finding(f"bundle {known.name}", known.state != "damaged", f"{known.state}{place}{fault}")


def _machine(bundle: Bundle) -> Finding:
    needed, available = worker_bytes(bundle, "images"), workers.available_bytes()
    text = f"{workers.usable_cores()} usable cores, {available / 1e9:.1f} GB available"
    short = "" if available >= needed else f", this model needs {needed / 1e9:.1f} GB"
    return Finding("machine", not short, text + short)


def _all_roles(bundle: Bundle) -> tuple[str, ...]:
    """The graphs that any kind of labelling runs, each once."""
    clips = roles(bundle, "videos") if bundle.tracks else ()
    return tuple(dict.fromkeys((*roles(bundle, "images"), *clips)))
