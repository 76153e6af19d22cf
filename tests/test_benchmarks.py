"""The benchmark commands run and their parts add up; what figures they print is not tested."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.mark.slow
def test_pictures(mini_dir: Path) -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "pictures.py", "--model", mini_dir, "--pictures", "2", "--points", "3"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stderr == ""
    assert len(re.findall(r"^workers \d+ x threads \d+: [\d.]+ pictures/s$", done.stdout, re.M)) == 2
    for table in done.stdout.split("one worker, ")[1:]:
        stages = {
            row[0]: [float(part) for part in row[1:]]
            for row in re.findall(r"^  (\S.*?)  +[\d.]+ +(\d+) +[\d.]+ +[\d.]+ +([\d.]+)% +([\d.]+)%$", table, re.M)
        }
        assert {"graph encode", "graph decode", "mask to RLE", "reading", "preprocessing"} <= stages.keys()
        assert (stages["graph encode"][0], stages["graph decode"][0]) == (1, 3)
        for clock in (1, 2):
            assert sum(stage[clock] for stage in stages.values()) == pytest.approx(100, abs=0.2)
        host = 100 - sum(stage[1] for name, stage in stages.items() if name.startswith("graph "))
        (told,) = re.findall(r"host's share of a worker's time: ([\d.]+)%", table)
        assert float(told) == pytest.approx(host, abs=0.2)


@pytest.mark.slow
def test_clips(mini_dir: Path) -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "clips.py", "--model", mini_dir, "--frames", "9"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stderr == ""
    frames = dict(re.findall(r"^(\S.*), (\d+) frames: sam2label [\d.]+ s per frame", done.stdout, re.M))
    assert frames == {"clicked": "3", "memcond2": "6", "memcond7, bank filling": "6", "memcond7, bank full": "2"}
    for bank in done.stdout.split(" s per frame (median)\n")[1:]:
        shares = re.findall(r"^  (\S.*?)  +[\d.]+ +\d+ +[\d.]+ +[\d.]+ +([\d.]+)% +[\d.]+%$", bank, re.M)
        assert {"reading", "preprocessing", "mask for memory", "mask to RLE", "journal"} <= dict(shares).keys()
        assert sum(float(share) for _, share in shares) == pytest.approx(100, abs=0.2)
        host = 100 - sum(float(share) for name, share in shares if name.startswith("graph "))
        assert float(re.findall(r"^  host's share ([\d.]+)%", bank, re.M)[0]) == pytest.approx(host, abs=0.2)
