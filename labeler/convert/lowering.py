"""A PyTorch module becomes a .tflite file."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from labeler import __version__
from labeler.convert.options import ConvertOptions
from labeler.convert.silence import silence

HALF = [
    {
        "regex": ".*",
        "operation": "*",
        "algorithm_key": "float_casting",
        "op_config": {"weight_tensor_config": {"num_bits": 16, "dtype": "FLOAT"}},
    }
]


def lower(module: nn.Module, example: tuple[Tensor, ...], path: Path, *, precision: str) -> None:
    """Write `module` as a graph of one signature whose tensors are ordered as the arguments and results."""
    with silence():
        import litert_torch

        litert_torch.convert(module.eval(), example).export(str(path))
        if precision != "fp32":
            quantize(path, precision)


def quantize(path: Path, precision: str) -> None:
    """Store the weights of a float graph as float16, or as int8 with dynamic range arithmetic, in its place."""
    from ai_edge_quantizer import quantizer, recipe

    chosen: Any = HALF if precision == "fp16" else recipe.dynamic_wi8_afp32()
    quantizer_of_file = quantizer.Quantizer(str(path))
    quantizer_of_file.load_quantization_recipe(chosen)
    quantizer_of_file.quantize().export_model(path, overwrite=True)


def record(options: ConvertOptions) -> dict[str, Any]:
    """Versions of everything that took part, for bundle.json."""
    packages = ("torch", "transformers", "litert-torch", "ai-edge-quantizer", "ai-edge-litert", "numpy")
    versions = {"sam2label": __version__} | {package: version(package) for package in packages}
    return {"versions": versions, "options": options.record()}
