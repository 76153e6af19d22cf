"""Read a bundle.json document, strictly: every part that a graph of its role must have is looked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labeler.bundle.description import SCHEMA, Bundle, ConstantSpec, GraphSpec, Part
from labeler.errors import BundleError

_FEATURES = ("pix", "hi0", "hi1")
ROLES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "image_encode": (("image",), _FEATURES),
    "image_decode": ((*_FEATURES, "sparse"), ("masks",)),
    "encode": (("image",), _FEATURES),
    "decode": ((*_FEATURES, "sparse", "no_memory"), ("masks", "iou", "pointers", "object_score")),
    "memorize": (("pix", "mask", "occluded"), ("memory",)),
    "memcond": (("pix", "memory", "temporal", "pointers", "pointer_positions", "key_mask"), ("pix",)),
}
"""Input and output parts that a graph must have, by role; memcond<slots> has those of memcond."""


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
            graphs={role: _graph(role, spec) for role, spec in _mapping(document, "graphs").items()},
            constants={role: _constant(spec) for role, spec in _mapping(document, "constants").items()},
            stills=_choice(document, "stills", ("video", "image")),
            image_candidate_0=_choice(document, "image_candidate_0", ("whole_object", "best_first", None)),
            provenance=_mapping(document, "provenance") if "provenance" in document else {},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BundleError(f"{where}: {error.args[0] if error.args else error}: missing or malformed") from None


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


def _graph(role: str, spec: Any) -> GraphSpec:
    kind = "memcond" if re.fullmatch(r"memcond[1-9][0-9]*", role) else role
    if kind not in ROLES or role == "memcond":
        raise ValueError(f"graphs.{role} (roles are {', '.join(ROLES)}<slots>)")
    graph = GraphSpec(
        file=_file_name(spec),
        nbytes=_optional(spec, "bytes", int),
        sha256=_optional(spec, "sha256", str),
        layout=_choice(spec, "layout", ("flat", "parts")),
        inputs=_parts(spec, "inputs"),
        outputs=_parts(spec, "outputs"),
    )
    for side, needed, parts in zip(("inputs", "outputs"), ROLES[kind], (graph.inputs, graph.outputs), strict=True):
        if lacking := set(needed) - {part.name for part in parts}:
            raise ValueError(f"graphs.{role}.{side}: part {', '.join(sorted(lacking))}")
    return graph


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
