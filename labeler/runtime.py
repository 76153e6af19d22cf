"""Run a bundle's graphs with LiteRT's CompiledModel: explicit threads, persistent buffers, one write per run."""

from __future__ import annotations

import atexit
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from math import prod
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from labeler.bundle import Bundle, GraphSpec, Part
from labeler.errors import BundleError, GraphError
from labeler.types import Array

XNNPACK_FLAGS = 1 | 2 | 8
"""What XNNPACK takes on request only, and slow fallbacks run without: operators with signed and unsigned 8-bit weights
(an int8 encoder takes 6 times as long), and fully connected layers whose weight is computed, as Q @ K^T is (memory
attention of two slots takes 3 times as long)."""

Device = Literal["cpu", "gpu"]

_CHATTER = re.compile(r"^(INFO|WARNING|VERBOSE|DEBUG): |^[IW]\d{4} |^└ |^\s*$")
_ERROR = re.compile(r"^(ERROR: |E\d{4} )")


class LiteRtRuntime:
    """The graphs of one bundle, each compiled on first use or by `load`.

    A `run` copies only the input parts that are other array objects than in the graph's previous run. Not
    thread-safe; a run holds the GIL, so spread work over processes. Raises BundleError for a file that LiteRT
    refuses or whose tensors do not fit bundle.json, GraphError if a run fails.
    """

    def __init__(self, bundle: Bundle, *, threads: int, devices: Mapping[str, Device] | None = None) -> None:
        self.bundle = bundle
        self.threads = threads
        self._devices = dict(devices or {})
        self._graphs: dict[tuple[GraphSpec, Device], _Graph] = {}

    def load(self, graphs: Sequence[str]) -> None:
        """Compile graphs now, so that a damaged file is known before the first picture."""
        for name in graphs:
            self._graph(name)

    def run(self, graph: str, /, **parts: Array) -> dict[str, Array]:
        return self._graph(graph).run(parts)

    def close(self) -> None:
        """Release the graphs and their buffers."""
        self._graphs.clear()

    def _graph(self, name: str) -> _Graph:
        # Keyed by the whole description: roles that share a file share its buffers and what was last written.
        key = self.bundle.graphs[name], self._devices.get(name, "cpu")
        if key not in self._graphs:
            spec, device = key
            self._graphs[key] = _Graph(spec, _Compiled(self.bundle.folder / spec.file, device, self.threads))
        return self._graphs[key]


class _Compiled:
    """One compiled file with its buffers."""

    def __init__(self, path: Path, device: Device, threads: int) -> None:
        self.path = path
        with quiet_stderr() as errors:
            from ai_edge_litert.compiled_model import CompiledModel
            from ai_edge_litert.hardware_accelerator import HardwareAccelerator
            from ai_edge_litert.options import CpuOptions, Options

            cpu = CpuOptions(num_threads=threads, xnnpack_flags=XNNPACK_FLAGS)
            kind = HardwareAccelerator.GPU if device == "gpu" else HardwareAccelerator.CPU
            try:
                options = Options(hardware_accelerators=kind, cpu_options=cpu)
                self.model = CompiledModel.from_file(str(path), environment=_environment(), options=options)
                self.inputs = self.model.create_input_buffers(0)
                self.outputs = self.model.create_output_buffers(0)
                # The first look at a buffer makes LiteRT set up, and announce, one more environment.
                details = [[buffer.get_tensor_details() for buffer in side] for side in (self.inputs, self.outputs)]
            except RuntimeError as error:
                reason = _reason(errors()) or _reason(str(error))
                raise BundleError(f"{path}: LiteRT cannot load it on the {device} ({reason})") from None
        if kinds := sorted({tensor["dtype"] for side in details for tensor in side} - {"float32"}):
            raise BundleError(f"{path}: has {', '.join(kinds)} tensors, only float32 ones can be used")
        self.input_sizes, self.output_sizes = ([prod(tensor["shape"]) for tensor in side] for side in details)

    def run(self) -> None:
        try:
            self.model.run_by_index(0, self.inputs, self.outputs)
        except RuntimeError as error:
            raise GraphError(f"{self.path}: the run failed ({_reason(str(error))})") from None


