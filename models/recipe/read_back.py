"""A bundle of ours as a checkpoint again: `python -m models.recipe.read_back models/mini OUT.pt`.

Training goes on from it with `python -m models.recipe.train --start OUT.pt`. Converters move, merge and transpose
weights, so a second model with weights of its own is exported, and every weight is looked for among the constants of
its graphs: the same places hold the bundle's weights.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray
from torch import nn

from labeler.bundle import Bundle, load, read_constant
from labeler.convert.operators import read_model
from models.recipe.blocks import Conv, Residual
from models.recipe.export import export
from models.recipe.model import Model
from models.recipe.options import ModelOptions

Place = tuple[str, int]
"""A graph's file and the tensor in it."""
Array = NDArray[np.float64]
_GRAPHS = ("encode", "decode", "memorize", "memcond2")
_TYPES = {schema.TensorType.FLOAT32: np.float32, schema.TensorType.FLOAT16: np.float16}
_LAYER_NORMS = "encoder.at16.3"
_EPSILON = 1e-5
"""What a batch norm adds to a variance."""
_Change = tuple[Callable[[Array], Array], Callable[[Array], Array]]
_FOUR_TIMES: _Change = (lambda x: 4 * x, lambda x: x / 4)
_EXPONENTIAL: _Change = (np.exp, np.log)
_INVERSE_ROOT: _Change = (lambda x: (x + _EPSILON) ** -0.5, lambda x: x**-2 - _EPSILON)
_CHANGED = {
    "decoder.codes.weight": _FOUR_TIMES,
    "decoder.codes.bias": _FOUR_TIMES,
    "memory.sharpness": _EXPONENTIAL,
    "memory.pointer_sharpness": _EXPONENTIAL,
    "decoder.cue_norm.running_var": _INVERSE_ROOT,
    "decoder.norm128.running_var": _INVERSE_ROOT,
}
"""What graphs hold instead of a weight, and the way back."""


@torch.no_grad()
def read_back(folder: Path) -> Model:
    """The model of a bundle that `models.recipe.export` wrote with default options, its weights rounded to float16.

    Batch norms come back with the identity as statistics, and have to stay at rest.
    Raises ValueError if a weight cannot be found.
    """
    probe, bundle = _probe(), load(folder)
    with tempfile.TemporaryDirectory() as temporary:
        written = export(probe, Path(temporary) / "probe", provenance={}, version="0", progress=lambda _: None)
        known, given = _constants(written), _constants(bundle)
    state = {name: _found(name, value, known, given) for name, value in _as_exported(probe).items()}
    return _model(state | {"memory.temporal": read_constant(bundle, "temporal")["temporal"]})


def _probe() -> Model:
    """A model each of whose weights differs from all others."""
    torch.manual_seed(3)
    model = Model(ModelOptions())
    for parameter in model.parameters():
        parameter.normal_(0, 0.3)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    return model


def _as_exported(model: Model) -> dict[str, Array]:
    """Every weight of a folded model as the converter leaves it: factors that follow each other are one."""
    state = {name: value.double().numpy() for name, value in model.state_dict().items() if value.is_floating_point()}
    norm1, norm2, wide = (f"{_LAYER_NORMS}.{name}" for name in ("norm1", "norm2", "wide"))
    state[f"{_LAYER_NORMS}.position"] += state.pop(f"{norm1}.bias")
    state[f"{wide}.bias"] += state[f"{wide}.weight"] @ state.pop(f"{norm2}.bias")
    state[f"{wide}.weight"] *= state.pop(f"{norm2}.weight")
    for name, (there, _) in _CHANGED.items():
        state[name] = there(state[name])
    del state["memory.temporal"]  # a file of its own
    return state


def _model(state: Mapping[str, NDArray[Any]]) -> Model:
    """The inverse of `folded` and of `_as_exported`; a new model's layer norms are the identity already."""
    model = Model(ModelOptions())
    back = {name: inverse(state[name]) for name, (_, inverse) in _CHANGED.items()}
    values = model.state_dict() | {name: torch.tensor(value) for name, value in (state | back).items()}
    for convolution, norm in _merged(model):
        # The convolution of a folded model has a bias; here it is the norm's.
        values[f"{norm}.bias"] = values.pop(f"{convolution}.bias")
        values[f"{norm}.weight"] = torch.ones_like(values[f"{norm}.weight"])
        values[f"{norm}.running_var"] = torch.full_like(values[f"{norm}.running_var"], 1 - _EPSILON)
    model.load_state_dict(values)
    return model


def _merged(model: Model) -> Iterator[tuple[str, str]]:
    """Names of the convolutions and of the batch norms that `folded` merges into them."""
    for name, module in model.named_modules():
        if isinstance(module, Conv):
            yield f"{name}.0", f"{name}.1"
        if isinstance(module, Residual):
            yield f"{name}.second", f"{name}.norm"


def _found(name: str, value: Array, known: Mapping[Place, Array], given: Mapping[Place, Array]) -> Array:
    """What the bundle holds where the probe holds `value`, in the shape of `value`."""
    wanted = value.squeeze()
    for place, constant in known.items():
        held = constant.squeeze()
        if held.size != wanted.size or place not in given or given[place].shape != constant.shape:
            continue
        for order in permutations(range(wanted.ndim)):
            turned = wanted.transpose(order)
            if turned.shape == held.shape and np.allclose(turned, held, rtol=2e-3, atol=2e-4):
                there = given[place].squeeze().transpose(np.argsort(order))
                return there.reshape(value.shape)
    raise ValueError(f"{name}: not among the constants of the bundle's graphs; was it written by this exporter?")


def _constants(bundle: Bundle) -> dict[Place, Array]:
    found = {}
    for file in (bundle.graphs[role].file for role in _GRAPHS):
        content = (bundle.folder / file).read_bytes()
        model = read_model(content)
        for number, tensor in enumerate(model.subgraphs[0].tensors):
            data = _data(model.buffers[tensor.buffer], content)
            if tensor.type in _TYPES and data:
                values = np.frombuffer(data, _TYPES[tensor.type]).astype(np.float64)
                found[file, number] = values.reshape([] if tensor.shape is None else tensor.shape)
    return found


def _data(buffer: schema.BufferT, content: bytes) -> bytes:
    """Large buffers lie behind the flatbuffer, at an offset of the file."""
    if buffer.offset > 1:
        return content[buffer.offset : buffer.offset + buffer.size]
    return b"" if buffer.data is None else bytes(buffer.data)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m models.recipe.read_back", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("out", type=Path)
    chosen = parser.parse_args()
    model = read_back(chosen.bundle)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"model": model.state_dict(), "model_options": model.options.record()}, chosen.out)


if __name__ == "__main__":
    main()
