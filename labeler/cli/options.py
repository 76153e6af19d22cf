"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

Out: TypeAlias = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder for the labels.  [default: PATH-labels beside PATH]")
]
Model: TypeAlias = Annotated[
    str | None,
    typer.Option("--model", help="Bundle folder or name.  [default: sam2.1-hiera-tiny if installed, else mini]"),
]
ModelsDir: TypeAlias = Annotated[
    Path | None, typer.Option("--models-dir", envvar="SAM2LABEL_MODELS_DIR", help="Where bundles are installed.")
]
ExifOption: TypeAlias = Annotated[
    Literal["apply", "ignore"], typer.Option("--exif", help="Whether seeds and masks follow the EXIF orientation.")
]
MaxPixels: TypeAlias = Annotated[int, typer.Option("--max-pixels", min=1, help="Larger pictures fail.")]
Workers: TypeAlias = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes.  [default: one per core, as memory allows]")
]
Threads: TypeAlias = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads of each worker's graphs.  [default: cores / workers]")
]
Accelerator: TypeAlias = Annotated[
    Literal["cpu", "gpu", "auto"],
    typer.Option(
        "--accelerator", help="gpu: every graph must match the CPU, else an error; auto: use those that match."
    ),
]
RetryFailed: TypeAlias = Annotated[bool, typer.Option("--retry-failed", help="Try failed items again.")]
Restart: TypeAlias = Annotated[bool, typer.Option("--restart", help="Move the labels in OUT aside and begin anew.")]
Categories: TypeAlias = Annotated[
    Path | None, typer.Option("--categories", help="JSON list of names, or of {id, name}: fixes the category ids.")
]
