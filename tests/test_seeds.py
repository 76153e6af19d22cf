"""Seeds: every form read, every fault told with its place, inputs matched, seeds compared."""

from __future__ import annotations

import hashlib
import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.errors import SeedError
from labeler.seeds import SeedFile, canonical, check_inside, check_still, load, match
from labeler.types import Point, Seed

CORPUS = Path(__file__).parent / "data" / "seeds"
BAD = sorted(str(path.relative_to(CORPUS / "bad").as_posix()) for path in (CORPUS / "bad").glob("*/*"))
FAULTS: dict[str, list[str]] = json.loads((CORPUS / "faults.json").read_text(encoding="utf-8"))
ONE = (Seed(1, (Point(1.0, 2.0),)),)


def written(folder: Path, document: Any, *, name: str = "seeds.json") -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def faults(path: Path) -> list[str]:
    with pytest.raises(SeedError) as caught:
        load(path)
    assert str(caught.value).splitlines() == list(caught.value.faults)
    return [fault.removeprefix(f"{path}: ") for fault in caught.value.faults]


def seed_file(*entries: str) -> SeedFile:
    return SeedFile(path=Path("seeds.json"), entries=dict.fromkeys(entries, ONE), sha256="")


# Reading


def test_short_form_makes_an_object_of_every_point() -> None:
    seeds = load(CORPUS / "good" / "short.json")
    assert dict(seeds.entries) == {
        "a/b.jpg": (Seed(1, (Point(412.0, 300.0),), "object"), Seed(2, (Point(50.5, 60.0),), "object")),
        "nothing.png": (),
    }
    assert seeds.sha256 == hashlib.sha256((CORPUS / "good" / "short.json").read_bytes()).hexdigest()


def test_full_form() -> None:
    assert dict(load(CORPUS / "good" / "full.json").entries) == {
        "a/b.jpg": (
            Seed(1, (Point(412.0, 300.0), Point(10.0, 20.0, positive=False)), "cat", box=(5.0, 5.5, 500.0, 400.0)),
            Seed(7, (Point(10.0, 0.0),), "object"),
        ),
        "nothing.png": (),
    }


def test_clip_seeds_share_ids_and_a_category_stated_once_holds_for_its_id() -> None:
    (seeds,) = load(CORPUS / "good" / "clip.json").entries.values()
    assert [(seed.object_id, seed.category, seed.frame, seed.time_s) for seed in seeds] == [
        (1, "dog", 0, None),
        (2, "person", 0, None),
        (1, "dog", 25, None),
        (2, "person", 0, 2.5),
        (1, "dog", 0, 0.04),
    ]


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        (
            "names.json",
            ["Größe/日本 1.jpg", "sub/x.jpg", "..hidden/...", "a..b/C:x.jpg", "dir/clip", "line\nbreak.jpg"],
        ),
        ("bom.json", ["a.jpg"]),
        ("empty-object.json", []),
        ("items.jsonl", ["a.jpg", "b.jpg"]),
        ("crlf-no-last-newline.jsonl", ["a.jpg", "b\u2028.jpg"]),
    ],
)
def test_keys_in_file_order(name: str, keys: list[str]) -> None:
    assert list(load(CORPUS / "good" / name).entries) == keys


@pytest.mark.parametrize("name", BAD)
def test_faults_are_told_with_their_places(name: str) -> None:
    assert faults(CORPUS / "bad" / name) == FAULTS[name]


def test_every_listed_fault_has_its_file() -> None:
    assert sorted(FAULTS) == BAD


