"""Reads TCP headers and their options. Source: RFC 9293 section 3.1, RFC 7323 (time stamps), RFC
2018 (SACK).
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

__all__ = ["SegmentHeader", "read_segment"]

_MIN_HEADER: Final = 20
_OPTION_END: Final = 0
_OPTION_NOP: Final = 1
_OPTION_SACK: Final = 5
_OPTION_TIMESTAMPS: Final = 8
_TIMESTAMPS_LENGTH: Final = 10
_USUAL_HEADER: Final = 32
_OPTION_HEADER: Final = 2
_USUAL_OPTIONS: Final = b"\x01\x01\x08\x0a"
"""How almost every segment's 12 bytes of options begin: two NOPs, then time stamps."""

_header: Final = Struct(">IIBBH").unpack_from
_pair: Final = Struct(">II").unpack_from

_Sack: TypeAlias = tuple[tuple[int, int], ...]

SegmentHeader: TypeAlias = tuple[int, int, int, int, bytes, int, tuple[int, int] | None, _Sack]
"""What one segment says. A plain tuple, which costs nothing where this is compiled:

sequence number on the wire, acknowledgement number, flags (low 8 bits), window (unscaled), captured
bytes of data, bytes of data on the wire, time stamp option (value, echo), SACK blocks.
"""
_Fixed: TypeAlias = tuple[int, int, int, int, int]


def read_segment(data: bytes, start: int, end: int) -> SegmentHeader | None:
    """Return the segment at `start`, or None where its header is broken or not captured.

    Args:
        data: a buffer that holds it.
        start: offset of the TCP header.
        end: offset behind the segment by its IP length; may lie behind the captured bytes.

    """
    if len(data) < start + _MIN_HEADER:
        return None
    fixed: _Fixed = _header(data, start + 4)
    seq, ack, size, flags, window = fixed
    body = start + (size >> 4) * 4
    if body < start + _MIN_HEADER or body > end:
        return None
    timestamps: tuple[int, int] | None = None
    sack: _Sack = ()
    options = start + _MIN_HEADER
    if body == start + _USUAL_HEADER and data[options : options + 4] == _USUAL_OPTIONS:
        if len(data) >= body:
            timestamps = _pair(data, options + 4)
    elif body > options:
        timestamps, sack = _options(data[options:body])
    return (seq, ack, flags, window, data[body:end], end - body, timestamps, sack)


def _options(data: bytes) -> tuple[tuple[int, int] | None, _Sack]:
    """Return (time stamps, SACK blocks); an option that overruns its room ends the reading."""
    timestamps: tuple[int, int] | None = None
    sack: list[tuple[int, int]] = []
    pos = 0
    while pos < len(data) and data[pos] != _OPTION_END:
        if data[pos] == _OPTION_NOP:
            pos += 1
            continue
        size = data[pos + 1] if pos + 1 < len(data) else 0
        if size < _OPTION_HEADER or pos + size > len(data):
            break
        if data[pos] == _OPTION_TIMESTAMPS and size == _TIMESTAMPS_LENGTH:
            timestamps = _pair(data, pos + 2)
        elif data[pos] == _OPTION_SACK:
            sack += [_pair(data, block) for block in range(pos + 2, pos + size - 7, 8)]
        pos += size
    return timestamps, tuple(sack)
