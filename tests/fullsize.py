"""A full-size stand-in and its exports, made once for all slow tests that need them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Export:
    folder: Path
    cpu_seconds: float
    """Of processor time, which other processes on the machine do not lengthen."""
    gigabytes: float
    """Largest resident size of the exporting process."""
    lines: tuple[str, ...] = field(repr=False)


EXPORT = """
import resource, sys, time
from pathlib import Path
from labeler.convert import ConvertOptions, convert
convert(Path(sys.argv[1]), Path(sys.argv[2]), options=ConvertOptions(**eval(sys.argv[3])), progress=print)
print(time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""


def export(checkpoint: Path, out: Path, **options: Any) -> Export:
    """In a process of its own: its memory is measured, and its threads are gone when others are timed."""
    command = [sys.executable, "-c", EXPORT, checkpoint, out, repr(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "the converter's chatter came through"
    *lines, last = done.stdout.splitlines()
    cpu_seconds, gigabytes = map(float, last.split())
    return Export(out, cpu_seconds, gigabytes, tuple(lines))


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import standin  # loads torch, which most tests do without

    return standin.write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture(scope="session")
def bundles_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


@pytest.fixture(scope="session")
def fp16(checkpoint: Path, bundles_dir: Path) -> Export:
    """The published contract."""
    return export(checkpoint, bundles_dir / "fp16")


@pytest.fixture(scope="session")
def fp32(checkpoint: Path, bundles_dir: Path) -> Export:
    """Everything beyond the published contract."""
    slots = {"prompt_tokens": 8, "mask_input": True, "memory_slots": (1, 2, 7)}
    return export(checkpoint, bundles_dir / "fp32", precision="fp32", **slots)
