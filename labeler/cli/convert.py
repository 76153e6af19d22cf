"""`sam2label convert` and `sam2label verify-export`; both need the extra `sam2label[convert]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from labeler.cli.errors import FAILED_ITEMS, say
from labeler.errors import UsageError

Checkpoint = Annotated[Path, typer.Argument(help="Local folder of a transformers SAM 2.1 checkpoint.")]


def convert(
    checkpoint: Checkpoint,
    out: Annotated[Path, typer.Argument(help="New folder for the bundle.")],
    precision: Annotated[
        Literal["fp32", "fp16", "int8"], typer.Option("--precision", help="How weights are stored.")
    ] = "fp16",
    layout: Annotated[
        Literal["flat", "parts"],
        typer.Option("--layout", help="flat: as published; parts: a tensor per part, as GPUs need it."),
    ] = "flat",
    prompt_tokens: Annotated[
        int,
        typer.Option("--prompt-tokens", help="Sparse tokens of the decoder: points + 1, a box counts as two points."),
    ] = 2,
    mask_input: Annotated[bool, typer.Option("--mask-input", help="Let the decoder take a mask as prompt.")] = False,
    memory_slots: Annotated[
        str, typer.Option("--memory-slots", help="Slot counts of the memory graphs, 1 to 16.")
    ] = "2,7",
    image_pair: Annotated[
        bool, typer.Option("--image-pair/--no-image-pair", help="Also write the image-only encoder and decoder.")
    ] = True,
    name: Annotated[str | None, typer.Option("--name", help="Name of the bundle.  [default: after its size]")] = None,
) -> None:
    """Turn a PyTorch SAM 2.1 checkpoint (tiny, small, base-plus, large) into a bundle."""
    from labeler.convert import ConvertOptions
    from labeler.convert import convert as export

    options = ConvertOptions(
        precision, layout, prompt_tokens, mask_input, _slots(memory_slots), image_pair=image_pair, name=name
    )
    bundle = export(checkpoint, out, options=options, progress=say)
    say(f"{bundle.name}: use it with --model {out}; check it with sam2label verify-export {out} {checkpoint}")


def verify_export(
    bundle: Annotated[Path, typer.Argument(help="Folder of the bundle.")],
    checkpoint: Checkpoint,
) -> None:
    """Run every graph of a bundle against the checkpoint in PyTorch. Exit code 1 if one does not agree."""
    from labeler.convert import verify_export as verify

    results = verify(bundle, checkpoint, progress=typer.echo)
    if not all(result.equal for result in results):
        raise typer.Exit(FAILED_ITEMS)


def _slots(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted(int(part) for part in text.split(",")))
    except ValueError:
        raise UsageError(f"--memory-slots: {text!r} is not a list of numbers such as 2,7") from None
