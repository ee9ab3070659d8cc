"""How one scalar type of a user payload travels: a row of a protocol's value table."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from netdissect.wire.cursor import Cursor, Sink

__all__ = ["BITS", "OCTETS", "BareValues", "ValueRow", "Values", "number", "string"]


@dataclass(frozen=True, slots=True)
class ValueRow:
    """How one scalar type travels."""

    read: Callable[[Cursor, int | None], Any]
    """(cursor, number in parentheses or array length) -> value; raises OutOfData or ValueError."""
    write: Callable[[Sink, Any, int | None], None]
    """Appends a value."""


class Values(Protocol):
    """A protocol's value encodings: a table of scalars and how arrays and objects travel."""

    @property
    def scalars(self) -> Mapping[str, ValueRow]:
        """Type name -> row. A name with `[]` overrides how arrays of that type travel."""

    @property
    def aliases(self) -> Mapping[str, str]:
        """Other spellings: "ints" -> "int[]"."""

    def count(self, cursor: Cursor) -> int:
        """Read the length of an array."""

    def put_count(self, sink: Sink, count: int) -> None:
        """Append the length of an array."""

    def present(self, cursor: Cursor) -> bool:
        """Read what precedes every value; False = the value is null."""

    def put_present(self, sink: Sink, *, present: bool) -> bool:
        """Append what precedes every value; returns whether the value itself follows."""

    def enter(self, cursor: Cursor) -> Cursor | None:
        """Read the head of an object; returns the cursor for its fields, None for a null object."""

    def wrap(self, sink: Sink, body: Sink) -> None:
        """Append the head of an object and its fields."""


@dataclass(frozen=True, slots=True)
class BareValues:
    """Values that follow each other: nothing precedes one, objects have no head, none is null."""

    scalars: Mapping[str, ValueRow]
    aliases: Mapping[str, str]
    count: Callable[[Cursor], int]
    put_count: Callable[[Sink, int], None]

    def present(self, cursor: Cursor) -> bool:
        """Every value is there."""
        del cursor
        return True

    def put_present(self, sink: Sink, *, present: bool) -> bool:
        """Nothing precedes a value; a missing one is written as zero."""
        del sink, present
        return True

    def enter(self, cursor: Cursor) -> Cursor | None:
        """Objects are their fields."""
        return cursor

    def wrap(self, sink: Sink, body: Sink) -> None:
        """Objects are their fields."""
        sink.put(body.getvalue())


def number(letter: str, order: str = "<") -> ValueRow:
    """Return the row of a number by its letter in `struct`; None is written as 0."""
    layout = struct.Struct(order + letter)

    def read(cursor: Cursor, _size: int | None) -> Any:
        return layout.unpack(cursor.take(layout.size))[0]

    def write(sink: Sink, value: Any, _size: int | None) -> None:
        sink.put(layout.pack(value or 0))

    return ValueRow(read, write)


def string(count: Callable[[Cursor], int], put_count: Callable[[Sink, int], None]) -> ValueRow:
    """Return the row of a text behind its bytes' number; what is no UTF-8 is kept."""

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
    # Also where they are given as hexadecimal digits.
    sink.put(bytes.fromhex(value) if isinstance(value, str) else bytes(value or b""))


OCTETS = ValueRow(_read_octets, _write_octets)
"""So many bytes, all that are left where no number is given."""
BITS = ValueRow(
    lambda cursor, size: cursor.bits(size or 1),
    lambda sink, value, size: sink.bits(value or 0, size or 1),
)
"""So many bits, one where no number is given."""
