"""A checkpoint becomes a bundle: `python -m models.recipe.export RUN/last.pt OUT`."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from labeler.bundle import DESCRIPTOR, Bundle, describe, lock
from labeler.convert.constants import write_constants
from labeler.convert.exporter import new_folder, refuse_existing, write_graph
from labeler.convert.lowering import record
from labeler.convert.options import ConvertOptions
from models.recipe.graphs import MEMORY_SLOTS, constants, folded, graphs
from models.recipe.model import Model, load


def export(
    model: Model, out: Path, *, provenance: dict[str, Any], version: str, progress: Callable[[str], None]
) -> Bundle:
    """Write `model`, whose batch norms are folded on the way, as a bundle in the new folder `out`."""
    refuse_existing(out)
    options = ConvertOptions(
        prompt_tokens=model.options.prompt_tokens, image_pair=False, memory_slots=MEMORY_SLOTS, name="mini"
    )
    model = folded(model.cpu())
    with torch.no_grad(), new_folder(out) as folder:
        specs = {graph.role: write_graph(graph, folder, options, progress) for graph in graphs(model)}
        specs["image_encode"] = specs["encode"]
        bundle = lock(
            Bundle(
                folder=folder,
                name="mini",
                version=version,
                license="Apache-2.0",
                origin="trained by the sam2label project",
                graphs=specs,
                constants=write_constants(constants(model), folder),
                stills="video",
                image_candidate_0="best_first",
                provenance=record(options) | provenance,
            )
        )
        (folder / DESCRIPTOR).write_text(json.dumps(describe(bundle), indent=1) + "\n", encoding="utf-8")
    return replace(bundle, folder=out)


def main(say: Callable[[str], None]) -> None:
    parser = argparse.ArgumentParser(prog="python -m models.recipe.export", description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--version", default="1")
    chosen = parser.parse_args()
    state = torch.load(chosen.checkpoint, map_location="cpu", weights_only=True)
    provenance = {name: state[name] for name in ("model_options", "train_options", "step")}
    provenance["checkpoint_sha256"] = hashlib.sha256(chosen.checkpoint.read_bytes()).hexdigest()
    export(load(state), chosen.out, provenance=provenance, version=chosen.version, progress=say)


if __name__ == "__main__":
    main(print)
