"""A bundle, loaded: what the labelers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from labeler import accelerator, hub
from labeler.bundle import Bundle
from labeler.runtime import Device, LiteRtRuntime
from labeler.sam2 import Sam2
from labeler.workers import usable_cores

Task = Literal["images", "videos"]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Everything a process needs to load the model; picklable."""

    bundle: Bundle
    threads: int
    task: Task = "images"
    devices: Mapping[str, Device] = field(default_factory=dict)

    def load(self) -> Sam2:
        """Compile the graphs that the task needs. Raises BundleError for a damaged one."""
        runtime = LiteRtRuntime(self.bundle, threads=self.threads, devices=self.devices)
        runtime.load(roles(self.bundle, self.task))
        return Sam2(runtime, stills=self.task == "images")


def roles(bundle: Bundle, task: Task) -> tuple[str, ...]:
    """The graphs that a task runs."""
    if task == "images":
        return bundle.still_roles()
    return ("encode", "decode", "memorize", *(f"memcond{slots}" for slots in bundle.memory_slots))


def find_model(
    bundle: str | Path | None = None,
    *,
    task: Task = "images",
    threads: int | None = None,
    device: accelerator.Wanted = "cpu",
    models_dir: Path | None = None,
) -> ModelSpec:
    """Find a bundle by folder or name, by default SAM 2.1 Hiera-Tiny if installed, else the small one that ships.

    `threads`: of each graph run; default all usable cores. `device`: cpu, gpu, or auto. Raises BundleError,
    AcceleratorError. Never touches the network.
    """
    found = hub.resolve(bundle, models_dir=models_dir or hub.default_models_dir()).bundle
    threads = threads or usable_cores()
    chosen = accelerator.choose(found, roles(found, task), wanted=device, threads=threads)
    return ModelSpec(found, threads, task, chosen.devices)


def load_model(
    bundle: str | Path | None = None,
    *,
    task: Task = "images",
    threads: int | None = None,
    device: accelerator.Wanted = "cpu",
    models_dir: Path | None = None,
) -> Sam2:
    """`find_model`, and load it."""
    return find_model(bundle, task=task, threads=threads, device=device, models_dir=models_dir).load()
