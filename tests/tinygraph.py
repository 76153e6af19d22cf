"""Write the smallest useful .tflite files: each output is the sum of two inputs of equal size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema


def write(path: Path, *, sizes: Sequence[int], sums: Sequence[tuple[int, int]], dtype: type = np.float32) -> None:
    """A graph with one flat input tensor per entry of `sizes` and one output, inputs[a] + inputs[b], per pair."""
    tensors = [_tensor(f"args_{i}", size, dtype) for i, size in enumerate(sizes)]
    tensors += [_tensor(f"output_{i}", sizes[a], dtype) for i, (a, _) in enumerate(sums)]
    outputs = list(range(len(sizes), len(tensors)))
    subgraph = schema.SubGraphT()
    subgraph.name, subgraph.tensors = "main", tensors
    subgraph.inputs, subgraph.outputs = list(range(len(sizes))), outputs
    subgraph.operators = [_add(pair, out) for pair, out in zip(sums, outputs, strict=True)]
    code = schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode, code.version = schema.BuiltinOperator.ADD, 0, 1
    model = schema.ModelT()
    model.version, model.description, model.operatorCodes = 3, "tiny", [code]
    model.buffers, model.subgraphs = [schema.BufferT()], [subgraph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    path.write_bytes(bytes(builder.Output()))


def _tensor(name: str, size: int, dtype: type) -> schema.TensorT:
    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.buffer = name, [1, size], 0
    tensor.type = {np.float32: schema.TensorType.FLOAT32, np.int32: schema.TensorType.INT32}[dtype]
    return tensor


def _add(pair: tuple[int, int], output: int) -> schema.OperatorT:
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs = 0, list(pair), [output]
    operator.builtinOptionsType, operator.builtinOptions = schema.BuiltinOptions.AddOptions, schema.AddOptionsT()
    return operator
