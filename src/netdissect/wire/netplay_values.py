"""How Netplay's values travel: big-endian, counted; bin2 and bin3 put a presence byte before each.

Source: docs/protocols/netplay.md section 3.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from netdissect.wire.cursor import Cursor, Sink
from netdissect.wire.values import BareValues, ValueRow, number

__all__ = ["NULLABLE_VALUES", "PLAIN_VALUES", "TYPES"]


def _write_float(sink: Sink, value: Any, _size: int | None) -> None:
    """Append a float; "inf", "-inf" and "NaN" are taken as JSON shows them."""
    sink.put(struct.pack(">f", float(0.0 if value is None else value)))


def _read_string(cursor: Cursor, _size: int | None) -> str:
    """Read true UTF-8; what is none reads as U+FFFD, as in the receiver."""
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
"""Type names of a schema. `byte` is signed, as in Java."""


class _PlainValues(BareValues):
    """bin1: nothing precedes a value; an object has a has-object byte and its size."""

    def enter(self, cursor: Cursor) -> Cursor | None:
        """Read has-object and the size; has-object 00 is null with nothing after it."""
        return _sized(cursor) if cursor.take(1) != b"\0" else None

    def wrap(self, sink: Sink, body: Sink) -> None:
        """Append has-object 01, the size and the fields."""
        sink.put(b"\1")
        _put_sized(sink, body)


class _NullableValues(_PlainValues):
    """bin2 and bin3: a presence byte before every value; that of an object is its has-object."""

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
