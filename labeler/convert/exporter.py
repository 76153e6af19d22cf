"""Checkpoint in, bundle out: every graph lowered and checked, the folder moved into place at the end."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from labeler.bundle import DESCRIPTOR, Bundle, GraphSpec, describe, lock
from labeler.convert.checkpoint import checkpoint_hash, load_model, size_name
from labeler.convert.constants import constants, write_constants
from labeler.convert.graphs import Graph, graphs
from labeler.convert.lowering import lower, record
from labeler.convert.operators import check_facts, read_facts
from labeler.convert.options import ConvertOptions
from labeler.errors import ConvertError


def export(checkpoint: Path, out: Path, *, options: ConvertOptions, progress: Callable[[str], None]) -> Bundle:
    """See `labeler.convert.convert`."""
    options.check()
    refuse_existing(out)
    model = load_model(checkpoint)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    progress(f"{checkpoint.name}: SAM 2.1 {size_name(model)}, {parameters / 1e6:.1f} M parameters")
    with torch.no_grad(), new_folder(out) as folder:
        bundle = write_bundle(model, checkpoint, folder, options, progress)
    return replace(bundle, folder=out)


def write_bundle(
    model: Any, checkpoint: Path, folder: Path, options: ConvertOptions, progress: Callable[[str], None]
) -> Bundle:
    specs = {graph.role: write_graph(graph, folder, options, progress) for graph in graphs(model, options)}
    bundle = lock(
        Bundle(
            folder=folder,
            name=options.name or f"sam2.1-hiera-{size_name(model)}",
            version=f"converted-{options.precision}",
            license="as the checkpoint",
            origin=f"converted from {checkpoint.resolve().name}",
            graphs=specs,
            constants=write_constants(constants(model, image_pair=options.image_pair), folder),
            stills="video",
            image_candidate_0="whole_object" if options.image_pair else None,
            provenance=record(options) | {"checkpoint_sha256": checkpoint_hash(checkpoint)},
        )
    )
    (folder / DESCRIPTOR).write_text(json.dumps(describe(bundle), indent=1) + "\n", encoding="utf-8")
    return bundle


def write_graph(graph: Graph, folder: Path, options: ConvertOptions, progress: Callable[[str], None]) -> GraphSpec:
    """Lower one graph, check what came out, say so in one line."""
    started, path, spec = time.perf_counter(), folder / graph.file, graph.spec(options)
    module, example = graph.export_form(options)
    lower(module, example, path, precision=options.precision)
    facts = read_facts(path)
    check_facts(facts, spec)
    seconds = time.perf_counter() - started
    progress(f"{graph.role}: {graph.file}, {path.stat().st_size / 1e6:.1f} MB, {seconds:.0f} s, {facts.line()}")
    return spec


def refuse_existing(out: Path) -> None:
    """Raise ConvertError unless `out` is absent or an empty folder."""
    if out.is_dir() and not any(out.iterdir()):
        return
    if out.exists() or out.is_symlink():
        raise ConvertError(f"{out}: is there already; choose a new folder, or remove this one first")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place if the block succeeds, and is removed otherwise.

    Raises ConvertError where it cannot be written.
    """
    folder = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        yield folder
        folder.chmod(0o777 & ~current_umask())
        os.replace(folder, out)  # noqa: PTH105 - onto an empty folder too, which Path.replace documents less clearly
    except (OSError, RuntimeError) as error:
        # Writers inside the converter report a full disk as they like; the file system knows better.
        if isinstance(error, OSError) or is_full(out.parent):
            raise ConvertError(f"{out}: {write_fault(error, out.parent)}") from error
        raise
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def write_fault(error: Exception, parent: Path) -> str:
    if is_full(parent) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return "no space left on the disk; about 300 MB (fp16) or 600 MB (fp32) are needed for Hiera-Tiny"
    return f"cannot be written ({getattr(error, 'strerror', None) or error})"


def is_full(parent: Path) -> bool:
    return parent.is_dir() and shutil.disk_usage(parent).free < 1_000_000


def current_umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
