"""The corpus of awkward files, which lies beside the checkout of those who work on it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"
LACKING = "the corpus of awkward files is missing: put shared/ beside the checkout"


def expected(kind: str) -> dict[str, dict[str, Any]]:
    """What an independent reader saw of the images or videos. A fresh clone has none; in CI that is an error."""
    path = CORPUS / kind / "expected.json"
    if not path.exists() and not os.environ.get("CI"):
        return {}
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found
