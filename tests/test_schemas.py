"""The schemas and the code that reads or writes the files say the same.

Seeds, bundle: whatever the parser takes, the schema takes; what the schema can tell to be wrong, the parser refuses.
Journal, run manifest: whatever is written fits; the reader of the journal trusts its own lines beyond that.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from labeler import bundle, seeds
from labeler.errors import BundleError, JournalError, SeedError
from labeler.journal import Header, Journal, JournalReader
from labeler.types import Annotation, Record

REPOSITORY = Path(__file__).resolve().parent.parent
CORPUS = Path(__file__).parent / "data"
SCHEMAS = {path.name.split(".")[0]: json.loads(path.read_text()) for path in (REPOSITORY / "schemas").glob("*.json")}
REGISTRY: Registry[Any] = Registry().with_resources(
    (schema["$id"], Resource.from_contents(schema)) for schema in SCHEMAS.values()
)
BUNDLES = [*REPOSITORY.glob("models/*/bundle.json"), *REPOSITORY.glob("labeler/published/*.json")]


def fits(document: Any, name: str, part: str = "") -> bool:
    reference = {"$ref": SCHEMAS[name]["$id"] + part}
    return Draft202012Validator(reference, registry=REGISTRY).is_valid(document)


def strict_json(raw: bytes) -> Any:
    """What a reader takes that knows nothing but RFC 8259 and minds repeated keys. Raises ValueError."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("repeated key")
        return dict(pairs)

    def refuse(word: str) -> None:
        raise ValueError(word)

    return json.loads(raw.decode("utf-8-sig"), object_pairs_hook=once, parse_constant=refuse)


def changed(document: Any, place: str, value: Any) -> Any:
    """A copy with the value at a dotted place; `...` takes it out."""
    *steps, last = [int(step) if step.isdigit() else step for step in place.split(".")]
    found = document = copy.deepcopy(document)
    for step in steps:
        found = found[step]
    if value is ...:
        del found[last]
    else:
        found[last] = value
    return document


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])


def test_there_are_four_schemas() -> None:
    assert sorted(SCHEMAS) == ["bundle", "journal-record", "run", "seeds"]


# Seeds


def seeds_fit(path: Path) -> bool:
    """Raises ValueError where the file is not JSON."""
    if path.suffix == ".jsonl":
        lines = [strict_json(line) for line in path.read_bytes().split(b"\n") if line.strip()]
        if not lines:
            raise ValueError("no item")
        return all(fits(line, "seeds", "#/$defs/item") for line in lines)
    return fits(strict_json(path.read_bytes()), "seeds")


def seeds_load(path: Path) -> bool:
    try:
        seeds.load(path)
    except SeedError:
        return False
    return True


def corpus(folder: str) -> list[Any]:
    return [pytest.param(path, id=path.name) for path in sorted((CORPUS / "seeds" / folder).iterdir())]


@pytest.mark.parametrize("path", corpus("good"))
def test_good_seeds_pass_both(path: Path) -> None:
    assert seeds_fit(path)
    assert seeds_load(path)


@pytest.mark.parametrize("path", corpus("bad/json"))
def test_seeds_that_are_not_json_fail_both(path: Path) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # decoding, JSON and our own refusals alike
        seeds_fit(path)
    assert not seeds_load(path)


@pytest.mark.parametrize("path", corpus("bad/schema"))
def test_seeds_of_a_wrong_form_fail_both(path: Path) -> None:
    assert not seeds_fit(path)
    assert not seeds_load(path)


@pytest.mark.parametrize("path", corpus("bad/semantic"))
def test_seeds_whose_values_contradict_each_other_fail_the_parser_alone(path: Path) -> None:
    assert seeds_fit(path)
    assert not seeds_load(path)


