"""Which device computes."""

from __future__ import annotations

import torch


def choose_device(wanted: str) -> torch.device:
    """`auto`: cuda, else mps, else cpu; anything else as PyTorch names it."""
    if wanted != "auto":
        return torch.device(wanted)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
