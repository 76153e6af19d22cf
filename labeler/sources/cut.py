"""Whether a video file's own structure says that it was longer: a copy or recording that broke off.

Demuxers come to the end of such a file without a word where the break falls between two packets.
"""

from __future__ import annotations

from io import BufferedReader
from os import SEEK_END

_MP4_DATA = (b"mdat", b"moof")
_MATROSKA, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"


def is_cut_short(stream: BufferedReader) -> bool:
    """True where the last MP4 data box, Matroska segment or AVI chunk ends behind the file. Other formats: False."""
    length = stream.seek(0, SEEK_END)
    stream.seek(0)
    head = stream.read(8)
    if head[:4] == _MATROSKA:
        return _matroska_end(stream) > length
    if head[:4] == b"RIFF":
        return _riff_end(stream, length) > length
    return head[4:8] == b"ftyp" and _mp4_end(stream, length) > length


def _mp4_end(stream: BufferedReader, length: int) -> int:
    """Where the last box that begins inside the file ends, if it holds frames (ISO/IEC 14496-12, 4.2)."""
    start = 0
    while start < length:
        stream.seek(start)
        head = stream.read(16)
        size = int.from_bytes(head[:4], "big")
        size = int.from_bytes(head[8:16], "big") if size == 1 else size
        if size < 8 or start + size > length:
            # Size 0 means "to the end of the file"; other small ones, or other kinds of boxes, are no boxes at all.
            return start + size if head[4:8] in _MP4_DATA else 0
        start += size
    return start


def _riff_end(stream: BufferedReader, length: int) -> int:
    """Where the last top-level chunk ends; large AVIs have several."""
    end = 0
    while end < length:
        stream.seek(end)
        head = stream.read(8)
        if head[:4] != b"RIFF":
            break
        end += 8 + int.from_bytes(head[4:], "little")
    return end


def _matroska_end(stream: BufferedReader) -> int:
    """Where the segment ends (RFC 8794, 4 and 6); 0 for one of unknown size, as live recordings have."""
    stream.seek(4)
    header = _variable_size(stream) or 0
    stream.seek(header, 1)
    if stream.read(4) != _SEGMENT:
        return 0
    size = _variable_size(stream)
    return 0 if size is None else stream.tell() + size


def _variable_size(stream: BufferedReader) -> int | None:
    first = (stream.read(1) or b"\0")[0]
    width = 9 - first.bit_length()
    if width > 8:
        return None
    value = int.from_bytes(bytes([first]) + stream.read(width - 1), "big") & ((1 << 7 * width) - 1)
    return None if value == (1 << 7 * width) - 1 else value
