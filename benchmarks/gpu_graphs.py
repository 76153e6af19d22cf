"""What a GPU makes of a bundle's graphs: whether they compile, run there entirely, and compute what the CPU does.

`python benchmarks/gpu_graphs.py CHECKPOINT BUNDLE [ROLE ...]`

Inputs are what a drawn picture gives from graph to graph in the checkpoint's own modules. Every graph runs in a process
of its own, as a driver can crash or hang. Without a GPU, Debian's chromium package brings a software Vulkan driver: set
VK_ICD_FILENAMES and VK_DRIVER_FILES to its vk_swiftshader_icd.json, LD_LIBRARY_PATH to the folder that holds it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from labeler.bundle import load
from labeler.runtime import _Compiled, _Graph

TELLING = ("error", "Error", "exceeds", "larger", "unsupported", "not supported", "Failed")


def main() -> None:
    if sys.argv[1] == "--child":
        _child(Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
        return
    options = _options()
    from labeler.convert.checkpoint import load_model
    from labeler.convert.trials import picture, trials

    bundle = load(options.bundle)
    inputs = trials(load_model(options.checkpoint), bundle, picture())
    with tempfile.TemporaryDirectory(prefix="sam2label-") as folder:
        for role in options.roles or bundle.graphs:
            saved = Path(folder) / f"{role}.npz"
            np.savez(saved, **{name: part.numpy()[0] for name, part in inputs[role]["picture"].items()})
            print(
                f"{role}, {bundle.graphs[role].layout}: {_report(options.bundle, role, saved, options.seconds)}",
                flush=True,
            )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("roles", nargs="*", help="graphs to try; default all")
    parser.add_argument("--seconds", type=float, default=600, help="after which a graph counts as hanging")
    return parser.parse_args()


def _report(bundle: Path, role: str, inputs: Path, seconds: float) -> str:
    command = [sys.executable, __file__, "--child", str(bundle), role, str(inputs)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"not done after {seconds:.0f} s"
    told = next((line.strip() for line in done.stderr.splitlines() if any(word in line for word in TELLING)), "")
    if done.returncode != 0:
        return f"fails (exit code {done.returncode}): {(done.stderr.splitlines() or [told])[-1]}"
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    agreement = ", ".join(f"{name} {value:.5f}" for name, value in facts["correlation"].items())
    accelerated = "fully" if facts["fully"] else "not fully"
    return f"compiles, {accelerated} accelerated, correlation with the CPU: {agreement}" + (
        f"; says: {told}" if told else ""
    )


def _child(folder: Path, role: str, inputs: Path) -> None:
    spec = load(folder).graphs[role]
    parts = dict(np.load(inputs))
    on_cpu = _Graph(spec, _Compiled(folder / spec.file, "cpu", 2)).run(parts)
    gpu = _Compiled(folder / spec.file, "gpu", 2)
    on_gpu = _Graph(spec, gpu).run(parts)
    large = [name for name, values in on_cpu.items() if values.size > 16]
    correlation = {name: float(np.corrcoef(on_cpu[name].ravel(), on_gpu[name].ravel())[0, 1]) for name in large}
    print(json.dumps({"fully": bool(gpu.model.is_fully_accelerated()), "correlation": correlation}))


if __name__ == "__main__":
    main()
