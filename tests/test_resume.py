"""Whatever ends a run, the same command goes on and ends with the same bytes."""

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import command
import killed_everywhere
import psutil
import pytest
from command import album, coco, finished, images, records, start, until, write_seeds

from labeler import workers

ALBUM = [f"{number:02}.png" for number in range(18)]


def labels(out: Path) -> bytes:
    return (out / "annotations.json").read_bytes()


def kill_group(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)


def kill_parent(process: subprocess.Popen[str]) -> None:
    """The children are left to find out by themselves."""
    children = command.workers_of(process)
    process.kill()
    process.wait()
    until(lambda: not command.alive(children), seconds=30)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Pictures that take a while: their folder and their seeds."""
    root = tmp_path_factory.mktemp("album") / "pictures"
    return root, album(root, ALBUM, repeat=2)


@pytest.fixture(scope="module")
def undisturbed(pictures: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What one process, with more threads than any other here, makes of them when nothing happens to it."""
    out = tmp_path_factory.mktemp("undisturbed") / "labels"
    assert images(*pictures, out, "--threads", "2").code == 0
    return labels(out)


# Killed


@pytest.mark.parametrize(
    "begun",
    [pytest.param(begun, marks=[pytest.mark.slow] if begun != "edited" else []) for begun in killed_everywhere.STARTS],
)
def test_killed_before_any_call_into_the_system_a_run_goes_on(tmp_path: Path, begun: str) -> None:
    memory = Path("/dev/shm")  # where waiting for the disk, hundreds of times, takes no time
    folder = memory / f"sam2label-{os.getpid()}-{begun}" if memory.is_dir() else tmp_path / "runs"
    folder.mkdir()
    try:
        done = subprocess.run(
            [sys.executable, killed_everywhere.__file__, folder, begun], capture_output=True, text=True, timeout=300
        )
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100, "the moments were not found"


def killed_again_and_again(
    pictures: tuple[Path, Path], folder: Path, *, kills: int, seconds: float, chance: random.Random
) -> Iterator[tuple[Path, int]]:
    """Run the command and kill it at random moments, `kills` times in all; yields every folder that it finished in,
    and how many records had been made when it was killed there last."""
    done = rounds = made = 0
    while done < kills:
        process = start(*pictures, out := folder / f"labels-{rounds}", "--workers", "2", stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=chance.uniform(0, seconds))
        except subprocess.TimeoutExpired:
            [kill_group, kill_parent][done % 2](process)
            process.wait()
            done += 1
            made = len(records(out))
        else:
            assert process.returncode == 0
            yield out, made
            rounds += 1
    assert images(*pictures, out, workers=2).code == 0
    yield out, made


def test_killed_at_random_moments_a_run_ends_with_the_same_bytes(
    pictures: tuple[Path, Path], undisturbed: bytes, tmp_path: Path
) -> None:
    chance = random.Random(0)
    for number in range(5):
        wanted = 2 * number + 1
        process = start(*pictures, tmp_path / "labels", "--workers", "2")
        until(lambda: len(records(tmp_path / "labels")) >= wanted)  # noqa: B023  # called here only
        time.sleep(chance.uniform(0, 0.05))
        [kill_group, kill_parent][number % 2](process)
        process.communicate()
    made = len(records(tmp_path / "labels"))
    ended = images(*pictures, tmp_path / "labels", workers=2)
    assert ended.code == 0
    assert 0 < made < len(ALBUM), "it was killed too late to say anything"
    assert f"{len(ALBUM)} pictures labelled ({made} of them earlier)" in ended.text
    assert labels(tmp_path / "labels") == undisturbed
    assert len(records(tmp_path / "labels")) == len(ALBUM), "nothing was done twice"


