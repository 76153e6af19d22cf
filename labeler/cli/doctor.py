"""`sam2label doctor`."""

from __future__ import annotations

import typer

from labeler import doctor as examination
from labeler import hub
from labeler.cli.errors import FAILED_ITEMS
from labeler.cli.options import Accelerator, Model, ModelsDir


def doctor(model: Model = None, models_dir: ModelsDir = None, accelerator: Accelerator = "auto") -> None:
    """Check versions, machine, bundles and accelerators, and label a test picture. Exit code 1 if anything is wrong."""
    findings = examination.examine(model, models_dir=models_dir or hub.default_models_dir(), device=accelerator)
    bad = 0
    for finding in findings:
        bad += not finding.good
        typer.echo(f"{'ok  ' if finding.good else 'BAD '} {finding.subject}: {finding.text}")
    if bad:
        raise typer.Exit(FAILED_ITEMS)
