"""The values that travel between rooms: frozen, and JSON-ready wherever they reach the journal.

Array names carry their axes: n = candidates or points, c = channels, h = rows, w = columns.
Sizes are always `height, width`, in that order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from labeler.bundle import Bundle

Array: TypeAlias = NDArray[np.floating[Any]]
Mask: TypeAlias = NDArray[np.bool_]
Rgb: TypeAlias = NDArray[np.uint8]
"""RGB picture [height, width, 3]."""

Box: TypeAlias = tuple[float, float, float, float]
"""x1, y1, x2, y2 in pixels of the upright image."""


@dataclass(frozen=True, slots=True)
class Point:
    """A click in pixels of the upright image: x to the right, y down; (0, 0) is the top-left pixel."""

    x: float
    y: float
    positive: bool = True


@dataclass(frozen=True, slots=True)
class Seed:
    """What a person said about one object on one frame (frame 0 for a picture)."""

    object_id: int
    points: tuple[Point, ...]
    category: str = "object"
    frame: int = 0
    box: Box | None = None
    time_s: float | None = None
    """Set instead of `frame` when the file gave a time; the clip reader turns it into a frame."""


@dataclass(frozen=True, slots=True)
class Item:
    """One input: `key` is its posix path relative to the root, extension kept, so keys never collide."""

    key: str
    path: Path


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """What one encode gives; lives for one loop body. Arrays are read-only."""

    pix_chw: Array
    """[256, 64, 64]"""
    hi0_chw: Array
    """[32, 256, 256]"""
    hi1_chw: Array
    """[64, 128, 128]"""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What one decode gives. None means that this decoder has no such output."""

    logits_nhw: Array
    """[n, 256, 256]; n = 4 (candidate 0 is the single-mask output) or 3 (image-only decoder)."""
    iou_n: Array | None
    pointers_nc: Array | None
    object_score: float | None


@dataclass(frozen=True, slots=True)
class Annotation:
    """One object on one frame, JSON-ready."""

    object_id: int
    category: str
    frame: int
    rle: Mapping[str, Any]
    """COCO compressed RLE: {"size": [height, width], "counts": str}."""
    area: int
    """Mask pixels."""
    bbox: tuple[float, float, float, float]
    """Tight box x, y, width, height; all zero for an empty mask."""
    predicted_iou: float | None
    stability: float
    object_score: float | None
    visible: bool
    candidate: int
    selection: str
    """The rule that chose the candidate: see `prompts.choose` and `segment`."""
    points: tuple[tuple[float, float, int], ...]
    """The seed's points as x, y, label (1 positive, 0 negative); empty on tracked frames."""
    box: Box | None = None
    chosen: bool = True
    """False for the runners-up that `--candidates all` adds."""


WHOLE_CLIP = -1
"""Frame number of the record that says how a clip ended."""


def frame_name(key: str, frame: int) -> str:
    """Where a clip's frame belongs, e.g. `walk/cat.mp4/00012.jpg`. The clip's whole key: names never collide."""
    return f"{key}/{frame:05d}.jpg"


@dataclass(frozen=True, slots=True)
class Record:
    """One journal line: a picture, one frame of a clip, or a clip as a whole (frame WHOLE_CLIP)."""

    key: str
    frame: int
    fingerprint: str
    status: Literal["done", "failed"]
    height: int = 0
    width: int = 0
    error: str | None = None
    annotations: tuple[Annotation, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    time_s: float | None = None
    """Presentation time of a clip's frame."""
    exif_orientation: int = 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State from which an interrupted clip goes on; saved after the records that it covers."""

    name: str
    """File name in the output folder."""
    content: bytes | None
    """None: the clip is at its end, the file can go."""


class Runtime(Protocol):
    """Runs the graphs of one bundle.

    `run(graph, **parts)` takes the graph's input parts by the names of its `GraphSpec`, shaped as described
    there, and returns its output parts by name. Inputs must not be changed after they were handed over: an
    array that is the same object as in the graph's previous run is not copied again.
    """

    @property
    def bundle(self) -> Bundle: ...

    def run(self, graph: str, /, **parts: Array) -> dict[str, Array]: ...
