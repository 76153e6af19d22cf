"""Which files and folders below a root are inputs.

Both scans go through all folders, follow links (a folder that lies inside itself is entered once), leave out hidden
names (a leading dot: .DS_Store, the ._x.jpg of archives, .git) and give items in natural order (2 before 10). A root
that is itself a file is the one item, whatever its name. What cannot be looked into is a fault, never silence.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from labeler.errors import SourceError, UsageError
from labeler.sources.formats import ANIMATED_EXTENSIONS, is_picture_name, is_video_name
from labeler.types import Item


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan found."""

    items: tuple[Item, ...]
    faults: tuple[tuple[str, str], ...] = ()
    """Key and reason of each folder that cannot be read and each name that cannot be written down."""
    others: tuple[tuple[str, int], ...] = ()
    """Extension (lower case) and count of the visible files that are not inputs."""


@dataclass(slots=True)
class Folder:
    """The visible entries of one folder, in natural order."""

    path: Path
    key: str
    """Relative to the root, "" for the root itself."""
    files: tuple[str, ...]
    folders: tuple[str, ...]

    def item(self, name: str) -> Item:
        return Item(_join(self.key, name), self.path / name)


@dataclass(slots=True)
class Walk:
    """Goes through a tree and collects faults on the way."""

    root: Path
    faults: list[tuple[str, str]] = field(default_factory=list)

    def folders(self) -> Iterator[Folder]:
        """Every readable folder, a folder before those inside it."""
        yield from self._below(self.root, "", frozenset())

    def _below(self, path: Path, key: str, above: frozenset[tuple[int, int]]) -> Iterator[Folder]:
        try:
            identity = path.stat().st_dev, path.stat().st_ino
            if identity in above:
                return
            files, folders = self._entries(path, key)
        except OSError as error:
            self.faults.append((key or ".", f"cannot be read: {error.strerror}"))
            return
        yield Folder(path, key, files, folders)
        for name in folders:
            yield from self._below(path / name, _join(key, name), above | {identity})

    def _entries(self, path: Path, key: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        files: list[str] = []
        folders: list[str] = []
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if not _is_text(entry.name):
                    self.faults.append((_join(key, printable(entry.name)), "the name is not valid UTF-8: rename it"))
                else:
                    (folders if _is_folder(entry) else files).append(entry.name)
        return tuple(sorted(files, key=natural_key)), tuple(sorted(folders, key=natural_key))


def find_pictures(root: Path) -> Scan:
    """All files below `root` whose extension Pillow decodes (`formats.PICTURE_FORMATS`), keys relative to `root`.

    Raises UsageError where `root` is missing or cannot be read.
    """
    check_root(root)
    if not root.is_dir():
        return Scan((Item(root.name, root),))
    walk, items, others = Walk(root), list[Item](), Counter[str]()
    for folder in walk.folders():
        items += [folder.item(name) for name in folder.files if is_picture_name(name)]
        others.update(PurePosixPath(name).suffix.lower() for name in folder.files if not is_picture_name(name))
    return Scan(_in_order(items), tuple(walk.faults), tuple(sorted(others.items())))


def find_clips(root: Path) -> Scan:
    """Clips below `root`: video files (`formats.VIDEO_FORMATS`), animated pictures, and folders of frames.

    A folder is one clip, with the folder's path for key, where it holds still pictures, no video or animation, and no
    clip anywhere below it; `root` itself may be one, under its own name. Raises UsageError as `find_pictures`.
    """
    check_root(root)
    if not root.is_dir():
        return Scan((Item(root.name, root),))
    walk, items, others, parents = Walk(root), list[Item](), Counter[str](), set[str]()
    for folder in reversed(list(walk.folders())):
        found, used = _clips_in(folder, alone=folder.key not in parents)
        if found or folder.key in parents:
            parents.add(folder.key.rpartition("/")[0])
        items += found
        others.update(PurePosixPath(name).suffix.lower() for name in folder.files if name not in used)
    return Scan(_in_order(items), tuple(walk.faults), tuple(sorted(others.items())))


def frame_files(folder: Path) -> tuple[Path, ...]:
    """The pictures of a folder of frames in natural order, hidden names left out. Raises SourceError."""
    try:
        names = [name.name for name in folder.iterdir() if not name.name.startswith(".")]
    except OSError as error:
        raise SourceError(error.strerror or str(error)) from error
    return tuple(folder / name for name in sorted(names, key=natural_key) if is_picture_name(name))


def _clips_in(folder: Folder, *, alone: bool) -> tuple[list[Item], set[str]]:
    """The clips of one folder, and the file names that they and their seeds take up."""
    seeds = {name for name in folder.files if name == "seeds.json" or name.endswith(".seeds.json")}
    moving = [name for name in folder.files if is_video_name(name) or _is_animation(folder.path / name)]
    stills = {name for name in folder.files if is_picture_name(name)}
    if moving or not stills or not alone:
        return [folder.item(name) for name in moving], seeds | set(moving)
    return [Item(folder.key or folder.path.resolve().name, folder.path)], seeds | stills


def _is_animation(path: Path) -> bool:
    if path.suffix.lower() not in ANIMATED_EXTENSIONS:
        return False
    from labeler.sources.animation import is_animated

    return is_animated(path)


def check_root(root: Path) -> None:
    """Raises UsageError where `root` is missing, cannot be read, or has a name that cannot be written down."""
    try:
        if root.is_dir():
            os.scandir(root).close()
        else:
            root.stat()
    except OSError as error:
        raise UsageError(f"{printable(str(root))}: {error.strerror}") from error
    if not _is_text(root.name):
        raise UsageError(f"{printable(str(root))}: the name is not valid UTF-8: rename it")


def _in_order(items: list[Item]) -> tuple[Item, ...]:
    return tuple(sorted(items, key=lambda item: natural_key(item.key)))


def natural_key(key: str) -> list[tuple[list[tuple[int, int, str]], str]]:
    """Sorts numbers by value inside names, folder by folder, without regard to case; ties by the exact text."""
    return [([_chunk(text) for text in re.split(r"([0-9]+)", part)], part) for part in key.split("/")]


def _chunk(text: str) -> tuple[int, int, str]:
    return (0, int(text), "") if text.isascii() and text.isdigit() else (1, 0, text.casefold())


def printable(name: str) -> str:
    """A name that can be written as UTF-8: bytes that are none appear as \\udcXX."""
    return name.encode("utf-8", "backslashreplace").decode()


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_folder(entry: os.DirEntry[str]) -> bool:
    # A link that leads nowhere, or to itself, is a file: reading it gives the reason.
    try:
        return entry.is_dir()
    except OSError:
        return False


def _join(key: str, name: str) -> str:
    return f"{key}/{name}" if key else name
