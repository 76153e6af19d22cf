"""Output folders as runs leave them, written through the journal without a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner, Result

from labeler import masks, outputs
from labeler.cli import app
from labeler.journal import Header, Journal, JournalReader
from labeler.types import Annotation, Record

HEIGHT, WIDTH = 20, 30


def rectangle(left: int, top: int, width: int, height: int, *, hole: bool = False) -> Any:
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[top : top + height, left : left + width] = True
    if hole:
        mask[top + height // 2, left + width // 2] = False
    return mask


def annotation(mask_hw: Any, object_id: int = 1, **fields: Any) -> Annotation:
    encoded = masks.encode_mask(mask_hw)
    values: dict[str, Any] = {
        "category": "thing",
        "frame": 0,
        "predicted_iou": 0.9,
        "stability": 0.95,
        "object_score": 4.0,
        "visible": True,
        "candidate": 1,
        "selection": "best_predicted_iou",
        "points": (),
    }
    return Annotation(object_id=object_id, rle=encoded.rle, area=encoded.area, bbox=encoded.bbox, **(values | fields))


def done(key: str, annotations: Sequence[Annotation] = (), *, frame: int = 0, **fields: Any) -> Record:
    values: dict[str, Any] = {"seconds": 0.1, "height": HEIGHT, "width": WIDTH} | fields
    return Record(key, frame, f"print of {key}", "done", annotations=tuple(annotations), **values)


def failed(key: str, error: str, *, frame: int = 0) -> Record:
    return Record(key, frame, f"print of {key}", "failed", error=error)


def write(folder: Path, records: Sequence[Record], *, kind: str = "images", run: dict[str, Any] | None = None) -> Path:
    """A journal and annotations.json; with `run` also run.json, as after a run that came to its end."""
    with Journal(folder, Header(kind, "0.1.0", "b" * 64, {})) as journal:
        for record in records:
            journal.append(record)
        with JournalReader(journal.path) as reader:
            outputs.write_annotations(folder, journal, reader, categories=None)
    if run is not None:
        outputs.write_run(folder, run)
    return folder


def command(*arguments: object) -> Result:
    """A command in this process; errors come out as they are."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def document(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / outputs.ANNOTATIONS).read_text(encoding="utf-8"))
    return loaded
