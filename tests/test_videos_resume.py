"""A run over clips that is killed goes on inside the clip and ends with the same bytes; what changed is made anew."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import command
import films
import labels
import often
import pytest
from command import coco, finished, lines, records, until, write_seeds
from films import document, save, seed, shots

from labeler.cli.label import find_bundle
from labeler.clips import ClipLabeler, ClipOptions, ClipTask
from labeler.files import replace_bytes
from labeler.journal import Header, Journal
from labeler.model import ModelSpec
from labeler.types import WHOLE_CLIP, Item, Record, Snapshot

OFTEN = (sys.executable, often.__file__)
OPTIONS = ("--memory", "2", "--threads", "1", "--direction", "both")


def start(root: Path, seeds: Path, out: Path, *, workers: int = 1) -> subprocess.Popen[str]:
    arguments = ("videos", root, "--points", seeds, "-o", out, *OPTIONS, "--workers", workers)
    return command.launch(*arguments, program=OFTEN)


def finish(root: Path, seeds: Path, out: Path, *options: str, workers: int = 1) -> int:
    """The same in this process; its snapshots are fewer."""
    arguments = ("videos", root, "--points", seeds, "-o", out, *OPTIONS, "--workers", workers, *options)
    return labels.command(*arguments).exit_code


def made(out: Path) -> bytes:
    return (out / "annotations.json").read_bytes()


def frames(out: Path) -> list[str]:
    return [image["file_name"] for image in coco(out)["images"]]


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two clips, one of them with objects that begin apart, and their seeds."""
    root = tmp_path_factory.mktemp("two") / "clips"
    long, short = shots(frames=10), shots(frames=5)
    save(root / "a.mp4", long)
    save(root / "b", short)
    items = {"a.mp4": [seed(long, 1, 4), seed(long, 2, 6)], "b": [seed(short, 2, 1)]}
    return root, write_seeds(root.with_name("seeds.json"), document(items))


