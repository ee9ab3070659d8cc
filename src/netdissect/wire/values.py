"""Encodings of the values in a user's payload, as rows of a protocol's table."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from netdissect.wire.cursor import Cursor, Sink


@dataclass(frozen=True, slots=True)
class ValueRow:
    """The encoding of one scalar type."""

    read: Callable[[Cursor, int | None], Any]
    """(cursor, number in parentheses or array length) -> value; raises OutOfData or ValueError."""
    write: Callable[[Sink, Any, int | None], None]
    """(sink, value, the same number): appends the value."""


@dataclass(frozen=True, slots=True)
class Values:
    """The encodings of a protocol: a table of scalars, and how arrays and objects are framed.

    Here nothing precedes a value, objects have no head, and no value is null.
    """

    scalars: Mapping[str, ValueRow]
    """Type name -> row. A name with `[]` overrides the encoding of arrays of that type."""
    aliases: Mapping[str, str]
    """Alternative type name -> type name: "ints" -> "int[]"."""
    count: Callable[[Cursor], int]
    """Reads the length of an array."""
    put_count: Callable[[Sink, int], None]
    """Appends the length of an array."""

    def present(self, cursor: Cursor) -> bool:  # noqa: ARG002
        """Read what precedes every value; return False if the value is null."""
        return True

    def put_present(self, sink: Sink, *, present: bool) -> bool:  # noqa: ARG002 - None is zero
        """Append what precedes every value; return whether the value itself follows."""
        return True

    def enter(self, cursor: Cursor) -> Cursor | None:
        """Read the head of an object; return the cursor for its fields, None for a null object."""
        return cursor

    def wrap(self, sink: Sink, body: Sink) -> None:
        """Append the head of an object and its fields."""
        sink.put(body.getvalue())


def number(letter: str, order: str = "<") -> ValueRow:
    """Return the row of a number by its `struct` letter; None is written as 0."""
    layout = struct.Struct(order + letter)

    def read(cursor: Cursor, _size: int | None) -> Any:
        return layout.unpack(cursor.take(layout.size))[0]

    def write(sink: Sink, value: Any, _size: int | None) -> None:
        sink.put(layout.pack(value or 0))

    return ValueRow(read, write)


def string(count: Callable[[Cursor], int], put_count: Callable[[Sink, int], None]) -> ValueRow:
    """Return the row of a text that follows its size in bytes; bytes that are no UTF-8 are kept."""

    def read(cursor: Cursor, _size: int | None) -> str:
        return cursor.take(count(cursor)).decode("utf-8", "surrogateescape")

    def write(sink: Sink, value: Any, _size: int | None) -> None:
        octets = (value or "").encode("utf-8", "surrogateescape")
        put_count(sink, len(octets))
        sink.put(octets)

    return ValueRow(read, write)


def _read_octets(cursor: Cursor, count: int | None) -> bytes:
    return cursor.take(cursor.left // 8 if count is None else count)


def _write_octets(sink: Sink, value: Any, _count: int | None) -> None:
    # JSON input has them as hexadecimal digits.
    sink.put(bytes.fromhex(value) if isinstance(value, str) else bytes(value or b""))


OCTETS = ValueRow(_read_octets, _write_octets)
"""Bytes, by their number; without a number, all that are left."""
BITS = ValueRow(
    lambda cursor, size: cursor.bits(size or 1),
    lambda sink, value, size: sink.bits(value or 0, size or 1),
)
"""Bits, by their number; without a number, one."""
