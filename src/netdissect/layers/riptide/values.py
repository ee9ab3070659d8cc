"""The encoding of values in user messages: whole bytes in 2.0 and 2.1dev, bits since 2.1.

*Source:* docs/protocols/riptide.md section 4; Riptide `Message.Add*`/`Get*`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdissect.wire.cursor import Cursor, Sink
from netdissect.wire.values import BITS, OCTETS, ValueRow, Values, number, string
from netdissect.wire.varint import read_varulong_bits, unzigzag, varulong_groups, zigzag

ALIASES = {
    "byte[]": "byte[]", "bytes": "byte[]", "sbytes": "sbyte[]", "bools": "bool[]",
    "shorts": "short[]", "ushorts": "ushort[]", "ints": "int[]", "uints": "uint[]",
    "longs": "long[]", "ulongs": "ulong[]", "floats": "float[]", "doubles": "double[]",
    "strings": "string[]", "Vector2": "float[2]", "Vector3": "float[3]", "Quaternion": "float[4]",
    "vector2": "float[2]", "vector3": "float[3]", "quaternion": "float[4]",
}  # fmt: skip
"""Plural names of arrays, and Unity's structures, whose members x, y, z and w are floats."""
LONG_LENGTH = 0x80
"""Smallest array length that takes two bytes in the byte layout: big-endian, with bit 15 set."""


_NUMBERS: Mapping[str, ValueRow] = {
    "byte": number("B"), "sbyte": number("b"), "short": number("h"), "ushort": number("H"),
    "int": number("i"), "uint": number("I"), "long": number("q"), "ulong": number("Q"),
    "float": number("f"), "double": number("d"), "byte[]": OCTETS,
}  # fmt: skip


# --- whole bytes -----------------------------------------------------------------------------


def _byte_count(cursor: Cursor) -> int:
    first: int = cursor.take(1)[0]
    return (first & 0x7F) << 8 | cursor.take(1)[0] if first & 0x80 else first


def _put_byte_count(sink: Sink, count: int) -> None:
    sink.put(bytes([count]) if count < LONG_LENGTH else (count | 0x8000).to_bytes(2, "big"))


def _read_packed_bools(cursor: Cursor, count: int | None) -> list[bool]:
    number = int.from_bytes(cursor.take(((count or 0) + 7) // 8), "little")
    return [bool(number >> index & 1) for index in range(count or 0)]


def _write_packed_bools(sink: Sink, value: Any, _count: int | None) -> None:
    number = sum(1 << index for index, item in enumerate(value) if item)
    sink.put(number.to_bytes((len(value) + 7) // 8, "little"))


BYTE_VALUES = Values(
    {
        **_NUMBERS,
        "bool": ValueRow(
            lambda cursor, _size: cursor.take(1) == b"\x01",
            lambda sink, value, _size: sink.put(b"\x01" if value else b"\x00"),
        ),
        "bool[]": ValueRow(_read_packed_bools, _write_packed_bools),
        "string": string(_byte_count, _put_byte_count),
    },
    ALIASES,
    _byte_count,
    _put_byte_count,
)
"""Types of user values in riptide-2.0 and riptide-2.1dev."""


# --- bits -------------------------------------------------------------------------------------


def _varulong(cursor: Cursor) -> int:
    start = cursor.position
    window = cursor.data[start >> 3 : (start >> 3) + 11]
    end = min(cursor.end - (start & ~7), 8 * len(window))
    value, after, complete = read_varulong_bits(int.from_bytes(window, "little"), start & 7, end)
    if not complete:
        raise ValueError("unterminated or overlong varULong")
    cursor.position = (start & ~7) + after
    return value


def _put_varulong(sink: Sink, value: int) -> None:
    sink.bits(*varulong_groups(value))


BIT_VALUES = Values(
    {
        **_NUMBERS,
        "bool": ValueRow(
            lambda cursor, _size: bool(cursor.bits(1)),
            lambda sink, value, _size: sink.bits(1 if value else 0, 1),
        ),
        "string": string(_varulong, _put_varulong),
        "varulong": ValueRow(
            lambda cursor, _size: _varulong(cursor),
            lambda sink, value, _size: _put_varulong(sink, value or 0),
        ),
        "varlong": ValueRow(
            lambda cursor, _size: unzigzag(_varulong(cursor)),
            lambda sink, value, _size: _put_varulong(sink, zigzag(value or 0)),
        ),
        "bits": BITS,
    },
    ALIASES,
    _varulong,
    _put_varulong,
)
"""Types of user values in riptide-2.1 and riptide-2.2."""
