"""Where bundles come from: a folder, the package itself, the folder of installed bundles, or the hub."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from labeler import bundle as bundles
from labeler import download
from labeler.bundle import DESCRIPTOR, Bundle
from labeler.errors import BundleError

PREFERRED = "sam2.1-hiera-tiny"
SHIPPED = "mini"
_PACKAGE = Path(__file__).parent
_PUBLISHED = _PACKAGE / "published"

_GROUPS: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (("image_encode", "image_decode"), (), ("image_prompt",)),
    (("encode", "decode"), (), ("prompt",)),
    (
        ("memorize", "memcond"),
        ("encode", "decode"),
        ("prompt", "track_sparse", "temporal", "no_object_pointer", "pointer_time"),
    ),
)
"""Graphs of use only together; other graphs they need; constants they need. "memcond": any one of the memory graphs."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A bundle whose files were all hashed, and what the person should be told about the choice."""

    bundle: Bundle
    notice: str | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """One line of `models list`. `fault` is the first thing wrong with a damaged bundle."""

    name: str
    state: Literal["shipped", "installed", "damaged", "available"]
    folder: Path | None
    version: str
    license: str
    origin: str
    fault: str | None = None


def default_models_dir() -> Path:
    """The folder of installed bundles, where this system keeps a program's data."""
    from platformdirs import user_data_path

    return user_data_path("sam2label", appauthor=False) / "models"


def resolve(model: str | Path | None, *, models_dir: Path) -> Resolved:
    """Find a bundle, check all its files, and lock their hashes.

    `model`: a folder with bundle.json or with published files, or the name of a shipped or installed bundle. None:
    SAM 2.1 Hiera-Tiny if it is installed, else the small bundle that ships, with a notice. Never touches the
    network. Raises BundleError.
    """
    if model is None:
        return _default(models_dir)
    folder = Path(model)
    if folder.is_dir() and (isinstance(model, Path) or _holds_graphs(folder)):
        return Resolved(bundles.verify(_load_folder(folder)))
    if found := _folder_of(str(model), models_dir):
        return Resolved(bundles.verify(bundles.load(found)))
    raise BundleError(_unknown(str(model), models_dir))


def known(models_dir: Path) -> list[Known]:
    """Every bundle that ships, is installed, or can be pulled. Reads descriptions and sizes, not hashes."""
    shipped = [_describe(folder, "shipped") for folder in _bundle_folders(_shipped_dir())]
    installed = [_describe(folder, "installed") for folder in _bundle_folders(models_dir)]
    here = {entry.name for entry in (*shipped, *installed)}
    documents = (_published(name) for name in _pullable() if name not in here)
    available = [Known(d["name"], "available", None, d["version"], d["license"], d["origin"]) for d in documents]
    return [*shipped, *installed, *available]


def pull(name: str, *, models_dir: Path, progress: Callable[[str], None]) -> Bundle:
    """Install a published bundle: download, check, lock the hashes, and put the finished folder in place.

    A good installation is left alone; a damaged one is moved aside. Honours the cache, mirror and offline settings
    of huggingface_hub. Raises BundleError saying what to do.
    """
    if found := _folder_of(name, models_dir, installed=False):
        progress(f"{name} ships with sam2label: nothing to pull")
        return bundles.verify(bundles.load(found))
    if name not in _pullable():
        raise BundleError(_unknown(name, models_dir))
    with download.exclusive(models_dir, name):
        if (good := _good(models_dir / name)) is not None:
            progress(f"{name} is already installed in {models_dir / name}")
            return good
        return _install(_published(name), models_dir / name, progress)


def _install(document: dict[str, Any], target: Path, progress: Callable[[str], None]) -> Bundle:
    wanted = bundles.parse(document, folder=target, where=document["name"])
    with download.building(target) as folder:
        origin = download.fetch(wanted.origin, wanted.files(), folder, progress=progress)
        here = replace(wanted, folder=folder, provenance={**wanted.provenance, **origin})
        locked = bundles.lock(bundles.check(here))
        description = json.dumps(bundles.describe(locked), indent=1, sort_keys=True)
        (folder / DESCRIPTOR).write_text(description + "\n", encoding="utf-8")
        if (aside := download.put(folder, target)) is not None:
            progress(f"what was in {target} was damaged and is now in {aside}")
    progress(f"{wanted.name} is installed in {target}")
    return replace(locked, folder=target)


