"""Model bundles: their description, its JSON document, their files."""

from labeler.bundle.description import (
    DESCRIPTOR,
    SCHEMA,
    Bundle,
    ConstantSpec,
    FileSpec,
    GraphSpec,
    Part,
    describe,
)
from labeler.bundle.document import parse
from labeler.bundle.files import check, load, lock, read_constant, verify

__all__ = [
    "DESCRIPTOR",
    "SCHEMA",
    "Bundle",
    "ConstantSpec",
    "FileSpec",
    "GraphSpec",
    "Part",
    "check",
    "describe",
    "load",
    "lock",
    "parse",
    "read_constant",
    "verify",
]
