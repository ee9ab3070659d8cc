"""How Riptide's user values travel: whole octets in 2.0 and 2.1dev, bits since 2.1.

Source: docs/protocols/riptide.md section 4; Riptide `Message.Add*`/`Get*`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from netdissect.wire.cursor import Cursor, Sink
from netdissect.wire.values import ValueRow
from netdissect.wire.varint import read_varulong_bits, unzigzag, varulong_groups, zigzag

__all__ = ["BIT_VALUES", "BYTE_VALUES"]

ALIASES = {
    "byte[]": "byte[]", "bytes": "byte[]", "sbytes": "sbyte[]", "bools": "bool[]",
    "shorts": "short[]", "ushorts": "ushort[]", "ints": "int[]", "uints": "uint[]",
    "longs": "long[]", "ulongs": "ulong[]", "floats": "float[]", "doubles": "double[]",
    "strings": "string[]", "Vector2": "float[2]", "Vector3": "float[3]", "Quaternion": "float[4]",
    "vector2": "float[2]", "vector3": "float[3]", "quaternion": "float[4]",
}  # fmt: skip
"""The plural names of the vectors, and Unity's structures (x, y, z, w as floats)."""
LONG_LENGTH = 0x80
"""An array length in the byte layout takes two octets from here on, high octet first, bit 15 set.
"""


def _number(fmt: str) -> ValueRow:
    layout = struct.Struct("<" + fmt)

    def read(cursor: Cursor, _size: int | None) -> Any:
        return layout.unpack(cursor.take(layout.size))[0]

    def write(sink: Sink, value: Any, _size: int | None) -> None:
        sink.put(layout.pack(value or 0))

    return ValueRow(read, write)


def _read_octets(cursor: Cursor, count: int | None) -> bytes:
    return cursor.take(count or 0)


def _write_octets(sink: Sink, value: Any, _count: int | None) -> None:
    sink.put(bytes.fromhex(value) if isinstance(value, str) else bytes(value))


def _string(count: Callable[[Cursor], int], put_count: Callable[[Sink, int], None]) -> ValueRow:
    def read(cursor: Cursor, _size: int | None) -> str:
        return cursor.take(count(cursor)).decode("utf-8", "surrogateescape")

    def write(sink: Sink, value: Any, _size: int | None) -> None:
        octets = (value or "").encode("utf-8", "surrogateescape")
        put_count(sink, len(octets))
        sink.put(octets)

    return ValueRow(read, write)


_NUMBERS: Mapping[str, ValueRow] = {
    "byte": _number("B"), "sbyte": _number("b"), "short": _number("h"), "ushort": _number("H"),
    "int": _number("i"), "uint": _number("I"), "long": _number("q"), "ulong": _number("Q"),
    "float": _number("f"), "double": _number("d"), "byte[]": ValueRow(_read_octets, _write_octets),
}  # fmt: skip


class _Values:
    """What both layouts share: values follow each other, objects have no head, nothing is null."""

    aliases: Mapping[str, str] = ALIASES
    scalars: Mapping[str, ValueRow]

    def present(self, cursor: Cursor) -> bool:
        """Every value is there."""
        return True

    def put_present(self, sink: Sink, *, present: bool) -> bool:
        """Nothing precedes a value; a missing one is written as zero."""
        return True

    def enter(self, cursor: Cursor) -> Cursor | None:
        """Objects are their fields."""
        return cursor

    def wrap(self, sink: Sink, body: Sink) -> None:
        """Objects are their fields."""
        sink.put(body.getvalue())


# --- whole octets -----------------------------------------------------------------------------


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


class _ByteValues(_Values):
    scalars = {
        **_NUMBERS,
        "bool": ValueRow(
            lambda cursor, _size: cursor.take(1) == b"\x01",
            lambda sink, value, _size: sink.put(b"\x01" if value else b"\x00"),
        ),
        "bool[]": ValueRow(_read_packed_bools, _write_packed_bools),
        "string": _string(_byte_count, _put_byte_count),
    }

    def count(self, cursor: Cursor) -> int:
        """Read one octet, or two with the high one first and bit 15 set."""
        return _byte_count(cursor)

    def put_count(self, sink: Sink, count: int) -> None:
        """Append one octet, or two from 128 on."""
        _put_byte_count(sink, count)


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


def _bits_row() -> ValueRow:
    return ValueRow(
        lambda cursor, size: cursor.bits(size or 1),
        lambda sink, value, size: sink.bits(value or 0, size or 1),
    )


class _BitValues(_Values):
    scalars = {
        **_NUMBERS,
        "bool": ValueRow(
            lambda cursor, _size: bool(cursor.bits(1)),
            lambda sink, value, _size: sink.bits(1 if value else 0, 1),
        ),
        "string": _string(_varulong, _put_varulong),
        "varulong": ValueRow(
            lambda cursor, _size: _varulong(cursor),
            lambda sink, value, _size: _put_varulong(sink, value or 0),
        ),
        "varlong": ValueRow(
            lambda cursor, _size: unzigzag(_varulong(cursor)),
            lambda sink, value, _size: _put_varulong(sink, zigzag(value or 0)),
        ),
        "bits": _bits_row(),
    }

    def count(self, cursor: Cursor) -> int:
        """Read a varULong."""
        return _varulong(cursor)

    def put_count(self, sink: Sink, count: int) -> None:
        """Append a varULong."""
        _put_varulong(sink, count)


BYTE_VALUES = _ByteValues()
"""Values of riptide-2.0 and riptide-2.1dev."""
BIT_VALUES = _BitValues()
"""Values of riptide-2.1 and riptide-2.2."""
