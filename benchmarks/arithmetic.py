"""How near the graphs come to what the processor can multiply: operations, seconds and GFLOP/s of each graph.

`python benchmarks/arithmetic.py [--model BUNDLE] [--runs N]`

Counted are multiplications and additions of matrix products and convolutions, as the .tflite files have them. Beside
each graph's rate stands that of one large float32 product in numpy's BLAS on the same cores, measured right after; the
last column, operations at that rate, is about the least that float32 can take on this machine.
"""

from __future__ import annotations

import argparse
import statistics
from math import prod
from pathlib import Path

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from stopwatch import seconds

from labeler import hub, workers
from labeler.convert.operators import read_model
from labeler.runtime import LiteRtRuntime

SIDE = 3072


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", help="bundle folder or name; default: as sam2label chooses")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    bundle = hub.resolve(options.model, models_dir=hub.default_models_dir()).bundle
    cores = workers.usable_cores()
    runtime = LiteRtRuntime(bundle, threads=cores)
    matrix = np.random.default_rng(0).standard_normal((SIDE, SIDE), np.float32)
    print(f"{bundle.name} {bundle.version}, {cores} threads")
    print(f"{'graph':12} {'GFLOP':>7} {'s':>7} {'GFLOP/s':>8} {'one product':>12} {'least s':>8}")
    for name, spec in bundle.graphs.items():
        parts = {part.name: np.zeros(part.shape, np.float32) for part in spec.inputs}
        runtime.run(name, **parts)
        taken = statistics.median(seconds(lambda: runtime.run(name, **parts)) for _ in range(options.runs))  # noqa: B023
        rate = 2 * SIDE**3 / 1e9 / min(seconds(lambda: matrix @ matrix) for _ in range(3))
        work = operations(bundle.folder / spec.file) / 1e9
        print(f"{name:12} {work:7.1f} {taken:7.3f} {work / taken:8.0f} {rate:12.0f} {work / rate:8.3f}", flush=True)


def operations(path: Path) -> int:
    """Floating point operations in the products and convolutions of a .tflite file."""
    model = read_model(path.read_bytes())
    graph, total = model.subgraphs[0], 0
    for operator in graph.operators:
        code = model.operatorCodes[operator.opcodeIndex]
        shapes = [[int(side) for side in graph.tensors[i].shape] for i in (*operator.inputs[:2], operator.outputs[0])]
        total += 2 * prod(shapes[-1]) * _depth(max(code.builtinCode, code.deprecatedBuiltinCode), shapes)
    return total


def _depth(kind: int, shapes: list[list[int]]) -> int:
    """How many products are added up for one value of the result; 0 for everything that is not a product."""
    names = schema.BuiltinOperator
    if kind == names.FULLY_CONNECTED:
        return shapes[1][-1]
    if kind == names.BATCH_MATMUL:
        return shapes[0][-1]
    if kind == names.CONV_2D:
        return prod(shapes[1][1:])
    return prod(shapes[1][1:3]) if kind == names.DEPTHWISE_CONV_2D else 0


if __name__ == "__main__":
    main()