def places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a document with each of its keys or indices."""
    for key in list(document if isinstance(document, dict) else range(len(document))):
        yield document, key
        if isinstance(document[key], dict | list):
            yield from places(document[key])


GOOD_DOCUMENTS = [strict_json(path.read_bytes()) for path in sorted((CORPUS / "seeds" / "good").glob("*.json"))]
KEYS = st.sampled_from(["id", "box", "points", "labels", "frame", "time_s", "file", "version", "category", "x"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 10**10)
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "a.jpg", "/a", "..", "cat ", "a\\b", "a\n", "c:/x", "./", "\n", "../\n"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def spoiled(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """A good document with a few things taken out, replaced or added."""
    document = copy.deepcopy(draw(st.sampled_from([each for each in GOOD_DOCUMENTS if each])))
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(list(places(document)) or [(document, "x")]))
        action = draw(st.sampled_from(["out", "in", "add"]))
        if action == "out" and key in (holder if isinstance(holder, dict) else range(len(holder))):
            del holder[key]
        elif action == "in":
            holder[key] = draw(VALUES)
        elif isinstance(holder, dict):
            holder[draw(KEYS)] = draw(VALUES)
        else:
            holder.append(draw(VALUES))
    return document


@given(document=spoiled() | VALUES)
def test_no_seeds_pass_the_parser_and_fail_the_schema(tmp_path_factory: pytest.TempPathFactory, document: Any) -> None:
    path = tmp_path_factory.mktemp("spoiled") / "seeds.json"
    path.write_text(json.dumps(document))
    assert fits(document, "seeds") or not seeds_load(path)


# Bundle


def bundle_parses(document: Any) -> bool:
    try:
        bundle.parse(document, folder=Path(), where="bundle.json")
    except BundleError:
        return False
    return True


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.name)
def test_good_bundles_pass_both_and_come_back(path: Path) -> None:
    document = strict_json(path.read_bytes())
    assert fits(document, "bundle")
    parsed = bundle.parse(document, folder=path.parent, where=str(path))
    assert fits(bundle.describe(parsed), "bundle")
    assert bundle.parse(bundle.describe(parsed), folder=path.parent, where=str(path)) == parsed


def test_there_are_bundles_to_compare() -> None:
    assert len(BUNDLES) >= 2


@pytest.mark.parametrize("place", ["image_candidate_0", "provenance", "graphs.encode.bytes", "graphs.encode.sha256"])
def test_optional_keys_of_a_bundle(place: str) -> None:
    document = changed(strict_json(BUNDLES[0].read_bytes()), place, ...)
    assert fits(document, "bundle")
    assert bundle_parses(document)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("schema", ...),
        ("schema", "sam2label/bundle/2"),
        ("name", ...),
        ("name", 5),
        ("version", 1),
        ("license", None),
        ("origin", ...),
        ("stills", "both"),
        ("stills", ...),
        ("image_candidate_0", "first"),
        ("provenance", []),
        ("graphs", []),
        ("graphs.encode", None),
        ("graphs.encode", "sam2v_encode.tflite"),
        ("graphs.encode.file", ...),
        ("graphs.encode.file", ""),
        ("graphs.encode.file", "."),
        ("graphs.encode.file", "sub/encode.tflite"),
        ("graphs.encode.file", "..\\encode.tflite"),
        ("graphs.encode.bytes", "4494336"),
        ("graphs.encode.bytes", True),
        ("graphs.encode.sha256", 5),
        ("graphs.encode.layout", "round"),
        ("graphs.encode.inputs", ...),
        ("graphs.encode.inputs", []),
        ("graphs.encode.inputs", None),
        ("graphs.encode.inputs.0", "image"),
        ("graphs.encode.inputs.0.name", ...),
        ("graphs.encode.inputs.0.shape", ...),
        ("graphs.encode.inputs.0.shape", 3),
        ("graphs.encode.inputs.0.shape.0", 0),
        ("graphs.encode.inputs.0.shape.0", True),
        ("graphs.encode.inputs.0.shape.0", 1.5),
        ("constants", ...),
        ("constants.prompt", 3),
        ("constants.prompt.parts", {}),
        ("constants.prompt.file", "/etc/constants.bin"),
    ],
)
def test_bad_bundles_fail_both(place: str, value: Any) -> None:
    document = changed(strict_json(BUNDLES[0].read_bytes()), place, value)
    assert not fits(document, "bundle")
    assert not bundle_parses(document)


@pytest.mark.parametrize("document", [None, [], "bundle", {}])
def test_documents_that_are_no_bundle_fail_both(document: Any) -> None:
    assert not fits(document, "bundle")
    assert not bundle_parses(document)


# Journal

JOURNAL = (CORPUS / "journal" / "good.jsonl").read_bytes().splitlines(keepends=True)
HEADER, RECORD, _, FAILED, _, OUTPUT = (strict_json(line) for line in JOURNAL)


@pytest.mark.parametrize("line", JOURNAL)
def test_good_journal_lines_fit(line: bytes) -> None:
    assert fits(strict_json(line), "journal-record")


def test_the_reader_takes_the_good_journal() -> None:
    with JournalReader(CORPUS / "journal" / "good.jsonl") as reader:
        assert [record["key"] for record in reader.records()] == ["a/b.jpg", "broken.jpg", "nothing.png", "walk.mp4"]


@pytest.mark.parametrize(("part", "kind"), [("record", Record), ("annotation", Annotation)])
def test_the_schema_names_every_field(part: str, kind: type) -> None:
    names = sorted(field.name for field in fields(kind))
    assert sorted(SCHEMAS["journal-record"]["$defs"][part]["properties"]) == names
    assert sorted(SCHEMAS["journal-record"]["$defs"][part]["required"]) == names


def test_the_schema_names_every_field_of_the_header() -> None:
    names = sorted(["schema", *(field.name for field in fields(Header))])
    assert sorted(SCHEMAS["journal-record"]["$defs"]["header"]["required"]) == names


def test_what_the_journal_writes_fits(tmp_path: Path) -> None:
    annotation = Annotation(
        **RECORD["annotations"][0]
        | {"bbox": (1.0, 0.0, 2.0, 3.0), "points": ((1.5, 1.0, 1),), "box": (0.0, 0.0, 9.0, 9.0)}
    )
    with Journal(tmp_path, Header("videos", "0.1.0", "a" * 64, {"exif": "apply"})) as journal:
        journal.append(Record("ü.mp4", 3, "b" * 64, "done", 3, 5, annotations=(annotation,), notes=("n",), time_s=0.12))
        journal.append(Record("ü.mp4", 4, "b" * 64, "failed", error="ü.mp4: frame 4: cut short"))
        journal.announce("annotations.json", "c" * 64)
    lines = (tmp_path / "journal.jsonl").read_bytes().splitlines()
    assert len(lines) == 4
    assert all(fits(strict_json(line), "journal-record") for line in lines)


@pytest.mark.parametrize(
    ("line", "place", "value"),
    [
        (HEADER, "schema", "sam2label/journal/2"),
        (HEADER, "kind", "sounds"),
        (HEADER, "bundle", "mini"),
        (HEADER, "options", None),
        (HEADER, "program", ...),
        (HEADER, "host", "here"),
        (OUTPUT, "output.sha256", ...),
        (OUTPUT, "output.name", ""),
        (RECORD, "key", ...),
        (RECORD, "frame", -1),
        (RECORD, "frame", "0"),
        (RECORD, "fingerprint", "F" * 64),
        (RECORD, "fingerprint", "1" * 64 + "\n"),
        (RECORD, "status", "skipped"),
        (RECORD, "status", "failed"),
        (RECORD, "height", 0),
        (RECORD, "error", "done all the same"),
        (RECORD, "exif_orientation", 9),
        (RECORD, "extra", 1),
        (RECORD, "notes", "one"),
        (FAILED, "error", None),
        (FAILED, "error", ""),
        (RECORD, "annotations", None),
        (RECORD, "annotations.0.object_id", 0),
        (RECORD, "annotations.0.area", 1.5),
        (RECORD, "annotations.0.bbox", [1, 2, 3]),
        (RECORD, "annotations.0.bbox", None),
        (RECORD, "annotations.0.rle.counts", [3, 4]),
        (RECORD, "annotations.0.rle.size", [3]),
        (RECORD, "annotations.0.visible", 1),
        (RECORD, "annotations.0.points.0", [1, 2]),
        (RECORD, "annotations.0.points.0", [1, 2, 2]),
        (RECORD, "annotations.0.box", [1, 2, 3]),
        (RECORD, "annotations.0.chosen", ...),
    ],
)
def test_bad_journal_lines_do_not_fit(line: Any, place: str, value: Any) -> None:
    assert not fits(changed(line, place, value), "journal-record")


@pytest.mark.parametrize("place", ["schema", "kind", "program", "bundle", "options"])
def test_headers_that_the_reader_refuses_do_not_fit(place: str, tmp_path: Path) -> None:
    header = changed(HEADER, place, ...)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(json.dumps(header).encode() + b"\n")
    with pytest.raises(JournalError, match="line 1"):
        JournalReader(path)
    assert not fits(header, "journal-record")


@pytest.mark.parametrize("place", ["key", "frame", "fingerprint", "status"])
def test_records_that_the_reader_refuses_do_not_fit(place: str, tmp_path: Path) -> None:
    record = changed(RECORD, place, ...)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(JOURNAL[0] + json.dumps(record).encode() + b"\n")
    with pytest.raises(JournalError, match="line 2"):
        JournalReader(path)
    assert not fits(record, "journal-record")


# Run manifest

RUN = strict_json((CORPUS / "run" / "good.json").read_bytes())


@pytest.mark.parametrize(
    ("place", "value"),
    [("seeds", {"path": None, "sha256": None}), ("kind", "videos"), ("unmatched", ...), ("machine", {"cores": 2})],
)
def test_good_manifests_fit(place: str, value: Any) -> None:
    assert fits(RUN, "run")
    assert fits(changed(RUN, place, value), "run")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *[(name, ...) for name in SCHEMAS["run"]["required"]],
        ("versions.numpy", 2),
        ("bundle.digest", "mini"),
        ("bundle.graphs.encode", "1" * 64),
        ("bundle.graphs.encode.sha256", None),
        ("accelerator.encode", "tpu"),
        ("seeds.sha256", ...),
        ("counts.failed", -1),
        ("workers", 0),
        ("started", "yesterday"),
        ("finished", "2026-01-02T03:04:05"),
    ],
)
def test_bad_manifests_do_not_fit(place: str, value: Any) -> None:
    assert not fits(changed(RUN, place, value), "run")