def test_all_faults_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    objects = [
        {"id": 1, "points": [[1, 2], ["3", None]], "lables": [1, 0]},
        {"id": 1, "points": [[1, 2]], "box": [4, 0, 3, 9]},
        {"id": 0, "category": "", "points": [[1]], "frame": -2, "time_s": True},
    ]
    document = {"version": 3, "items": [{"file": "../x", "objects": objects}, {"file": "y", "objects": {}}]}
    where = "items[0] '../x'"
    assert [fault.split(", expected")[0].split(";")[0] for fault in faults(written(tmp_path, document))] == [
        "version: is 3",
        f"{where}: objects[0]: has an unknown key 'lables'",
        f'{where}: objects[0].points[1].x: is "3"',
        f"{where}: objects[0].points[1].y: is null",
        f"{where}: objects[1].box.x2: is 3.0, not beyond x1 4.0",
        f"{where}: objects[2]: has both frame and time_s",
        f"{where}: objects[2].id: is 0",
        f"{where}: objects[2].points[0]: is a list of 1",
        f'{where}: objects[2].category: is ""',
        f"{where}: objects[2].frame: is -2",
        f"{where}: objects[2].time_s: is true",
        f"{where}: objects[1].id: is 1 again on one frame (objects[0])",
        f"{where}: leads to no file inside the labelled folder",
        "items[1] 'y': objects: is an object",
    ]


def test_a_faulty_id_or_frame_is_not_told_twice(tmp_path: Path) -> None:
    wrong = [{"id": "1", "box": [0, 0, 1, 1]}, {"id": "2", "box": [0, 0, 1, 1]}]
    wrong += [{"id": 3, "frame": -1, "box": [0, 0, 1, 1]}, {"id": 3, "frame": -2, "box": [0, 0, 1, 1]}]
    found = faults(written(tmp_path, {"version": 1, "items": [{"file": "a", "objects": wrong}]}))
    assert [fault.split(": is")[0] for fault in found] == [
        f"items[0] 'a': objects[{index}].{name}" for index, name in enumerate(["id", "id", "frame", "frame"])
    ]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ('{"a.jpg": ' + "[" * 100_000 + "]" * 100_000 + "}", "is not JSON of sane size"),
        ('{"a.jpg": [[' + "9" * 5_000 + ", 2]]}", ""),
    ],
    ids=["deep", "endless number"],
)
def test_monstrous_json_is_refused(tmp_path: Path, text: str, start: str) -> None:
    (fault,) = faults(written(tmp_path, text))
    assert fault.startswith(start)
    assert len(fault) < 300


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_unreadable_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(SeedError, match="cannot be read"):
        load(tmp_path / name)


numbers = st.one_of(st.integers(-1000, 5000), st.floats(-1e6, 1e6, allow_nan=False))
points = st.builds(Point, numbers.map(float), numbers.map(float), st.booleans())
boxes = st.tuples(numbers, numbers, st.floats(0.5, 900), st.floats(0.5, 900)).map(
    lambda box: (float(box[0]), float(box[1]), float(box[0] + box[2]), float(box[1] + box[3]))
)
categories = st.sampled_from(["object", "cat", "Straßen-Bahn", "a b", '"', "日本"])
seeds_of_an_item = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 3), st.lists(points, max_size=4), st.none() | boxes),
    max_size=6,
    unique_by=lambda each: each[:2],
).flatmap(
    lambda rows: st.lists(categories, min_size=5, max_size=5).map(
        lambda names: tuple(
            Seed(number, tuple(clicks), names[number - 1], frame, box)
            for number, frame, clicks, box in rows
            if box is not None or any(point.positive for point in clicks)
        )
    )
)
keys = st.from_regex(r"[a-zé]{1,3}(/[a-zé0-9]{1,3}){0,2}\.(jpg|png)", fullmatch=True)


def full_item(key: str, seeds: tuple[Seed, ...]) -> dict[str, Any]:
    def full_object(seed: Seed) -> dict[str, Any]:
        labels = [int(point.positive) for point in seed.points]
        box = {} if seed.box is None else {"box": list(seed.box)}
        clicks = {"points": [[point.x, point.y] for point in seed.points], "labels": labels}
        return {"id": seed.object_id, "category": seed.category, "frame": seed.frame, **clicks, **box}

    return {"file": key, "objects": [full_object(seed) for seed in seeds]}


