"""`sam2label models list | pull | show | verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from labeler import bundle as bundles
from labeler import hub
from labeler.cli.errors import say
from labeler.cli.options import ModelsDir
from labeler.runtime import LiteRtRuntime

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, download, describe and check model bundles.")

Name = Annotated[str, typer.Argument(metavar="NAME|DIR", help="A bundle's name or folder.")]


@app.command("list")
def list_(models_dir: ModelsDir = None) -> None:
    """List the bundles that ship, are installed, or can be pulled."""
    for known in hub.known(models_dir or hub.default_models_dir()):
        place = f" in {known.folder}" if known.folder else ""
        typer.echo(f"{known.name} {known.version}: {known.state}{place} ({known.license}; {known.origin})")


@app.command()
def pull(name: Annotated[str, typer.Argument(help="A name from `models list`.")], models_dir: ModelsDir = None) -> None:
    """Download a bundle, check it, and lock its hashes."""
    pulled = hub.pull(name, models_dir=models_dir or hub.default_models_dir(), progress=say)
    typer.echo(f"{pulled.name}: {pulled.folder}")


@app.command()
def show(name: Name, models_dir: ModelsDir = None) -> None:
    """Print a bundle's description as JSON, hashes included."""
    typer.echo(json.dumps(bundles.describe(_find(name, models_dir)), indent=1, ensure_ascii=False))


@app.command()
def verify(name: Name, models_dir: ModelsDir = None) -> None:
    """Check that every file is there, whole, with the right hash, and that LiteRT loads every graph."""
    found = _find(name, models_dir)
    runtime = LiteRtRuntime(found, threads=1)
    runtime.load(list(found.graphs))
    runtime.close()
    typer.echo(f"{found.name} {found.version}: {len(found.files())} files good, digest {found.digest}")


def _find(name: str, models_dir: Path | None) -> bundles.Bundle:
    return hub.resolve(name, models_dir=models_dir or hub.default_models_dir()).bundle
