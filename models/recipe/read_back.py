"""A bundle of ours as a checkpoint again: `python -m models.recipe.read_back models/mini OUT.pt`.

Training goes on from it with `python -m models.recipe.train --start OUT.pt`. Converters move, merge and transpose
weights, so a second model with weights of its own is exported, and every weight is looked for among the constants of
its graphs: the same places hold the bundle's weights.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from itertools import permutations
from pathlib import Path

import numpy as np
import torch
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray
from torch import Tensor, nn

from labeler.bundle import load as load_bundle
from labeler.bundle import read_constant
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


@torch.no_grad()
def read_back(folder: Path) -> Model:
    """The model of a bundle that `models.recipe.export` wrote with default options, its weights rounded to float16.

    Batch norms come back with the identity as statistics, and have to stay at rest.
    Raises ValueError if a weight cannot be found.
    """
    probe = _probe()
    with tempfile.TemporaryDirectory() as temporary:
        written = Path(temporary) / "probe"
        export(probe, written, provenance={}, version="0", progress=lambda _: None)
        known, given = _constants(written), _constants(folder)
    state = {name: _found(name, value, known, given) for name, value in _as_exported(probe).items()}
    return _model(state, _table(folder))


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
    for name in ("decoder.codes.weight", "decoder.codes.bias"):
        state[name] *= 4
    for name in ("memory.sharpness", "memory.pointer_sharpness"):
        state[name] = np.exp(state[name])
    for name in ("decoder.cue_norm.running_var", "decoder.norm128.running_var"):
        state[name] = (state[name] + 1e-5) ** -0.5
    del state["memory.temporal"]  # a file of its own
    return state


def _model(state: Mapping[str, Array], temporal: Tensor) -> Model:
    """The inverse of `folded` and of `_as_exported`, in which what was merged is the identity."""
    model = Model(ModelOptions())
    own = model.state_dict()
    values = {name: torch.from_numpy(value) for name, value in state.items()}
    for name in ("decoder.codes.weight", "decoder.codes.bias"):
        values[name] = values[name] / 4
    for name in ("memory.sharpness", "memory.pointer_sharpness"):
        values[name] = values[name].log()
    for name in ("decoder.cue_norm.running_var", "decoder.norm128.running_var"):
        values[name] = values[name] ** -2 - 1e-5
    values["memory.temporal"] = temporal
    for convolution, norm in _merged(model):
        # The convolution of a folded model has a bias; here it is the norm's.
        values[f"{norm}.bias"] = values.pop(f"{convolution}.bias")
        values[f"{norm}.weight"] = torch.ones_like(own[f"{norm}.weight"])
        values[f"{norm}.running_var"] = torch.ones_like(own[f"{norm}.running_var"]) - 1e-5
        values[f"{norm}.running_mean"] = torch.zeros_like(own[f"{norm}.running_mean"])
    for name, value in own.items():
        if name not in values and name.startswith(_LAYER_NORMS):
            values[name] = torch.ones_like(value) if name.endswith("weight") else torch.zeros_like(value)
    counters = {name: value for name, value in own.items() if not value.is_floating_point()}
    model.load_state_dict({name: value.float() for name, value in values.items()} | counters)
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


def _constants(folder: Path) -> dict[Place, Array]:
    bundle = load_bundle(folder)
    found = {}
    for role in _GRAPHS:
        file = bundle.graphs[role].file
        content = (folder / file).read_bytes()
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(content, 0))
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


def _table(folder: Path) -> Tensor:
    """The temporal table of the bundle's constants."""
    return torch.from_numpy(read_constant(load_bundle(folder), "temporal")["temporal"].copy())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m models.recipe.read_back", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("out", type=Path)
    chosen = parser.parse_args()
    model = read_back(chosen.bundle)
    torch.save({"model": model.state_dict(), "model_options": model.options.record()}, chosen.out)


if __name__ == "__main__":
    main()