@pytest.mark.slow
def test_killed_at_25_random_moments_of_60_pictures(tmp_path: Path) -> None:
    root = tmp_path / "pictures"
    seeds = album(root, [f"{number:02}.png" for number in range(60)], repeat=2)
    started = time.monotonic()
    assert images(root, seeds, tmp_path / "undisturbed", workers=2).code == 0
    seconds = time.monotonic() - started
    chance = random.Random(25)
    ends = list(killed_again_and_again((root, seeds), tmp_path, kills=25, seconds=seconds, chance=chance))
    for out, _ in ends:
        assert labels(out) == labels(tmp_path / "undisturbed")
        assert len(records(out)) == 60
    assert any(0 < made < 60 for _, made in ends), "no kill met a run at work"


def test_killing_the_parent_leaves_no_orphans(pictures: tuple[Path, Path], tmp_path: Path) -> None:
    process = start(*pictures, tmp_path / "labels", "--workers", "2", stderr=subprocess.DEVNULL)
    until(lambda: records(tmp_path / "labels"))
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(command.workers_of(process)) == 2
    kill_parent(process)
    until(lambda: not command.alive(family), seconds=30)


# Workers


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_any_number_of_workers_makes_the_same_bytes(
    pictures: tuple[Path, Path], undisturbed: bytes, tmp_path: Path, count: int
) -> None:
    assert images(*pictures, tmp_path, workers=count).code == 0
    assert labels(tmp_path) == undisturbed
    assert Counter(record["key"] for record in records(tmp_path)) == Counter(ALBUM)


def test_a_worker_killed_under_way_loses_nothing(
    pictures: tuple[Path, Path], undisturbed: bytes, tmp_path: Path
) -> None:
    process = start(*pictures, tmp_path, "--workers", "2")
    for wanted in (2, 6):
        until(lambda: len(records(tmp_path)) >= wanted)  # noqa: B023  # called here only
        command.workers_of(process)[0].kill()
    ended = finished(process)
    assert ended.code == 0, ended.text
    assert labels(tmp_path) == undisturbed
    assert len(records(tmp_path)) == len(ALBUM)


def test_a_picture_that_costs_two_workers_is_given_up_and_can_be_tried_again(tmp_path: Path) -> None:
    root, out = tmp_path / "pictures", tmp_path / "labels"
    seeds = album(root, ["a.png"], repeat=10)
    process = start(root, seeds, out, "--workers", "2")
    killed: list[psutil.Process] = []
    for _ in range(2):
        (worker,) = until(lambda: [each for each in command.workers_of(process) if each not in killed])
        worker.kill()
        killed.append(worker)
    ended = finished(process)
    assert ended.code == 1, ended.text
    (record,) = records(out)
    assert record["status"] == "failed"
    assert "killed (SIGKILL), probably out of memory" in record["error"]
    assert "tried 2 times" in record["error"]

    assert images(root, seeds, out).code == 1, "what failed is not tried again by itself"
    assert len(records(out)) == 1
    ended = images(root, seeds, out, "--retry-failed")
    assert ended.code == 0, ended.text
    assert [record["status"] for record in records(out)] == ["failed", "done"]
    assert len(coco(out)["annotations"]) == 20
    assert not (out / "failures.jsonl").exists()


def two_results(_: int) -> Iterator[Any]:
    yield os.getpid()
    yield bytes(1 << 26)  # more than a pipe holds


def test_a_worker_killed_while_it_sends_is_a_dead_worker() -> None:
    results = workers.run(two_results, [1], workers=2)
    for _ in range(2):
        task, pid = next(results)
        worker = psutil.Process(pid)
        until(lambda: blocked(worker))  # noqa: B023  # called here only
        worker.kill()
    (crash, end) = [result for _, result in results]
    assert isinstance(crash, workers.Crash)
    assert "SIGKILL" in crash.reason
    assert end is None
    assert task == 1


def blocked(process: psutil.Process) -> bool:
    """Whether a process neither runs nor got anything done in a while: its pipe is full."""
    times = process.cpu_times()
    time.sleep(0.1)
    return process.status() == psutil.STATUS_SLEEPING and process.cpu_times() == times and sum(times[:2]) > 0.1