@given(entries=st.dictionaries(keys, seeds_of_an_item, max_size=5))
def test_full_form_and_lines_give_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, tuple[Seed, ...]]
) -> None:
    folder = tmp_path_factory.mktemp("seeds")
    items = [full_item(key, seeds) for key, seeds in entries.items()]
    whole = load(written(folder, {"version": 1, "items": items}))
    assert list(whole.entries.items()) == list(entries.items())
    if items:
        lines = load(written(folder, "".join(json.dumps(item) + "\n" for item in items), name="seeds.jsonl"))
        assert list(lines.entries.items()) == list(entries.items())


@given(data=st.binary(max_size=60) | st.text(alphabet='{}[]",:01e- aNfile', max_size=60).map(str.encode))
def test_whatever_the_bytes_only_seed_errors_come_out(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    for name in ("seeds.json", "seeds.jsonl"):
        path = tmp_path_factory.mktemp("bytes") / name
        path.write_bytes(data)
        try:
            digest, told = load(path).sha256, []
        except SeedError as error:
            digest, told = hashlib.sha256(data).hexdigest(), list(error.faults)
        assert digest == hashlib.sha256(data).hexdigest()
        assert all(fault.startswith(f"{path}: ") and "\n" not in fault for fault in told)


def many_lines(path: Path, count: int) -> Path:
    item = '{{"file": "{}/{}.jpg", "objects": [{{"id": 1, "points": [[412, 300.5], [9, 9]], "labels": [1, 0]}}]}}\n'
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(item.format(number % 100, number) for number in range(count))
    return path


@pytest.mark.slow
def test_a_million_lines_are_read_in_linear_time(tmp_path: Path) -> None:
    seconds = []
    for count in (100_000, 1_000_000):
        path = many_lines(tmp_path / f"{count}.jsonl", count)
        started = time.process_time()
        assert len(load(path).entries) == count
        seconds.append(time.process_time() - started)
    assert seconds[1] < 20 * seconds[0]


# Matching


def test_match_sorts_entries_and_inputs() -> None:
    found = match(seed_file("b.jpg", "a.jpg", "gone.jpg"), ["a.jpg", "b.jpg", "c.jpg"])
    assert list(found.seeds) == ["a.jpg", "b.jpg"]
    assert found.seeds["a.jpg"] == ONE
    assert [entry for entry, _ in found.unmatched] == ["gone.jpg"]
    assert found.unseeded == ("c.jpg",)


COMPOSED, DECOMPOSED = normalize("NFC", "Größe.jpg"), normalize("NFD", "Größe.jpg")


@pytest.mark.parametrize(("entry", "key"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED), ("a/b.jpg", "a\\b.jpg")])
def test_names_match_however_another_system_spelled_them(entry: str, key: str) -> None:
    found = match(seed_file(entry), [key])
    assert dict(found.seeds) == {key: ONE}
    assert not found.unmatched
    assert not found.unseeded


def test_an_exact_name_goes_before_a_composed_one() -> None:
    both = seed_file(COMPOSED, DECOMPOSED)
    assert list(match(both, [DECOMPOSED, COMPOSED]).seeds) == [DECOMPOSED, COMPOSED]
    assert match(both, [DECOMPOSED]).unmatched == ((COMPOSED, DECOMPOSED),)


def test_the_first_of_two_entries_for_one_input_has_it() -> None:
    first, second = "\u017f\u0307\u0323.jpg", "\u017f\u0323\u0307.jpg"
    key = normalize("NFC", first)
    assert match(seed_file(first, second), [key]).unmatched == ((second, key),)


def test_two_inputs_of_one_composed_name_are_not_guessed_at() -> None:
    dotted = ["\u1e9b\u0323.jpg", "\u017f\u0323\u0307.jpg"]
    entry = normalize("NFC", "\u017f\u0307\u0323.jpg")
    assert {normalize("NFC", key) for key in dotted} == {entry}
    assert not match(seed_file("\u017f\u0307\u0323.jpg"), dotted).seeds


