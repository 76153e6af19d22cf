"""What a bundle is: which graph does what, in which file, with which parts of which shape."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

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


def _describe_file(spec: FileSpec) -> dict[str, Any]:
    return {"file": spec.file, "bytes": spec.nbytes, "sha256": spec.sha256}


def _describe_parts(parts: tuple[Part, ...]) -> list[dict[str, Any]]:
    return [{"name": part.name, "shape": list(part.shape)} for part in parts]
