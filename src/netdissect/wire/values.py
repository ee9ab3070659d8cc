"""How one scalar type of a user payload travels: a row of a protocol's value table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from netdissect.wire.cursor import Cursor, Sink

__all__ = ["ValueRow", "Values"]


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
