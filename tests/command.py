"""Run the command as its users do: in a child process, over real files. Small pictures to run it on."""

from __future__ import annotations

import functools
import json
import os
import pty
import re
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import psutil
import render
from PIL import Image

PROGRAM = [sys.executable, "-m", "labeler"]
Seeds: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    text: str
    """What it wrote on stderr."""

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def images(root: Path, seeds: Path, out: Path, *options: str, workers: int | None = 1, **popen: Any) -> Ended:
    """`sam2label images` to its end. No library's words are on standard error, whatever happens."""
    share = [] if workers is None else ["--workers", str(workers)]
    if workers and "--threads" not in options:
        share += ["--threads", "1"]  # the machine may be busy with other tests
    return finished(start(root, seeds, out, *options, *share, **popen))


def start(root: Path, seeds: Path, out: Path, *options: str, **popen: Any) -> subprocess.Popen[str]:
    """`sam2label images` in a process group of its own; standard error is a pipe, or a file given as `stderr`."""
    return launch("images", root, "--points", seeds, "-o", out, *options, **popen)


def videos(root: Path, out: Path, *options: str, workers: int = 1, **popen: Any) -> Ended:
    """`sam2label videos` to its end, each graph on one thread."""
    share = ("--workers", str(workers), "--threads", "1")
    return finished(launch("videos", root, "-o", out, *options, *share, **popen), seconds=600)


def launch(*arguments: object, program: Sequence[str] = PROGRAM, **popen: Any) -> subprocess.Popen[str]:
    """A command in a process group of its own; standard error is a pipe, or a file given as `stderr`."""
    settings = {"stderr": subprocess.PIPE, "start_new_session": True} | popen
    return subprocess.Popen([*program, *map(str, arguments)], text=True, **settings)


def on_a_terminal(*arguments: object) -> str:
    """What a person would see a command write on the terminal."""
    terminal, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    process = launch(*arguments, stderr=theirs, stdout=theirs, stdin=theirs)
    os.close(theirs)
    text = b""
    try:
        while part := os.read(terminal, 4096):
            text += part
    except OSError:  # that is how Linux says that the other end is closed
        pass
    finally:
        os.close(terminal)
    process.wait(timeout=60)
    return text.decode()


def finished(process: subprocess.Popen[str], *, seconds: float = 120) -> Ended:
    _, text = process.communicate(timeout=seconds)
    assert not re.search(r"Traceback|Warning|TensorFlow|XNNPACK", text or ""), text
    return Ended(process.returncode, text or "")


def until(condition: Callable[[], Any], *, seconds: float = 30, every: float = 0.005) -> Any:
    """The first true value of a condition that is bound to come true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "what the test waits for does not happen"
        time.sleep(every)
    return value


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The labelling children of a command, oldest first."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
        found = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    except psutil.NoSuchProcess:
        return []
    return sorted(found, key=lambda child: (child.create_time(), child.pid))


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    return [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


def records(out: Path) -> list[dict[str, Any]]:
    """The whole lines of a journal that are records, in the order they were written."""
    path = out / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [document for line in lines if "key" in (document := json.loads(line))]


def lines(out: Path) -> int:
    """How many records a journal has."""
    path = out / "journal.jsonl"
    return path.read_bytes().count(b"\n") - 1 if path.exists() else 0


def coco(out: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((out / "annotations.json").read_text(encoding="utf-8"))
    return document


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Every name below a folder, with what would show that somebody wrote there."""
    paths = [folder, *folder.rglob("*")]
    return {str(path): ((stat := path.lstat()).st_mtime_ns, stat.st_size, stat.st_mode) for path in paths}


@functools.cache
def scene(number: int, height: int, width: int, objects: int) -> tuple[Image.Image, tuple[tuple[int, int], ...]]:
    """A rendered picture, and where to click for each object that is seen."""
    rgb, labels = render.render_picture(number, height, width, objects)
    seen = [n for n in range(1, objects + 1) if (labels == n).any()]
    return Image.fromarray(rgb), tuple(render.click_point(labels == n) for n in seen)


def album(
    root: Path, names: Iterable[str], *, height: int = 72, width: int = 96, objects: int = 2, repeat: int = 1
) -> Path:
    """Render a picture under each name below `root`; returns their seeds file, beside `root`.

    `repeat`: how often each object is named, to make a picture take longer.
    """
    entries = {}
    for number, name in enumerate(names):
        picture, clicks = scene(number, height, width, objects)
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path)
        entries[name] = [list(click) for click in clicks] * repeat
    return write_seeds(root.with_name(root.name + "-seeds.json"), entries)


def write_seeds(path: Path, document: Seeds) -> Path:
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
