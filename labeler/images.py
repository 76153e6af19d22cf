"""One picture file, or one array, becomes one record."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from labeler import seeds as seed_files
from labeler.bundle import Bundle
from labeler.errors import LabelerError, SeedError, SourceError
from labeler.model import ModelSpec
from labeler.sam2 import Sam2
from labeler.segment import Keep, segment
from labeler.sources.arrays import array_picture
from labeler.sources.digests import clip_sha256
from labeler.sources.pictures import MAX_PIXELS, Exif, Picture, read_picture
from labeler.types import Annotation, Item, Record, Rgb, Seed

UNREADABLE = "unreadable"
"""Stands for the hash of a file that cannot be read, so that it is tried again once it can."""


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How pictures are read and what is kept of them."""

    exif: Exif = "apply"
    keep: Keep = "best"
    max_pixels: int = MAX_PIXELS

    def decisive(self) -> dict[str, Any]:
        """The options that change masks."""
        return {"exif": self.exif, "candidates": self.keep}


@dataclass(frozen=True, slots=True)
class ImageTask:
    """A picture and what was said about it."""

    item: Item
    seeds: tuple[Seed, ...]


class ImageLabeler:
    """Labels pictures one by one; picklable, loads its model on first use (once per process)."""

    def __init__(self, model: ModelSpec | Sam2, options: ImageOptions | None = None) -> None:
        self.options = options or ImageOptions()
        self._spec = model if isinstance(model, ModelSpec) else None
        self._sam2 = None if isinstance(model, ModelSpec) else model

    def __getstate__(self) -> dict[str, Any]:
        if self._spec is None:
            raise TypeError("an ImageLabeler around a loaded model cannot be pickled; give it a ModelSpec")
        return self.__dict__ | {"_sam2": None}

    def __call__(self, picture: str | Path | Rgb, seeds: Sequence[Seed], *, key: str | None = None) -> Record:
        """Label a picture file, or a uint8 RGB array [height, width, 3].

        A picture that cannot be read or labelled gives a record with status "failed" and the reason in `error`.
        Raises BundleError if the model cannot be loaded; for an array SeedError if seeds lie outside it, SourceError if
        it is no RGB picture.
        """
        if isinstance(picture, str | Path):
            path = Path(picture)
            return self.label(ImageTask(Item(key or path.name, path), tuple(seeds)))
        upright = array_picture(picture)
        where = key or "array"
        if faults := seed_files.check_inside(seeds, height=upright.height, width=upright.width, where=where):
            raise SeedError(faults)
        return self._finish(Record(where, 0, "", "done"), seeds, lambda: upright)

    def label(self, task: ImageTask) -> Record:
        """Label one file. Whatever goes wrong with it is told in its record."""
        path, options = task.item.path, self.options
        blank = Record(task.item.key, 0, self.fingerprint(task), "done")
        read = partial(read_picture, path, exif=options.exif, max_pixels=options.max_pixels)
        return self._finish(blank, task.seeds, read)

    def stream(self, task: ImageTask) -> Iterator[Record]:
        """`label` in the form that `workers.run` takes."""
        yield self.label(task)

    def fingerprint(self, task: ImageTask, content: str | None = None) -> str:
        """sha256 over the file (or its known hash), its seeds, the bundle and the options that change masks."""
        content = content or content_identity(task.item.path)
        return fingerprint(content, task.seeds, self.bundle, self.options.decisive())

    @property
    def bundle(self) -> Bundle:
        """The bundle that labels."""
        return self._spec.bundle if self._spec is not None else self.sam2.runtime.bundle

    @property
    def sam2(self) -> Sam2:
        """The loaded model."""
        if self._sam2 is None:
            assert self._spec is not None
            self._sam2 = self._spec.load()
        return self._sam2

    def _finish(self, blank: Record, seeds: Sequence[Seed], read: Callable[[], Picture]) -> Record:
        sam2, started = self.sam2, time.perf_counter()
        try:
            picture = read()
            if faults := seed_files.check_inside(seeds, height=picture.height, width=picture.width, where=blank.key):
                raise SeedError(faults)
            record = replace(
                blank,
                height=picture.height,
                width=picture.width,
                exif_orientation=picture.exif_orientation,
                notes=picture.notes,
                annotations=tuple(self._annotations(picture, seeds, sam2)),
            )
        except Exception as error:  # noqa: BLE001  # one bad picture never stops a run; its record tells
            record = replace(blank, status="failed", error=reason(error))
        return replace(record, seconds=round(time.perf_counter() - started, 4))

    def _annotations(self, picture: Picture, seeds: Sequence[Seed], sam2: Sam2) -> Iterator[Annotation]:
        return segment(
            picture.image,
            seeds,
            sam2,
            height=picture.height,
            width=picture.width,
            orientation=picture.orientation,
            keep=self.options.keep,
        )


def reason(error: Exception) -> str:
    """One line for a record: our own errors speak for themselves, others are named."""
    text = "; ".join(str(error).splitlines())
    return text if isinstance(error, LabelerError) else f"unexpected {type(error).__name__}: {text}"


def fingerprint(content: str, seeds: Sequence[Seed], bundle: Bundle, options: Mapping[str, Any]) -> str:
    """sha256 over everything that decides an item's masks."""
    parts = (content, seed_files.canonical(seeds), bundle.digest, json.dumps(options, sort_keys=True))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def content_identity(path: Path) -> str:
    """sha256 of a picture's or clip's bytes, or UNREADABLE."""
    try:
        return clip_sha256(path)
    except SourceError:
        return UNREADABLE
