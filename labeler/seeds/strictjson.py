"""JSON whose repeated keys stay visible and whose errors are worded for people."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any


class Repeating(dict[str, Any]):
    """An object that has some key more than once, which a plain dict would hide."""

    repeated: tuple[str, ...] = ()


def parse(raw: bytes) -> Any:
    """The value of a JSON text in UTF-8. Raises ValueError with the reason."""
    try:
        return _DECODER.decode(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(
            f"is not UTF-8 (byte 0x{raw[error.start]:02x} at offset {error.start}); save it as UTF-8"
        ) from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        raise ValueError(f"is not JSON ({error.msg}: {place}); mend it there") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON of sane size ({error}); mend it") from None


def show(value: Any) -> str:
    """A found value as a message quotes it: short, on one line."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeating = Repeating(found)
    repeating.repeated = tuple(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
    return repeating


_DECODER = json.JSONDecoder(object_pairs_hook=_object)