@pytest.mark.parametrize(
    ("entry", "nearest"),
    [
        ("data/train/0007.jpg", "train/0007.jpg"),
        ("0012.jpg", "train/0012.jpg"),
        ("TRAIN/0003.JPG", "train/0003.jpg"),
        ("photos/dscf_1.nef", "Photos/DSCF_1.NEF"),
        ("train/0003.png", "train/0003.jpg"),
        ("x/long/way/round/street.jpeg", "photos/street.jpg"),
        ("photos/stret.jpg", "photos/street.jpg"),
        ("foto/street.jpg", "photos/street.jpg"),
        ("xhotos/strete.jpg", "photos/street.jpg"),
        ("quite different", None),
    ],
)
def test_nearest_name(entry: str, nearest: str | None) -> None:
    keys = [f"train/{number:04d}.jpg" for number in range(20)] + [
        "photos/street.jpg",
        "photos/sky.jpg",
        "Photos/DSCF_1.NEF",
    ]
    assert match(seed_file(entry), keys).unmatched == ((entry, nearest),)


def test_nearest_without_any_input() -> None:
    assert match(seed_file("a.jpg"), []).unmatched == (("a.jpg", None),)


def test_most_typing_errors_lead_to_the_name_that_was_meant() -> None:
    chance = random.Random(1)
    words = ["cat", "dog", "street", "sky", "tree", "summer", "winter", "house", "lake", "img", "scan", "sample"]
    keys = [f"{chance.choice(words)}/{chance.choice(words)}_{number:05d}.jpg" for number in range(20_000)]
    meant = {typed(key, chance): key for key in chance.sample(keys, 500)}
    started = time.process_time()
    nearest = dict(match(seed_file(*meant), keys).unmatched)
    assert time.process_time() - started < 30  # comparing each with each takes minutes
    assert sum(nearest.get(wrong) == key for wrong, key in meant.items()) > 450


def typed(name: str, chance: random.Random) -> str:
    place, letter = chance.randrange(len(name)), chance.choice("xyz")
    return name[:place] + letter + name[place + chance.randrange(2) :]


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong", [lambda key: f"data/{key}", lambda key: key.replace("img", "imge")], ids=["root", "typo"]
)
def test_fifty_thousand_unmatched_entries(wrong: Any) -> None:
    keys = [f"dir{number % 100}/img_{number:07d}.jpg" for number in range(50_000)]
    started = time.process_time()
    found = match(seed_file(*map(wrong, keys)), keys)
    assert time.process_time() - started < 120
    assert [nearest for _, nearest in found.unmatched] == keys


# Checking against a picture


SIZE = {"height": 100, "width": 200, "where": "seeds.json: 'a.jpg'"}


@pytest.mark.parametrize(
    "seed",
    [
        Seed(1, (Point(0.0, 0.0), Point(199.999, 99.999))),
        Seed(1, (), box=(0.0, 0.0, 200.0, 100.0)),
    ],
)
def test_seeds_inside(seed: Seed) -> None:
    assert check_inside([seed], **SIZE) == []


@pytest.mark.parametrize(
    ("seed", "fault"),
    [
        (Seed(1, (Point(200.0, 5.0),)), "object 1: points[0]: (200, 5)"),
        (Seed(2, (Point(5.0, 5.0), Point(5.0, 100.0, positive=False))), "object 2: points[1]: (5, 100)"),
        (Seed(3, (Point(-0.5, 5.0),), frame=7), "object 3 on frame 7: points[0]: (-0.5, 5)"),
        (Seed(4, (Point(float("nan"), 5.0),), time_s=1.5), "object 4 at 1.5 s: points[0]: (nan, 5)"),
        (Seed(5, (), box=(0.0, 0.0, 200.5, 100.0)), "object 5: box: (0, 0, 200.5, 100)"),
    ],
)
def test_seeds_outside(seed: Seed, fault: str) -> None:
    (found,) = check_inside([Seed(9, (Point(1.0, 1.0),)), seed], **SIZE)
    assert found.startswith(f"seeds.json: 'a.jpg': {fault} is outside the upright picture, width 200, height 100; ")


