"""Read a graph's operators and tensors from its flatbuffer: what a GPU delegate would have to run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeler.bundle import GraphSpec
from labeler.errors import ConvertError

REFUSED = frozenset(
    [
        *("GATHER_ND", "GATHER", "SELECT", "SELECT_V2", "PACK", "SPLIT", "SPLIT_V", "CAST", "TOPK_V2"),
        *("BROADCAST_TO", "BROADCAST_ARGS", "WHILE", "TRANSPOSE_CONV"),
    ]
)
"""Operators that GPU delegates reject or hand back to the CPU."""
MAX_RANK = 4


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """What a .tflite file holds."""

    operators: Mapping[str, int]
    rank: int
    """Of the tensor with the most dimensions."""
    inputs: tuple[tuple[int, ...], ...]
    """Shapes in the order of the signature, in which the runtime creates its buffers."""
    outputs: tuple[tuple[int, ...], ...]

    @property
    def refused(self) -> dict[str, int]:
        return {name: count for name, count in self.operators.items() if name in REFUSED}

    def line(self) -> str:
        """One line for people."""
        listed = ", ".join(
            f"{count} {name}" for name, count in sorted(self.operators.items(), key=lambda x: (-x[1], x[0]))
        )
        return f"{sum(self.operators.values())} operators, rank {self.rank}: {listed}"


def read_model(content: bytes) -> Any:
    """The `ModelT` of the TFLite schema that a .tflite file holds."""
    from ai_edge_litert import schema_py_generated as schema

    return schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(content, 0))


def read_facts(path: Path) -> GraphFacts:
    """Operators, ranks and signature of a .tflite file."""
    from ai_edge_litert import schema_py_generated as schema

    names = {code: name for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
    model = read_model(path.read_bytes())
    codes = [names[max(code.builtinCode, code.deprecatedBuiltinCode)] for code in model.operatorCodes]
    main = model.subgraphs[0]
    shapes = [tuple(int(side) for side in ([] if tensor.shape is None else tensor.shape)) for tensor in main.tensors]
    signature = model.signatureDefs[0]
    return GraphFacts(
        operators=Counter(codes[operator.opcodeIndex] for graph in model.subgraphs for operator in graph.operators),
        rank=max(len(shape) for shape in shapes),
        inputs=tuple(shapes[tensor.tensorIndex] for tensor in signature.inputs),
        outputs=tuple(shapes[tensor.tensorIndex] for tensor in signature.outputs),
    )


def check_facts(facts: GraphFacts, spec: GraphSpec) -> None:
    """Raise ConvertError for refused operators, too many dimensions, or tensors in another order than the parts."""
    if facts.refused or facts.rank > MAX_RANK:
        raise ConvertError(
            f"{spec.file}: holds {facts.refused or 'no refused operator'}, rank {facts.rank}; a GPU could not run it"
        )
    if spec.layout == "parts":
        for shapes, parts in ((facts.inputs, spec.inputs), (facts.outputs, spec.outputs)):
            if shapes != tuple((1, *part.shape) for part in parts):
                raise ConvertError(f"{spec.file}: tensors {shapes} are not in the order of the parts {parts}")
