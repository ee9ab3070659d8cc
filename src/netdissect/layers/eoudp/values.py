"""How the values of user components travel: packed, little-endian, as the engine's own do.

A user schema names a component under `messages`: `{"Shield": {"fields": [["left", "f32"], ...]}}`.
Source: docs/protocols/eoudp.md, "Component data".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from netdissect.wire.cursor import Cursor, Sink
from netdissect.wire.values import ValueRow

__all__ = ["COMPONENT_VALUES"]


def _number(letter: str) -> ValueRow:
    layout = struct.Struct("<" + letter)

    def read(cursor: Cursor, _size: int | None) -> Any:
        return layout.unpack(cursor.take(layout.size))[0]

    def write(sink: Sink, value: Any, _size: int | None) -> None:
        sink.put(layout.pack(value or 0))

    return ValueRow(read, write)


def _read_rest(cursor: Cursor, _size: int | None) -> bytes:
    return cursor.take(cursor.left // 8)


def _write_octets(sink: Sink, value: Any, _size: int | None) -> None:
    sink.put(bytes.fromhex(value) if isinstance(value, str) else bytes(value or b""))


def _text(octets: bytes) -> str:
    return octets.decode("utf-8", "surrogateescape")


def _write_text(sink: Sink, value: Any, _size: int | None) -> None:
    sink.put((value or "").encode("utf-8", "surrogateescape"))


def _read_string(cursor: Cursor, _size: int | None) -> str:
    return _text(cursor.take(int.from_bytes(cursor.take(4), "little")))


def _write_string(sink: Sink, value: Any, _size: int | None) -> None:
    octets = (value or "").encode("utf-8", "surrogateescape")
    sink.put(len(octets).to_bytes(4, "little") + octets)


class _ComponentValues:
    """Values follow each other; nothing is null, objects and fixed arrays have no head."""

    aliases: Mapping[str, str] = {
        "int": "i32", "uint": "u32", "float": "f32", "double": "f64", "byte": "u8", "bytes": "rest",
        "vec2": "f32[2]", "vec3": "f32[3]", "vec4": "f32[4]",
    }  # fmt: skip
    scalars: Mapping[str, ValueRow] = {
        "u8": _number("B"), "i8": _number("b"), "u16": _number("H"), "i16": _number("h"),
        "u32": _number("I"), "i32": _number("i"), "u64": _number("Q"), "i64": _number("q"),
        "f32": _number("f"), "f64": _number("d"), "bool": _number("?"),
        "string": ValueRow(_read_string, _write_string),
        "text": ValueRow(lambda cursor, _size: _text(_read_rest(cursor, None)), _write_text),
        "rest": ValueRow(_read_rest, _write_octets),
        "u8[]": ValueRow(lambda cursor, size: cursor.take(size or 0), _write_octets),
    }  # fmt: skip
    """`string` has a u32 length; `text` and `rest` are all that is left."""

    def count(self, cursor: Cursor) -> int:
        """Read a u32."""
        return int.from_bytes(cursor.take(4), "little")

    def put_count(self, sink: Sink, count: int) -> None:
        """Append a u32."""
        sink.put(count.to_bytes(4, "little"))

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


COMPONENT_VALUES = _ComponentValues()
"""Values of the data of a component."""
