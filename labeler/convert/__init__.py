"""A PyTorch SAM 2.1 checkpoint becomes a bundle, proven equal. Needs `pip install 'sam2label[convert]'`.

Nothing else in this package imports this one.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from labeler.bundle import Bundle
from labeler.convert.options import ConvertOptions
from labeler.errors import ConvertError

if TYPE_CHECKING:
    from labeler.convert.parity import GraphParity

__all__ = ["ConvertOptions", "convert", "verify_export"]

EXTRA = ("torch", "transformers", "litert_torch", "ai_edge_quantizer")


def convert(
    checkpoint: Path, out: Path, *, options: ConvertOptions | None = None, progress: Callable[[str], None]
) -> Bundle:
    """Export a local transformers SAM 2.1 checkpoint folder as a bundle in the new folder `out`.

    `progress` takes one line per graph. `out` appears whole or not at all. Raises ConvertError for another
    model's or an incomplete checkpoint, an `out` that is not new, a full disk, or a missing extra.
    """
    require_extra()
    from labeler.convert.exporter import export

    return export(checkpoint, out, options=options or ConvertOptions(), progress=progress)


def verify_export(bundle_folder: Path, checkpoint: Path, *, progress: Callable[[str], None]) -> list[GraphParity]:
    """Run every graph of a bundle against the checkpoint's own modules, on noise and on a picture.

    Raises ConvertError if the extra is missing or the checkpoint cannot be loaded, BundleError for a damaged bundle;
    how well they agree is in the results (`GraphParity.equal`).
    """
    require_extra()
    from labeler.convert.parity import verify

    return verify(bundle_folder, checkpoint, progress=progress)


def require_extra() -> None:
    """Raise ConvertError naming the packages of the extra that are not installed."""
    if missing := [name for name in EXTRA if find_spec(name) is None]:
        raise ConvertError(f"{', '.join(missing)} not installed; run: pip install 'sam2label[convert]'")
