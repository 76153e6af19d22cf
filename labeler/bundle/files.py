"""The files of a bundle as they lie on the disk: there, whole, of the right size and hash."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labeler import flatbuffer
from labeler.bundle.description import DESCRIPTOR, Bundle, ConstantSpec, FileSpec
from labeler.bundle.document import parse
from labeler.errors import BundleError


def load(folder: Path, *, descriptor: Path | None = None) -> Bundle:
    """Read `folder`/bundle.json (or `descriptor`) and check that every file is there with its size.

    Raises BundleError listing all faults. Hashes are checked by `verify`.
    """
    path = descriptor or folder / DESCRIPTOR
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BundleError(
            f"{path}: cannot be read ({error.strerror}); a bundle folder holds bundle.json and its graphs"
        ) from None
    except ValueError as error:
        raise BundleError(f"{path}: is not JSON ({error})") from None
    return check(parse(document, folder=folder, where=str(path)))


def check(bundle: Bundle) -> Bundle:
    """Check that every file is there, whole, and has its size. Raises BundleError listing all faults."""
    if faults := [fault for spec in bundle.files().values() if (fault := _size_fault(bundle.folder, spec))]:
        raise BundleError(faults)
    return bundle


def lock(bundle: Bundle) -> Bundle:
    """The same bundle with the size and sha256 of every file as it lies on the disk."""
    measured = {name: _measure(bundle.folder / name) for name in bundle.files()}
    return replace(
        bundle,
        graphs={
            role: replace(spec, nbytes=measured[spec.file][0], sha256=measured[spec.file][1])
            for role, spec in bundle.graphs.items()
        },
        constants={
            role: replace(spec, nbytes=measured[spec.file][0], sha256=measured[spec.file][1])
            for role, spec in bundle.constants.items()
        },
    )


def verify(bundle: Bundle) -> Bundle:
    """Check every file's hash and return the locked bundle. Raises BundleError listing all mismatches."""
    locked = lock(bundle)
    faults = [
        f"{bundle.folder / name}: sha256 is {locked.files()[name].sha256}, {DESCRIPTOR} says {spec.sha256}; "
        "the file is damaged or was replaced: pull or copy the bundle again"
        for name, spec in bundle.files().items()
        if spec.sha256 is not None and spec.sha256 != locked.files()[name].sha256
    ]
    if faults:
        raise BundleError(faults)
    return locked


def read_constant(bundle: Bundle, role: str) -> dict[str, NDArray[np.float32]]:
    """The parts of a constant file, float32, by name."""
    spec = bundle.constants[role]
    values = np.fromfile(bundle.folder / spec.file, dtype="<f4")
    expected = sum(part.size for part in spec.parts)
    if values.size != expected:
        raise BundleError(
            f"{bundle.folder / spec.file}: holds {values.size} float32 values, {DESCRIPTOR} says {expected}"
        )
    ends = np.cumsum([part.size for part in spec.parts])[:-1]
    return {
        part.name: piece.reshape(part.shape) for part, piece in zip(spec.parts, np.split(values, ends), strict=True)
    }


def _size_fault(folder: Path, spec: FileSpec) -> str | None:
    path = folder / spec.file
    if not path.is_file():
        return f"{path}: is missing; pull or copy the bundle again"
    nbytes = path.stat().st_size
    expected = spec.nbytes
    if expected is None and isinstance(spec, ConstantSpec):
        expected = 4 * sum(part.size for part in spec.parts)
    if expected is not None and nbytes != expected:
        return (
            f"{path}: has {nbytes} bytes instead of {expected}; "
            "the file is cut short or of another model: pull or copy the bundle again"
        )
    # LiteRT crashes on some graphs that were cut short, and computes with zeros where others end.
    damage = flatbuffer.fault(path) if expected is None else None
    return f"{path}: {damage}; pull or copy the bundle again" if damage else None


def _measure(path: Path) -> tuple[int, str]:
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return path.stat().st_size, digest
    except OSError as error:
        raise BundleError(f"{path}: cannot be read ({error.strerror}); pull or copy the bundle again") from None
