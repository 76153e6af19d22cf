"""Command line: options in, one library call, text and exit code out."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from labeler import __version__
from labeler.cli import convert, doctor, label, models, outputs
from labeler.cli.errors import InterruptError, explained


class Interruptible(TyperGroup):
    """Takes Ctrl-C before the framework does, which would say nothing, or exit with 1 in its older versions."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise InterruptError from None


app = typer.Typer(
    cls=Interruptible,
    name="sam2label",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # which would swallow what stands in brackets
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 all done; 1 finished, some items failed; 2 bad usage, input or output folder; "
    "3 a bug; 130 interrupted, the journal is intact.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sam2label {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Turn folders of pictures and clips plus a few seed points into dataset annotations."""


app.command("images")(label.images)
app.command("videos")(label.videos)
app.command("export")(outputs.export)
app.command("report")(outputs.report)
app.command("validate")(outputs.validate)
app.command("doctor")(doctor.doctor)
app.command("convert")(convert.convert)
app.command("verify-export")(convert.verify_export)
app.add_typer(models.app, name="models")


def main() -> None:
    """The console script."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # a picture's faults are in its record, libraries' warnings are for programmers
    with explained():
        app()