class _Graph:
    """One role: its parts mapped onto the tensors of a compiled file."""

    def __init__(self, spec: GraphSpec, compiled: _Compiled) -> None:
        self.compiled = compiled
        self._inputs = _tensors(spec.inputs, spec.layout)
        self._outputs = _tensors(spec.outputs, spec.layout)
        _check_sizes(compiled.path, "input", self._inputs, compiled.input_sizes)
        _check_sizes(compiled.path, "output", self._outputs, compiled.output_sizes)
        # A tensor of a single part is written straight from the caller's array and needs no staging.
        self._staging = [
            np.zeros(sum(part.size for part in parts), np.float32) if len(parts) > 1 else None for parts in self._inputs
        ]
        self._shapes = {part.name: part.shape for part in spec.inputs}
        self._last: dict[str, Array] = {}

    def run(self, parts: dict[str, Array]) -> dict[str, Array]:
        last, self._last = self._last, {}
        if parts.keys() != self._shapes.keys() or any(parts[n].shape != self._shapes[n] for n in parts):
            found = {name: values.shape for name, values in parts.items()}
            raise GraphError(f"{self.compiled.path}: was given parts {found}, takes {self._shapes}")
        for buffer, members, staging in zip(self.compiled.inputs, self._inputs, self._staging, strict=True):
            fresh = [part for part in members if parts[part.name] is not last.get(part.name)]
            if not fresh:
                continue
            if staging is None:
                buffer.write(np.ascontiguousarray(parts[members[0].name], np.float32).reshape(-1))
            else:
                _stage(staging, members, fresh, parts)
                buffer.write(staging)
        self._last = parts
        self.compiled.run()
        return self._read()

    def _read(self) -> dict[str, Array]:
        result: dict[str, Array] = {}
        for buffer, members in zip(self.compiled.outputs, self._outputs, strict=True):
            flat: NDArray[np.float32] = buffer.read(sum(part.size for part in members), np.float32)
            flat.setflags(write=False)
            for part, start in zip(members, _starts(members), strict=True):
                result[part.name] = flat[start : start + part.size].reshape(part.shape)
        return result


def _stage(
    staging: NDArray[np.float32], members: Sequence[Part], fresh: Sequence[Part], parts: dict[str, Array]
) -> None:
    for part, start in zip(members, _starts(members), strict=True):
        if part in fresh:
            staging[start : start + part.size].reshape(part.shape)[...] = parts[part.name]


def _starts(parts: Sequence[Part]) -> list[int]:
    return [sum(part.size for part in parts[:i]) for i in range(len(parts))]


def _tensors(parts: tuple[Part, ...], layout: str) -> list[tuple[Part, ...]]:
    return [parts] if layout == "flat" else [(part,) for part in parts]


def _check_sizes(path: Path, side: str, tensors: Sequence[tuple[Part, ...]], found: Sequence[int]) -> None:
    expected = [sum(part.size for part in parts) for parts in tensors]
    if expected != list(found):
        raise BundleError(
            f"{path}: {side} tensors hold {list(found)} values, its description says {expected}; "
            "the graph is of another model or layout"
        )


@cache
def _environment() -> Any:
    """LiteRT's environment, one for all graphs of the process. It announces its end, which comes after all Python."""
    from ai_edge_litert.environment import Environment

    atexit.register(_lead_stderr_away)
    return Environment.create()


def _lead_stderr_away() -> None:
    """Nobody shall hear what C++ destructors say at exit; sys.stderr goes on with a copy of the descriptor."""
    stream = sys.__stderr__
    if stream is None or sys.stderr is not stream:
        return
    stream.flush()
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace", closefd=False)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)


def _reason(text: str) -> str:
    lines = [line.strip(" └").removeprefix("ERROR: ") for line in text.splitlines() if line.strip()]
    return ": ".join(lines[:2])


@contextmanager
def quiet_stderr() -> Iterator[Callable[[], str]]:
    """Keep LiteRT's C++ log lines off file descriptor 2; everything else is written there afterwards.

    Yields a function that returns the ERROR lines so far. They belong to an exception if one is raised, and are
    passed on otherwise.
    """
    failed = True
    with tempfile.TemporaryFile() as log:
        try:
            with _descriptor_2(log.fileno()):
                yield lambda: "".join(line for line in _lines(log) if _ERROR.match(line))
            failed = False
        finally:
            kept = [line for line in _lines(log) if not _CHATTER.match(line) and not (failed and _ERROR.match(line))]
            if kept and sys.__stderr__ is not None:
                os.write(2, "".join(kept).encode())


@contextmanager
def _descriptor_2(descriptor: int) -> Iterator[None]:
    """Let file descriptor 2 be another one for a while."""
    if sys.stderr is not None:
        sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:  # The program was started with standard error closed.
        saved = None
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        if saved is None:
            os.close(2)
        else:
            os.dup2(saved, 2)
            os.close(saved)


def _lines(log: IO[bytes]) -> list[str]:
    log.seek(0)
    return log.read().decode(errors="replace").splitlines(keepends=True)