# Interrupted


def interrupted(
    pictures: tuple[Path, Path], out: Path, count: int, ready: Callable[[subprocess.Popen[str]], Any]
) -> command.Ended:
    """Ctrl-C, which goes to the whole process group, once `ready` says so."""
    process = start(*pictures, out, "--workers", str(count))
    until(lambda: ready(process))
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    ended = finished(process)
    until(lambda: not command.alive(family))
    return ended


MOMENTS: dict[str, Callable[[subprocess.Popen[str], Path], Any]] = {
    "while workers start": lambda process, _: len(command.workers_of(process)) == 2,
    "under way": lambda _, out: len(records(out)) >= 3,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupt_ends_all_processes_and_the_run_goes_on(
    pictures: tuple[Path, Path], undisturbed: bytes, tmp_path: Path, moment: str
) -> None:
    out = tmp_path / "labels"
    ended = interrupted(pictures, out, 2, lambda process: MOMENTS[moment](process, out))
    assert ended.code == 130
    assert ended.lines[-1] == "interrupted; the same command goes on from here"
    assert (out / "journal.jsonl").read_bytes().endswith(b"\n")
    assert not (out / "annotations.json").exists()
    assert images(*pictures, out).code == 0
    assert labels(out) == undisturbed
    assert len(records(out)) == len(ALBUM)


@pytest.mark.slow
def test_an_interrupt_without_workers_is_the_same(
    pictures: tuple[Path, Path], undisturbed: bytes, tmp_path: Path
) -> None:
    assert interrupted(pictures, tmp_path, 1, lambda _: len(records(tmp_path)) >= 3).code == 130
    assert images(*pictures, tmp_path).code == 0
    assert labels(tmp_path) == undisturbed


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one page."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", disk], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_full_disk_is_one_clear_error_and_the_run_goes_on(small_disk: Path, tmp_path: Path, count: int) -> None:
    root = tmp_path / "pictures"
    seeds = album(root, ["0.png", "1.png", "2.png"])
    assert images(root, seeds, tmp_path / "labels").code == 0
    pages = [4, 8, 12, 20, 64] if count == 1 else [8, 64]
    codes = []
    for kilobytes in pages:  # so that another file is the one that does not fit
        subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", small_disk], check=True)
        ended = images(root, seeds, small_disk / "labels", workers=count)
        codes.append(ended.code)
        if ended.code:
            (error,) = (line for line in ended.lines if line.startswith("error: "))
            assert "No space left on device" in error
            assert "make room and run the same command again" in error
    assert set(codes[:-1]) >= {2}
    assert codes[-1] == 0
    assert labels(small_disk / "labels") == labels(tmp_path / "labels")
    assert not list((small_disk / "labels").glob("*.tmp"))
    assert Counter(record["key"] for record in records(small_disk / "labels")) == Counter(["0.png", "1.png", "2.png"])


# Changed since


