"""What a person may choose when a checkpoint becomes a bundle."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from labeler.errors import ConvertError

MAX_PROMPT_TOKENS = 64
MAX_MEMORY_SLOTS = 16


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """Recorded in bundle.json. The defaults give the published contract."""

    precision: Literal["fp32", "fp16", "int8"] = "fp16"
    """How weights are stored; int8 is dynamic range: int8 weights, float activations at the borders."""
    layout: Literal["flat", "parts"] = "flat"
    """One tensor with all parts end to end, as published, or one tensor per part, as a GPU needs it."""
    prompt_tokens: int = 2
    """Sparse tokens the decoders take; more than 2 adds the input `token_mask`."""
    mask_input: bool = False
    """Whether the decoders take a mask as prompt: adds the inputs `mask_input` and `has_mask`."""
    memory_slots: tuple[int, ...] = (2, 7)
    """One memory attention graph for each."""
    image_pair: bool = True
    """Whether to write the image-only encoder and decoder beside the video graphs, which serve pictures too."""
    name: str | None = None
    """Name of the bundle; None: after the size of the checkpoint."""

    def check(self) -> None:
        """Raise ConvertError for a choice that cannot be had."""
        if self.precision not in ("fp32", "fp16", "int8"):
            raise ConvertError(f"precision {self.precision!r}: choose fp32, fp16 or int8")
        if self.layout not in ("flat", "parts"):
            raise ConvertError(f"layout {self.layout!r}: choose flat or parts")
        if not 2 <= self.prompt_tokens <= MAX_PROMPT_TOKENS:
            raise ConvertError(f"prompt tokens {self.prompt_tokens}: choose 2 to {MAX_PROMPT_TOKENS}")
        slots = self.memory_slots
        if not slots or len(set(slots)) != len(slots) or not all(1 <= count <= MAX_MEMORY_SLOTS for count in slots):
            raise ConvertError(
                f"memory slots {slots}: choose one or more different numbers from 1 to {MAX_MEMORY_SLOTS}"
            )

    def record(self) -> dict[str, Any]:
        """The choices as they stand in bundle.json."""
        return asdict(self) | {"memory_slots": list(self.memory_slots)}
