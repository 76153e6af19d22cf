"""What run.json says about where labels come from."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from labeler import __version__, accelerator
from labeler.bundle import Bundle
from labeler.model import Task, roles

LIBRARIES = ("ai-edge-litert", "av", "numpy", "pillow", "pycocotools")


def provenance(
    bundle: Bundle,
    task: Task,
    options: Mapping[str, Any],
    chosen: accelerator.Chosen,
    seeds: Path | None,
    sha256: str | None,
) -> dict[str, Any]:
    """Versions, bundle, graphs, accelerator, options, seeds."""
    used = {role: bundle.graphs[role] for role in roles(bundle, task)}
    return {
        "program": f"sam2label {__version__}",
        "kind": task,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
        "bundle": {
            "name": bundle.name,
            "version": bundle.version,
            "folder": str(bundle.folder),
            "digest": bundle.digest,
            "graphs": {role: {"file": spec.file, "sha256": spec.sha256} for role, spec in used.items()},
        },
        "accelerator": {role: chosen.devices.get(role, "cpu") for role in used},
        "options": dict(options),
        "seeds": {"path": None if seeds is None else str(seeds), "sha256": sha256},
    }
