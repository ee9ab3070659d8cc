"""Reads TCP headers and their options. Source: RFC 9293 section 3.1, RFC 7323 (time stamps), RFC
2018 (SACK).
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

from netdissect.model.native import i64, read_i64_be

_MIN_HEADER: Final = 20
_OPTION_END: Final = 0
_OPTION_NOP: Final = 1
_OPTION_SACK: Final = 5
_OPTION_TIMESTAMPS: Final = 8
_TIMESTAMPS_LENGTH: Final = 10
"""Size of the time stamp option with kind and length, bytes. Source: RFC 7323 section 3.2."""
_OPTION_HEADER: Final = 2
"""Size of the kind and length of an option, bytes."""
_USUAL_HEADER: Final = 32
"""Size of a header with only two NOPs and time stamps as options, bytes."""
_USUAL_OPTIONS: Final = 0x0101_080A
"""First four bytes of such options, which almost every segment has."""

_U32: Final = 0xFFFF_FFFF

_pair: Final = Struct(">II").unpack_from

_Sack: TypeAlias = tuple[tuple[int, int], ...]

SegmentHeader: TypeAlias = tuple[int, int, int, int, bytes, int, tuple[int, int] | None, _Sack]
"""The header of one segment, as a plain tuple, which costs nothing in compiled code:

sequence number on the wire, acknowledgement number, flags (low 8 bits), window (unscaled), captured
data, size of the data on the wire (-1 if the header is broken or not captured), time stamp option
(value, echo), SACK blocks.
"""
_BROKEN: Final[SegmentHeader] = (0, 0, 0, 0, b"", -1, None, ())


def read_segment(data: bytes, start: i64, end: i64) -> SegmentHeader:
    """Return the header of the segment at `start`.

    Args:
        data: a buffer that holds the segment, and perhaps other frames behind it.
        start: offset of the TCP header.
        end: offset of the end of the segment, by its IP length; may be behind the captured bytes.

    """
    captured: i64 = len(data)
    options = start + _MIN_HEADER
    if captured < options:
        return _BROKEN
    # Both numbers; header length, flags, window, checksum.
    first, second = read_i64_be(data, start + 4), read_i64_be(data, start + 12)
    body = start + (second >> 60 & 0xF) * 4
    if body < options or body > end:
        return _BROKEN
    timestamps: tuple[int, int] | None = None
    sack: _Sack = ()
    if body == start + _USUAL_HEADER and captured >= body and (
        read_i64_be(data, options - 4) & _U32 == _USUAL_OPTIONS
    ):  # fmt: skip
        stamps = read_i64_be(data, options + 4)
        timestamps = int(stamps >> 32 & _U32), int(stamps & _U32)
    elif body > options:
        timestamps, sack = _options(data[options:body])
    return (
        int(first >> 32 & _U32), int(first & _U32), int(second >> 48 & 0xFF),
        int(second >> 32 & 0xFFFF), data[body:end], int(end - body), timestamps, sack,
    )  # fmt: skip


def _options(data: bytes) -> tuple[tuple[int, int] | None, _Sack]:
    """Return (time stamps, SACK blocks). Reading stops at an option that overruns the header."""
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
            # Only whole blocks of two numbers are read.
            sack += [_pair(data, block) for block in range(pos + 2, pos + size - 7, 8)]
        pos += size
    return timestamps, tuple(sack)
