"""JSON read piece by piece equals JSON read at once, wherever the pieces end."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler import jsonstream

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(st.text(), VALUES, max_size=4)


class Slow(io.StringIO):
    """Gives few characters at a time, whatever was asked for."""

    def __init__(self, text: str, step: int) -> None:
        super().__init__(text)
        self.step = step

    def read(self, size: int | None = -1) -> str:
        return super().read(min(size or 0, self.step))


def whole(text: str, step: int) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for name, index, value in jsonstream.members(Slow(text, step)):
        if index is None:
            document[name] = value
        else:
            assert index == len(document[name])
            document[name].append(value)
    return document


@given(DOCUMENTS, st.integers(1, 20), st.sampled_from([None, 1]), st.booleans())
def test_equals_json_wherever_pieces_end(document: Any, step: int, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    assert whole(text, step) == document


def test_numbers_are_not_cut_where_a_piece_ends() -> None:
    assert whole('{"a": 12345, "b": [1e10, -0.25]}', 1) == {"a": 12345, "b": [1e10, -0.25]}


def test_cut_anywhere_it_is_refused() -> None:
    text = '{"a": [1, {"b": "c\\u00e4"}], "d": null}'
    for end in range(len(text)):
        with pytest.raises(ValueError, match="line 1: "):
            whole(text[:end], 7)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[1]", "line 1: '{' is expected"),
        ('{"a": 1}\n\n x', "line 3: something follows"),
        ('{"a": 1,\n"b" 2}', "line 2: ':' is expected"),
        ('{"a": [1,\n\n2 3]}', "line 3: '\\]' is expected"),
        ('{"a": [1,\n]}', "line 2: Expecting value"),
        ("{1: 2}", "line 1: a name in quotes"),
        ('{"a": ' + "[" * 200_000, "recursion"),
    ],
)
@pytest.mark.parametrize("step", [3, 100_000])
def test_faults_have_their_line(text: str, what: str, step: int) -> None:
    if step == 3 and len(text) > 1000:
        text = text[:1000] + "]"  # deep enough to be cut short, too shallow to exhaust the stack
        what = "line 1"
    with pytest.raises(ValueError, match=what):
        whole(text, step)


def test_memory_is_that_of_one_entry() -> None:
    read = 0

    class Counting(io.StringIO):
        def read(self, size: int | None = -1) -> str:
            nonlocal read
            text = super().read(size)
            read += len(text)
            return text

    stream = Counting(json.dumps({"a": ["x" * 1000] * 20_000}))
    for name, index, _ in jsonstream.members(stream):
        if (name, index) == ("a", 10):
            break
    assert read <= 2 * jsonstream.CHUNK
