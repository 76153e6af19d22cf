"""Read a JSON document of lists piece by piece, so that a file of gigabytes needs the memory of one entry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

CHUNK = 1 << 20
_DECODER = json.JSONDecoder()


def members(stream: IO[str]) -> Iterator[tuple[str, int | None, Any]]:
    """The members of a document that is one object: (name, None, value), or (name, index, entry) for lists.

    A list comes as (name, None, []) first, then entry by entry. Raises ValueError with the line of what is not JSON.
    """
    text = _Text(stream)
    text.take("{")
    if not text.next_is("}"):
        while True:
            name = text.value()
            if not isinstance(name, str):
                raise text.fault("a name in quotes is expected")
            text.take(":")
            yield from _member(text, name)
            if not text.next_is(","):
                break
            text.take(",")
    text.take("}")
    text.end()


def _member(text: _Text, name: str) -> Iterator[tuple[str, int | None, Any]]:
    if not text.next_is("["):
        yield name, None, text.value()
        return
    text.take("[")
    yield name, None, []
    index = 0
    if not text.next_is("]"):
        yield name, index, text.value()
        while text.next_is(","):
            text.take(",")
            index += 1
            yield name, index, text.value()
    text.take("]")


class _Text:
    """A window onto the stream that grows until it holds the value at its start."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._window = ""
        self._place = 0
        self._line = 1

    def value(self) -> Any:
        self._skip_space()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._window, self._place)
            except (ValueError, RecursionError) as error:
                if self._grow():
                    continue
                self._place = getattr(error, "pos", self._place)
                raise self.fault(str(getattr(error, "msg", error))) from None
            # A number near the window's end may go on after it: of 1e+5 the first three characters give 1.
            if len(self._window) - end > 2 or not self._grow():
                self._place = end
                return value

    def next_is(self, mark: str) -> bool:
        self._skip_space()
        return self._window.startswith(mark, self._place)

    def take(self, mark: str) -> None:
        if not self.next_is(mark):
            raise self.fault(f"{mark!r} is expected")
        self._place += 1

    def end(self) -> None:
        self._skip_space()
        if self._place < len(self._window):
            raise self.fault("something follows the end of the document")

    def fault(self, what: str) -> ValueError:
        line = self._line + self._window.count("\n", 0, self._place)
        return ValueError(
            f"line {line}: {what}" + ("" if self._place < len(self._window) else " (the file ends there)")
        )

    def _skip_space(self) -> None:
        while True:
            while self._place < len(self._window) and self._window[self._place] in " \t\r\n":
                self._place += 1
            if self._place < len(self._window) or not self._grow():
                return

    def _grow(self) -> bool:
        """Drop what was read and at least double the rest; False, and nothing changed, at the end of the stream."""
        more = self._stream.read(max(CHUNK, len(self._window) - self._place))
        if more:
            self._line += self._window.count("\n", 0, self._place)
            self._window, self._place = self._window[self._place :] + more, 0
        return bool(more)
