"""Encodings of Netplay's values: big-endian, with counts of 16 bits.

In bin2 and bin3 a presence byte precedes each value. Source: docs/protocols/netplay.md section 3.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from netdissect.wire.cursor import Cursor, Sink
from netdissect.wire.values import ValueRow, Values, number


def _write_float(sink: Sink, value: Any, _size: int | None) -> None:
    """Append a float, which may be "inf", "-inf" or "NaN", as JSON output writes them."""
    sink.put(struct.pack(">f", float(0.0 if value is None else value)))


def _read_string(cursor: Cursor, _size: int | None) -> str:
    """Read a string of UTF-8, with U+FFFD for other bytes, as the receiver does."""
    return cursor.take(_count(cursor)).decode("utf-8", "replace")


def _write_string(sink: Sink, value: Any, _size: int | None) -> None:
    octets = value if isinstance(value, bytes) else (value or "").encode("utf-8", "surrogatepass")
    _put_count(sink, len(octets))
    sink.put(octets)


def _count(cursor: Cursor) -> int:
    return int.from_bytes(cursor.take(2), "big")


def _put_count(sink: Sink, count: int) -> None:
    sink.put((count & 0xFFFF).to_bytes(2, "big"))


TYPES: Mapping[str, ValueRow] = {
    "byte": number("b", ">"),
    "boolean": ValueRow(
        lambda cursor, _size: cursor.take(1) != b"\0",
        lambda sink, value, _size: sink.put(b"\1" if value else b"\0"),
    ),
    "short": number("h", ">"),
    "int": number("i", ">"),
    "long": number("q", ">"),
    "float": ValueRow(number("f", ">").read, _write_float),
    "string": ValueRow(_read_string, _write_string),
}
"""Type name in a schema -> encoding. `byte` is signed, as in Java."""


class _PlainValues(Values):
    """Values of bin1: nothing precedes one. Objects begin with a has-object byte and a size."""

    def enter(self, cursor: Cursor) -> Cursor | None:
        """Read has-object and the size; has-object 00 is null with nothing after it."""
        return _sized(cursor) if cursor.take(1) != b"\0" else None

    def wrap(self, sink: Sink, body: Sink) -> None:
        """Append has-object 01, the size and the fields."""
        sink.put(b"\1")
        _put_sized(sink, body)


class _NullableValues(_PlainValues):
    """Values of bin2 and bin3: a presence byte precedes each, and replaces has-object."""

    def present(self, cursor: Cursor) -> bool:
        """Read the presence byte; any value but 00 means present."""
        return cursor.take(1) != b"\0"

    def put_present(self, sink: Sink, *, present: bool) -> bool:
        """Append 01, or 00 for null, which nothing follows."""
        sink.put(b"\1" if present else b"\0")
        return present

    def enter(self, cursor: Cursor) -> Cursor | None:
        """Read the size."""
        return _sized(cursor)

    def wrap(self, sink: Sink, body: Sink) -> None:
        """Append the size and the fields."""
        _put_sized(sink, body)


def _sized(cursor: Cursor) -> Cursor:
    """Read the size of an object; return a cursor for its fields."""
    size = _count(cursor)
    start = cursor.position
    cursor.take(size)
    cursor.position = start
    return Cursor(cursor.data, start, start + 8 * size)


def _put_sized(sink: Sink, body: Sink) -> None:
    octets = body.getvalue()
    _put_count(sink, len(octets))
    sink.put(octets)


_ALIASES = {"bool": "boolean", "String": "string"}
PLAIN_VALUES = _PlainValues(TYPES, _ALIASES, _count, _put_count)
"""Values of bin1."""
NULLABLE_VALUES = _NullableValues(TYPES, _ALIASES, _count, _put_count)
"""Values of bin2 and bin3."""