@pytest.mark.parametrize(
    ("seed", "asked"),
    [
        (Seed(1, (Point(50.0, 150.0),)), True),
        (Seed(1, (), box=(0.0, 0.0, 100.0, 200.0)), True),
        (Seed(1, (Point(150.0, 150.0),)), False),
    ],
)
def test_swapped_sizes_are_asked_about(seed: Seed, asked: bool) -> None:
    (found,) = check_inside([seed], **SIZE)
    assert ("was it marked on the unrotated picture" in found) is asked


@given(clicks=st.lists(st.tuples(st.integers(-3, 12), st.integers(-3, 12)), max_size=6))
def test_exactly_the_points_outside_are_told(clicks: list[tuple[int, int]]) -> None:
    pixels = {(x, y) for x in range(9) for y in range(5)}
    found = check_inside([Seed(1, tuple(Point(x, y) for x, y in clicks))], height=5, width=9, where="w")
    outside = [index for index, click in enumerate(clicks) if click not in pixels]
    assert [fault.split(": ")[2] for fault in found] == [f"points[{index}]" for index in outside]


def test_still_pictures_have_one_frame() -> None:
    still = Seed(1, (Point(1.0, 1.0),))
    assert check_still([still], "w") == []
    (frame, second) = check_still([still, replace(still, frame=2), replace(still, time_s=0.0)], "w")
    assert frame.startswith("w: object 1 on frame 2: a picture has frame 0 only; ")
    assert second.startswith("w: object 1 at 0.0 s: a picture has frame 0 only; ")


# Comparing


def test_canonical_has_one_spelling_of_a_number() -> None:
    whole: list[Seed] = [Seed(1, (Point(412, -0.0),), box=(1, 2, 3, 4))]
    assert canonical(whole) == canonical([Seed(1, (Point(412.0, 0),), box=(1.0, 2.0, 3.0, 4.0))])
    assert canonical([]) == "[]"


@given(seeds=seeds_of_an_item, chance=st.randoms())
def test_canonical_keeps_everything_but_the_order_of_objects(seeds: tuple[Seed, ...], chance: random.Random) -> None:
    shuffled = list(seeds)
    chance.shuffle(shuffled)
    text = canonical(shuffled)
    assert text == canonical(seeds)
    read = {
        Seed(
            object_id=seed["object_id"],
            points=tuple(Point(x, y, positive=label == 1) for x, y, label in seed["points"]),
            category=seed["category"],
            frame=seed["frame"],
            box=None if seed["box"] is None else tuple(seed["box"]),
            time_s=seed["time_s"],
        )
        for seed in json.loads(text)
    }
    assert read == set(seeds)


@pytest.mark.parametrize(
    "change",
    [
        {"object_id": 2},
        {"category": "cat"},
        {"frame": 1},
        {"time_s": 0.0},
        {"box": (0.0, 0.0, 9.0, 9.0)},
        {"points": (Point(1.0, 2.0, positive=False),)},
        {"points": (Point(1.0, 2.0000000001),)},
        {"points": (Point(1.0, 2.0), Point(1.0, 2.0))},
    ],
)
def test_canonical_tells_seeds_apart(change: dict[str, Any]) -> None:
    assert canonical([replace(ONE[0], **change)]) != canonical(ONE)


def test_canonical_keeps_the_order_of_points() -> None:
    there, back = Seed(1, (Point(1.0, 2.0), Point(3.0, 4.0))), Seed(1, (Point(3.0, 4.0), Point(1.0, 2.0)))
    assert canonical([there]) != canonical([back])