@pytest.fixture
def three(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Three pictures, labelled: their folder, their seeds, their labels."""
    root, out = tmp_path / "pictures", tmp_path / "labels"
    seeds = album(root, ["a.png", "b.png", "c.png"])
    assert images(root, seeds, out).code == 0
    return root, seeds, out


def _again(_: Path, __: dict[str, Any]) -> None:
    pass


def _spelled_otherwise(_: Path, document: dict[str, Any]) -> None:
    items = [
        {
            "file": f"./{name}",
            "objects": [{"points": [[float(x), float(y)]], "id": n} for n, (x, y) in reversed([*enumerate(points, 1)])],
        }
        for name, points in reversed(document.items())
    ]
    document.clear()
    document.update({"items": items, "version": 1})


def _seed_moved(_: Path, document: dict[str, Any]) -> None:
    document["b.png"][0][0] += 1


def _picture_changed(root: Path, _: dict[str, Any]) -> None:
    command.scene(7, 72, 96, 2)[0].save(root / "c.png")


def _picture_added(root: Path, document: dict[str, Any]) -> None:
    command.scene(8, 72, 96, 2)[0].save(root / "0.png")
    document["0.png"] = [[40, 30]]


CHANGES: list[tuple[Callable[[Path, dict[str, Any]], None], list[str]]] = [
    (_again, []),
    (_spelled_otherwise, []),
    (_seed_moved, ["b.png"]),
    (_picture_changed, ["b.png", "c.png"]),
    (_picture_added, ["0.png", "b.png", "c.png"]),
]
"""Changes to the folder and the seeds as they were at first, and the pictures that differ from then."""


def test_only_what_changed_is_labelled_again(three: tuple[Path, Path, Path]) -> None:
    root, seeds, out = three
    document = json.loads(seeds.read_text(encoding="utf-8"))
    known: list[str] = []
    for change, differ in CHANGES:
        before, first = len(records(out)), labels(out)
        change(root, written := json.loads(json.dumps(document)))
        if change is not _spelled_otherwise:
            document = written
        assert images(root, write_seeds(seeds, written), out).code == 0
        assert sorted(record["key"] for record in records(out)[before:]) == sorted({*differ} - {*known}), change
        assert (labels(out) == first) is (known == differ)
        known = differ
    assert images(root, seeds, fresh := out.with_name("fresh")).code == 0
    assert labels(out) == labels(fresh)


def test_a_picture_that_broke_since_leaves_the_labels_and_a_mended_one_comes_back(
    three: tuple[Path, Path, Path],
) -> None:
    root, seeds, out = three
    first, whole = labels(out), (root / "b.png").read_bytes()
    (root / "b.png").write_bytes(whole[:500])
    assert images(root, seeds, out).code == 1
    assert [image["file_name"] for image in coco(out)["images"]] == ["a.png", "c.png"]
    (root / "b.png").write_bytes(whole)
    assert images(root, seeds, out).code == 0
    assert labels(out) == first


def test_restart_moves_aside_and_deletes_nothing(three: tuple[Path, Path, Path]) -> None:
    root, seeds, out = three
    old = {path.name: path.read_bytes() for path in out.iterdir() if path.name != ".journal.lock"}
    assert old.keys() == {"annotations.json", "journal.jsonl", "run.json"}
    ended = images(root, seeds, out, "--restart")
    assert ended.code == 0, ended.text
    assert f"the earlier labels are now in {out / 'before-restart-1'}" in ended.lines
    assert "(0 of them earlier)" in ended.text
    assert labels(out) == old["annotations.json"]
    assert images(root, seeds, out, "--restart", "--candidates", "all").code == 0, "other options are welcome"
    assert labels(out / "before-restart-2") == old["annotations.json"] != labels(out)
    assert {path.name: path.read_bytes() for path in (out / "before-restart-1").iterdir()} == old


def test_labels_edited_by_hand_are_moved_aside(three: tuple[Path, Path, Path]) -> None:
    root, seeds, out = three
    first = labels(out)
    for number in (1, 2):
        edited = first.replace(b'"object"', b'"cat%d"' % number)
        (out / "annotations.json").write_bytes(edited)
        ended = images(root, seeds, out)
        assert ended.code == 0
        kept = out / f"annotations.edited-{number}.json"
        assert kept.read_bytes() == edited
        assert kept.name in ended.text
        assert labels(out) == first


def test_one_run_at_a_time(pictures: tuple[Path, Path], undisturbed: bytes, tmp_path: Path) -> None:
    process = start(*pictures, tmp_path)
    until(lambda: records(tmp_path))
    for options in ([], ["--restart"]):
        ended = images(*pictures, tmp_path, *options)
        assert ended.code == 2
        assert ended.lines[-1].startswith(f"error: {tmp_path}: another sam2label run is writing here")
    assert process.poll() is None, "the first run was over too early to say anything"
    assert finished(process).code == 0
    assert labels(tmp_path) == undisturbed
    assert not list(tmp_path.glob("before-restart*"))