def _default(models_dir: Path) -> Resolved:
    if (folder := models_dir / PREFERRED).is_dir():
        return Resolved(bundles.verify(bundles.load(folder)))
    return Resolved(
        bundles.verify(bundles.load(_shipped_dir() / SHIPPED)),
        f"using the small bundle {SHIPPED!r} that ships with sam2label, good for trying things out; "
        f"for real work install SAM 2.1 once: sam2label models pull {PREFERRED}",
    )


def _load_folder(folder: Path) -> Bundle:
    if (folder / DESCRIPTOR).exists():
        return bundles.load(folder)
    return bundles.check(_reduce(bundles.parse(_published(PREFERRED), folder=folder, where=str(folder))))


def _reduce(full: Bundle) -> Bundle:
    """Keep the roles whose files are there. Raises BundleError listing what half a group lacks."""
    graphs = {role: spec for role, spec in full.graphs.items() if (full.folder / spec.file).exists()}
    wanted = [group for group in _GROUPS if any(_is(role, kind) for role in graphs for kind in group[0])]
    if not wanted:
        names = ", ".join(spec.file for spec in full.graphs.values())
        raise BundleError(f"{full.folder}: holds neither {DESCRIPTOR} nor graphs of SAM 2.1 ({names})")
    missing: dict[str, str] = {}
    for kinds, others, constants in wanted:
        there = ", ".join(spec.file for role, spec in graphs.items() if any(_is(role, kind) for kind in kinds))
        for file in _missing(full, graphs, (*kinds, *others), constants):
            missing.setdefault(file, f"{full.folder}: {file} is missing, which {there} needs; copy it there too")
    if missing:
        raise BundleError(list(missing.values()))
    needed = {role for _, _, constants in wanted for role in constants}
    return replace(full, graphs=graphs, constants={role: full.constants[role] for role in sorted(needed)})


def _missing(full: Bundle, graphs: dict[str, Any], kinds: tuple[str, ...], constants: tuple[str, ...]) -> list[str]:
    lacking = [kind for kind in kinds if not any(_is(role, kind) for role in graphs)]
    files = [" or ".join(spec.file for role, spec in full.graphs.items() if _is(role, kind)) for kind in lacking]
    specs = [full.constants[role] for role in constants]
    return files + [spec.file for spec in specs if not (full.folder / spec.file).exists()]


def _is(role: str, kind: str) -> bool:
    return role.startswith(kind) if kind == "memcond" else role == kind


def _holds_graphs(folder: Path) -> bool:
    return (folder / DESCRIPTOR).exists() or any(folder.glob("*.tflite"))


def _shipped_dir() -> Path:
    """In a wheel the bundles lie inside the package, in a checkout beside it."""
    inside = _PACKAGE / "models"
    return inside if inside.is_dir() else _PACKAGE.parent / "models"


def _bundle_folders(parent: Path) -> list[Path]:
    return sorted(path.parent for path in parent.glob(f"[!.]*/{DESCRIPTOR}"))


def _folder_of(name: str, models_dir: Path, *, installed: bool = True) -> Path | None:
    parents = (_shipped_dir(), models_dir) if installed else (_shipped_dir(),)
    return next((folder for parent in parents for folder in _bundle_folders(parent) if folder.name == name), None)


def _pullable() -> list[str]:
    return sorted(path.stem for path in _PUBLISHED.glob("*.json"))


def _published(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((_PUBLISHED / f"{name}.json").read_text(encoding="utf-8"))
    return document


def _describe(folder: Path, state: Literal["shipped", "installed"]) -> Known:
    try:
        found = bundles.load(folder)
    except BundleError as error:
        return Known(folder.name, "damaged", folder, "", "", "", error.faults[0])
    return Known(folder.name, state, folder, found.version, found.license, found.origin)


def _good(folder: Path) -> Bundle | None:
    try:
        return bundles.verify(bundles.load(folder))
    except BundleError:
        return None


def _unknown(name: str, models_dir: Path) -> str:
    entries = known(models_dir)
    near = difflib.get_close_matches(name, [entry.name for entry in entries], n=1, cutoff=0.5)
    here = ", ".join(entry.name for entry in entries if entry.state != "available")
    pullable = ", ".join(entry.name for entry in entries if entry.state == "available")
    guess = f"; did you mean {near[0]!r}?" if near else ""
    there = f"; to install: sam2label models pull {pullable}" if pullable else ""
    if Path(name).is_dir():
        return f"{name}: holds no bundle ({DESCRIPTOR} or .tflite files){there}"
    if name in _pullable():
        return f"{name} is not installed{there}"
    return f"{name}: is neither a folder nor a bundle{guess}; here are: {here}{there}"
