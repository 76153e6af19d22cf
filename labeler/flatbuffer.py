"""Tell a whole .tflite file from one that was cut short, without LiteRT, which crashes on some of those.

A flatbuffer has no length field, so the furthest place that the file refers to is compared with its size. Walks
the tables at which the converters end a file: operator codes and weight buffers (field numbers of schema.fbs of
TensorFlow Lite).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

IDENTIFIER = b"TFL3"
_OPERATOR_CODES, _BUFFERS = 1, 4
_DATA, _OFFSET, _SIZE = 0, 1, 2


def fault(path: Path) -> str | None:
    """Why `path` cannot be a whole TFLite file, or None. Raises OSError if it cannot be read."""
    if path.stat().st_size < 8:
        return "is not a TFLite file"
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[4:8] != IDENTIFIER:
            return "is not a TFLite file"
        try:
            needed = _furthest(data)
        except (struct.error, ValueError):
            return "is cut short or damaged"
        return f"is cut short ({len(data)} bytes, its tables reach to {needed})" if needed > len(data) else None


def _furthest(data: mmap.mmap) -> int:
    """One past the last byte that the file's tables refer to."""
    root = _follow(data, 0)
    ends = [_table_end(data, table) for table in _tables(data, root, _OPERATOR_CODES)]
    for table in _tables(data, root, _BUFFERS):
        ends += [_table_end(data, table), _weights_end(data, table)]
    return max(ends)


def _weights_end(data: mmap.mmap, table: int) -> int:
    if place := _field(data, table, _DATA):
        vector = _follow(data, place)
        return vector + 4 + _u32(data, vector)
    offset, size = _field(data, table, _OFFSET), _field(data, table, _SIZE)
    # Weights behind the flatbuffer proper. The published layout has offset 1 where a buffer is empty.
    return _u64(data, offset) + _u64(data, size) if offset and size else 0


def _tables(data: mmap.mmap, table: int, field: int) -> Iterator[int]:
    vector = _follow(data, _field(data, table, field))
    for i in range(_u32(data, vector)):
        yield _follow(data, vector + 4 + 4 * i)


def _table_end(data: mmap.mmap, table: int) -> int:
    return table + int(struct.unpack_from("<H", data, _vtable(data, table) + 2)[0])


def _field(data: mmap.mmap, table: int, index: int) -> int:
    """Where a table keeps a field; 0 if it has none."""
    vtable = _vtable(data, table)
    length = struct.unpack_from("<H", data, vtable)[0]
    place = 4 + 2 * index
    offset = struct.unpack_from("<H", data, vtable + place)[0] if place < length else 0
    return table + int(offset) if offset else 0


def _vtable(data: mmap.mmap, table: int) -> int:
    return table - int(struct.unpack_from("<i", data, table)[0])


def _follow(data: mmap.mmap, place: int) -> int:
    return place + _u32(data, place)


def _u32(data: mmap.mmap, place: int) -> int:
    return int(struct.unpack_from("<I", data, place)[0])


def _u64(data: mmap.mmap, place: int) -> int:
    return int(struct.unpack_from("<Q", data, place)[0])
