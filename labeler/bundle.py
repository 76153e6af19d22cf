"""Describe a model bundle: which graph does what, in which file, with which parts of which shape."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labeler import flatbuffer
from labeler.errors import BundleError

SCHEMA = "sam2label/bundle/1"
DESCRIPTOR = "bundle.json"


@dataclass(frozen=True, slots=True)
class Part:
    """A named stretch of a tensor. Sizes are counted in float32 values."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class FileSpec:
    """A file of a bundle; `nbytes` and `sha256` are None where the publisher's are not known in advance."""

    file: str
    nbytes: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class GraphSpec(FileSpec):
    """A .tflite file. `flat`: one input and one output tensor, the parts end to end; `parts`: one tensor each."""

    layout: Literal["flat", "parts"]
    inputs: tuple[Part, ...]
    outputs: tuple[Part, ...]

    def input(self, name: str) -> Part:
        return next(part for part in self.inputs if part.name == name)

    def has_input(self, name: str) -> bool:
        return any(part.name == name for part in self.inputs)

    def has_output(self, name: str) -> bool:
        return any(part.name == name for part in self.outputs)


@dataclass(frozen=True, slots=True)
class ConstantSpec(FileSpec):
    """A .bin file of little-endian float32 values, the parts end to end."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A folder of graphs and constants with one contract, whatever the model's size."""

    folder: Path
    name: str
    version: str
    license: str
    origin: str
    graphs: Mapping[str, GraphSpec]
    """By role: image_encode, image_decode, encode, decode, memorize, memcond<slots>."""
    constants: Mapping[str, ConstantSpec]
    stills: Literal["video", "image"]
    """Which pair serves pictures when both are there."""
    image_candidate_0: Literal["whole_object", "best_first"] | None
    """What the image decoder's first mask is: the whole object, or the one predicted to be best."""
    provenance: Mapping[str, Any]

    @property
    def memory_slots(self) -> tuple[int, ...]:
        """Slot counts of the memory graphs, smallest first."""
        return tuple(sorted(int(role.removeprefix("memcond")) for role in self.graphs if role.startswith("memcond")))

    @property
    def tracks(self) -> bool:
        """Whether clips can be tracked."""
        return {"encode", "decode", "memorize"} <= self.graphs.keys() and bool(self.memory_slots)

    def still_roles(self) -> tuple[str, str]:
        """The encode and decode graphs that serve pictures."""
        video, image = ("encode", "decode"), ("image_encode", "image_decode")
        for pair in (image, video) if self.stills == "image" else (video, image):
            if set(pair) <= self.graphs.keys():
                return pair
        raise BundleError(
            f"{self.folder}: has no pair of graphs for pictures; "
            "needs encode and decode, or image_encode and image_decode"
        )

    def files(self) -> dict[str, FileSpec]:
        """Every distinct file, by name."""
        return {spec.file: spec for spec in (*self.graphs.values(), *self.constants.values())}

    @property
    def digest(self) -> str:
        """sha256 over everything that decides masks: file hashes, layouts, choices. Needs known hashes (`lock`)."""
        document = describe(self)
        decisive = {key: document[key] for key in ("graphs", "constants", "stills", "image_candidate_0")}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


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


def parse(document: Any, *, folder: Path, where: str) -> Bundle:
    """Turn a bundle.json document into a Bundle. Raises BundleError naming the place in `where`."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise BundleError(f"{where}: schema: expected {SCHEMA!r}, found {found!r}; it may need a newer sam2label")
    try:
        return Bundle(
            folder=folder,
            name=_string(document, "name"),
            version=_string(document, "version"),
            license=_string(document, "license"),
            origin=_string(document, "origin"),
            graphs={role: _graph(spec) for role, spec in _mapping(document, "graphs").items()},
            constants={role: _constant(spec) for role, spec in _mapping(document, "constants").items()},
            stills=_choice(document, "stills", ("video", "image")),
            image_candidate_0=_choice(document, "image_candidate_0", ("whole_object", "best_first", None)),
            provenance=_mapping(document, "provenance") if "provenance" in document else {},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BundleError(f"{where}: {error.args[0] if error.args else error}: missing or malformed") from None


def describe(bundle: Bundle) -> dict[str, Any]:
    """The bundle.json document of a bundle: `parse(describe(b))` equals `b`."""
    return {
        "schema": SCHEMA,
        "name": bundle.name,
        "version": bundle.version,
        "license": bundle.license,
        "origin": bundle.origin,
        "stills": bundle.stills,
        "image_candidate_0": bundle.image_candidate_0,
        "graphs": {
            role: _describe_file(spec)
            | {"layout": spec.layout, "inputs": _describe_parts(spec.inputs), "outputs": _describe_parts(spec.outputs)}
            for role, spec in bundle.graphs.items()
        },
        "constants": {
            role: _describe_file(spec) | {"parts": _describe_parts(spec.parts)}
            for role, spec in bundle.constants.items()
        },
        "provenance": dict(bundle.provenance),
    }


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


def _string(document: Mapping[str, Any], key: str) -> str:
    if not isinstance(document.get(key), str):
        raise ValueError(key)
    return str(document[key])


def _mapping(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    if not isinstance(document.get(key), dict):
        raise ValueError(key)
    return dict(document[key])


def _choice(document: Mapping[str, Any], key: str, choices: tuple[Any, ...]) -> Any:
    if document.get(key) not in choices:
        raise ValueError(key)
    return document.get(key)


def _optional(document: Mapping[str, Any], key: str, kind: type) -> Any:
    value = document.get(key)
    if value is not None and type(value) is not kind:
        raise ValueError(key)
    return value


def _file_name(spec: Mapping[str, Any]) -> str:
    name = _string(spec, "file")
    # A downloaded bundle must not reach outside its folder.
    if not name or Path(name).name != name or "\\" in name:
        raise ValueError("file")
    return name


def _graph(spec: Any) -> GraphSpec:
    return GraphSpec(
        file=_file_name(spec),
        nbytes=_optional(spec, "bytes", int),
        sha256=_optional(spec, "sha256", str),
        layout=_choice(spec, "layout", ("flat", "parts")),
        inputs=_parts(spec, "inputs"),
        outputs=_parts(spec, "outputs"),
    )


def _constant(spec: Any) -> ConstantSpec:
    return ConstantSpec(
        file=_file_name(spec),
        nbytes=_optional(spec, "bytes", int),
        sha256=_optional(spec, "sha256", str),
        parts=_parts(spec, "parts"),
    )


def _parts(spec: Mapping[str, Any], key: str) -> tuple[Part, ...]:
    parts = tuple(Part(_string(part, "name"), tuple(part["shape"])) for part in spec[key])
    if not parts or any(type(side) is not int or side < 1 for part in parts for side in part.shape):
        raise ValueError(key)
    return parts


def _describe_file(spec: FileSpec) -> dict[str, Any]:
    return {"file": spec.file, "bytes": spec.nbytes, "sha256": spec.sha256}


def _describe_parts(parts: tuple[Part, ...]) -> list[dict[str, Any]]:
    return [{"name": part.name, "shape": list(part.shape)} for part in parts]
