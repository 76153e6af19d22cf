"""Imports go down the table only: never up, never sideways inside a row. Heavy packages load on first use."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import labeler

CODE = Path(labeler.__file__).parent
ROWS = [
    "errors flatbuffer jsonstream preprocess runlengths suspicion toplists types",
    "agreement bundle files journal masks memory passes prompts seeds sources validate workers",
    "annotate download export frames runtime sam2",
    "hub outputs segment",
    "report runs track",
    "accelerator clip",
    "model snapshots",
    "images provenance",
    "clips plan",
    "clip_plan library",
    "pipeline",
    "doctor",
    "cli",
    "__main__",
]
"""From the bottom up. A name is a module or a folder of modules, `labeler/__init__.py` itself is below all."""

APART = {"convert": {"bundle", "errors", "labeler", "runtime", "types", "workers"}}
"""Rooms that only the command line enters, lazily, and what they may use of the rest."""

OWNERS = {
    "PIL": {"export", "preprocess", "sources"},
    "ai_edge_litert": {"runtime"},
    "av": {"sources"},
    "filelock": {"download", "journal"},
    "huggingface_hub": {"download"},
    "platformdirs": {"hub"},
    "psutil": {"workers"},
    "pycocotools": {"masks"},
    "tqdm": {"cli"},
    "typer": {"cli"},
}
"""The one place (or for small ones, the few) where a third-party package is imported. numpy is everywhere."""

CHEAP = {"PIL", "ai_edge_litert", "av", "huggingface_hub", "pycocotools", "torch", "tqdm", "typer"}


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement's target, as seen from one module."""

    by: str
    """Importing module, dotted."""
    of: str
    """Imported module, dotted."""
    lazy: bool
    """Inside a function."""

    @property
    def unit(self) -> str:
        return unit(self.by)

    @property
    def package(self) -> str:
        return self.of.partition(".")[0]


def unit(module: str) -> str:
    """`labeler.seeds.native` belongs to `seeds`; the package itself is `labeler`."""
    return module.split(".")[1] if "." in module else module


@functools.cache
def modules() -> dict[str, Path]:
    found = {}
    for path in CODE.rglob("*.py"):
        parts = path.relative_to(CODE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def imports() -> tuple[Import, ...]:
    """All imports that run; those for the type checker alone do not."""
    return tuple(
        each for name, path in modules().items() for each in _within(name, ast.parse(path.read_bytes()), lazy=False)
    )


def _within(name: str, node: ast.AST, *, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (Import(name, alias.name, lazy) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.module, f"{name}: imports are absolute"
            for alias in child.names:
                inner = f"{child.module}.{alias.name}"
                yield Import(name, inner if inner in modules() else child.module, lazy)
        yield from _within(name, child, lazy=lazy or isinstance(child, ast.FunctionDef))


HEIGHT = {name: number for number, row in enumerate(ROWS) for name in row.split()} | {"labeler": -1}


def test_every_module_has_its_place() -> None:
    assert {unit(name) for name in modules()} == HEIGHT.keys() | APART.keys()


def test_imports_go_down_only() -> None:
    inner = [each for each in imports() if each.package == "labeler" and not {each.unit, unit(each.of)} & APART.keys()]
    wrong = [each for each in inner if unit(each.of) != each.unit and HEIGHT[unit(each.of)] >= HEIGHT[each.unit]]
    assert not wrong
    assert len(inner) > 100, "the imports were not found"


def test_rooms_apart_are_entered_lazily_by_the_command_line_only() -> None:
    inner = [each for each in imports() if each.package == "labeler"]
    assert not [each for each in inner if unit(each.of) in APART and each.unit != unit(each.of) and each.unit != "cli"]
    assert not [each for each in inner if unit(each.of) in APART and each.unit == "cli" and not each.lazy]
    for room, allowed in APART.items():
        assert {unit(each.of) for each in inner if each.unit == room} <= allowed | {room}


def test_inside_a_folder_there_are_no_circles() -> None:
    below = {name: {each.of for each in imports() if each.by == name and not each.lazy} for name in modules()}
    done: set[str] = set()
    while ready := {name for name in below.keys() - done if not (below[name] & below.keys()) - done - {"labeler"}}:
        done |= ready
    assert below.keys() == done, "these import one another"


def test_each_third_party_package_has_one_home() -> None:
    known = OWNERS.keys() | sys.stdlib_module_names | {"labeler", "numpy"}
    foreign = [each for each in imports() if each.unit not in APART]
    assert not [each for each in foreign if each.package not in known]
    homes = {package: {each.unit for each in foreign if each.package == package} for package in OWNERS}
    assert {package: found - OWNERS[package] for package, found in homes.items() if found - OWNERS[package]} == {}


def loaded_by(statement: str) -> set[str]:
    """Top-level packages in a fresh interpreter after a statement."""
    code = (
        f"import json, sys\n{statement}\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout))


def test_importing_the_package_is_cheap() -> None:
    assert "labeler" in (loaded := loaded_by("import labeler; dir(labeler)"))
    assert not loaded & (CHEAP | {"numpy"})


@pytest.mark.parametrize("name", labeler.__all__)
def test_each_public_name_is_there_and_alone_loads_no_model_library(name: str) -> None:
    loaded = loaded_by(f"import labeler; assert labeler.{name} is getattr(labeler, {name!r})")
    assert not loaded & {"ai_edge_litert", "av", "huggingface_hub", "pycocotools", "torch", "tqdm", "typer"}


def test_the_command_line_loads_no_model_library_before_it_needs_one() -> None:
    assert not loaded_by("import labeler.cli") & {"ai_edge_litert", "av", "huggingface_hub", "pycocotools", "torch"}


def test_a_misspelled_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="label_image"):
        labeler.label_image  # noqa: B018