@pytest.fixture(scope="module")
def undisturbed(clips: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a run that nothing happened to."""
    out = tmp_path_factory.mktemp("undisturbed") / "labels"
    assert finish(*clips, out) == 0
    return out


def check_whole(out: Path, undisturbed: Path) -> None:
    assert made(out) == made(undisturbed)
    assert {path.name for path in out.iterdir()} == {".journal.lock", "annotations.json", "journal.jsonl", "run.json"}
    places = Counter((record["key"], record["frame"]) for record in records(out))
    assert places == Counter((record["key"], record["frame"]) for record in records(undisturbed)), "no record twice"


# Killed


def kill_at(out: Path, process: subprocess.Popen[str], done: int, *, later: float) -> None:
    """Kill the whole family `later` seconds after the journal has so many records."""
    until(lambda: lines(out) >= done or process.poll() is not None, seconds=120)
    time.sleep(later)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_killed_inside_clips_a_run_ends_with_the_same_bytes(
    clips: tuple[Path, Path], undisturbed: Path, tmp_path: Path
) -> None:
    """The first clip has 6 records on the way there, 6 on the way back and one at its end, the second has 6."""
    out = tmp_path / "labels"
    chance = random.Random(1)
    for done, workers in ((2, 1), (5, 1), (9, 1), (12, 2)):
        kill_at(out, start(*clips, out, workers=workers), done, later=chance.uniform(0, 0.05))
        assert done <= lines(out) < len(records(undisturbed))
        assert not (out / "annotations.json").exists()
    assert len(list((out / ".snapshots").iterdir())) >= 1
    assert finished(start(*clips, out, workers=2)).code == 0
    check_whole(out, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_at_fifteen_random_moments(
    clips: tuple[Path, Path], undisturbed: Path, tmp_path: Path, workers: int
) -> None:
    chance = random.Random(workers)
    kills = rounds = inside = 0
    began = time.monotonic()
    assert finished(start(*clips, tmp_path / "timed", workers=workers)).code == 0
    whole = time.monotonic() - began
    while kills < 15:
        out = tmp_path / f"labels-{rounds}"
        process = start(*clips, out, workers=workers)
        try:
            process.wait(timeout=chance.uniform(0.1, whole))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            kills += 1
            inside += lines(out) > 0
        else:
            assert finished(process).code == 0
            check_whole(out, undisturbed)
            rounds += 1
    assert finished(start(*clips, out, workers=workers)).code == 0
    check_whole(out, undisturbed)
    assert inside >= 5, "the moments were too early to say anything"


# What is made again


@pytest.fixture(scope="module")
def labeler() -> ClipLabeler:
    return ClipLabeler(
        ModelSpec(find_bundle(None, None), 1, "videos"), ClipOptions(memory=2, snapshot_every=often.EVERY)
    )


def test_no_more_is_made_again_than_between_two_snapshots(labeler: ClipLabeler, tmp_path: Path) -> None:
    shown = shots(frames=8)
    path = save(tmp_path / "a.gif", shown)
    task = ClipTask(Item("a.gif", path), labels_of(tmp_path, shown), tmp_path / "out")
    whole = list(labeler.stream(task))
    kinds = "".join("s" if isinstance(one, Snapshot) else "r" for one in whole)
    assert kinds == "rrrsrrrsrrrs", "a snapshot after the records that it covers; at the end the clip's own record"
    for stop in range(1, len(whole)):
        shutil.rmtree(task.out, ignore_errors=True)
        for snapshot in (one for one in whole[:stop] if isinstance(one, Snapshot)):
            replace_bytes(task.out / snapshot.name, snapshot.content or b"")
        covered = kinds[:stop].count("s") * often.EVERY
        if stop in (2, 4, 11):
            again = [one for one in labeler.stream(task) if isinstance(one, Record)]
            assert [one.frame for one in again] == [*range(covered, 8), WHOLE_CLIP]
            assert [one.annotations for one in again] == [
                one.annotations
                for one in whole
                if isinstance(one, Record) and one.frame in (*range(covered, 8), WHOLE_CLIP)
            ]


def labels_of(folder: Path, shown: films.Shots) -> Any:
    from labeler import seeds

    return seeds.load(write_seeds(folder / "s.json", document({"a.gif": [seed(shown, 1)]}))).entries["a.gif"]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, bytes]:
    """A folder with one clip, an output folder whose run was killed behind a snapshot, and what it should end with."""
    folder = tmp_path_factory.mktemp("begun")
    shown = shots(frames=8)
    save(folder / "clips" / "a.gif", shown)
    write_seeds(folder / "seeds.json", document({"a.gif": [seed(shown, 1)]}))
    write_seeds(folder / "other.json", document({"a.gif": [seed(shown, 2, 1)]}))
    assert finish(folder / "clips", folder / "seeds.json", folder / "whole") == 0
    process = start(folder / "clips", folder / "seeds.json", folder / "labels")
    until(lambda: (folder / "labels" / ".snapshots").is_dir() and lines(folder / "labels") >= 4)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert lines(folder / "labels") < 8, "it was killed inside the clip"
    return folder / "clips", folder / "labels", made(folder / "whole")


def cut_journal(out: Path) -> None:
    """As after a restored copy, or a power cut: records before the snapshot are gone."""
    whole = (out / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (out / "journal.jsonl").write_bytes(b"".join(whole[:3]))


def damage_snapshot(out: Path) -> None:
    (snapshot,) = (out / ".snapshots").iterdir()
    snapshot.write_bytes(snapshot.read_bytes()[:5000])


def begin_other_work(out: Path) -> None:
    """Another seed was tried for two frames, and given up."""
    text = (out / "journal.jsonl").read_text(encoding="utf-8")
    header = json.loads(text.splitlines()[0])
    with Journal(out, Header(*(header[name] for name in ("kind", "program", "bundle", "options")))) as journal:
        for frame in range(2):
            journal.add(Record("a.gif", frame, "other work", "done", height=films.HEIGHT, width=films.WIDTH))


STRAY = {
    "nothing": (lambda _: None, []),
    "no journal": (lambda out: (out / "journal.jsonl").unlink(), []),
    "a new start": (lambda _: None, ["--restart"]),
    "an older journal": (cut_journal, []),
    "a damaged snapshot": (damage_snapshot, []),
    "other work in between": (begin_other_work, []),
}


@pytest.mark.parametrize(("disturb", "options"), STRAY.values(), ids=STRAY)
def test_no_frame_is_missing_after(
    begun: tuple[Path, Path, bytes], tmp_path: Path, disturb: Callable[[Path], None], options: list[str]
) -> None:
    root, killed, wanted = begun
    out = tmp_path / "labels"
    shutil.copytree(killed, out)
    disturb(out)
    assert finish(root, killed.with_name("seeds.json"), out, *options) == 0
    assert made(out) == wanted
    assert not (out / ".snapshots").exists()


def test_a_changed_seed_makes_its_clip_anew_and_leaves_no_frame_behind(
    clips: tuple[Path, Path], undisturbed: Path, tmp_path: Path
) -> None:
    root, seeds = clips
    out = tmp_path / "labels"
    shutil.copytree(undisturbed, out)
    before = records(out)
    changed = json.loads(seeds.read_text(encoding="utf-8"))
    short = shots(frames=5)
    changed["items"][1]["objects"] = [seed(short, 1, 3)]
    other = write_seeds(tmp_path / "changed.json", changed)
    assert finish(root, other, out) == 0
    fresh = records(out)[len(before) :]
    assert {record["key"] for record in fresh} == {"b"}
    loaded = coco(out)
    (video,) = (each["id"] for each in loaded["videos"] if each["name"] == "b")
    images = {image["id"] for image in loaded["images"] if image["video_id"] == video}
    assert {each["track_id"] for each in loaded["annotations"] if each["image_id"] in images} == {1}
    assert finish(root, seeds, out) == 0
    assert made(out) == made(undisturbed), "and back"


def test_a_moved_seed_takes_its_frames_along(begun: tuple[Path, Path, bytes], tmp_path: Path) -> None:
    """Forward only: frames before the seed are not labelled."""
    root, _, _ = begun
    shown, out = shots(frames=8), tmp_path / "labels"
    for first in (5, 6):
        seeds = write_seeds(tmp_path / "s.json", document({"a.gif": [seed(shown, 1, first)]}))
        arguments = ("videos", root, "--points", seeds, "-o", out, "--workers", "1", "--threads", "1")
        assert labels.command(*arguments).exit_code == 0
        assert frames(out) == [f"a.gif/0000{frame}.jpg" for frame in range(first, 8)]
    assert lines(out) == (3 + 1) + 1 + (2 + 1) + 1, "records, and a note for each annotations.json"
