"""The encoding of values in user components: packed and little-endian, as in the engine's own.

A user schema has a component under `messages`: `{"Shield": {"fields": [["left", "f32"], ...]}}`.
*Source:* docs/protocols/eoudp.md, "Component data".
"""

from __future__ import annotations

from typing import Any

from netdissect.wire.cursor import Cursor, Sink
from netdissect.wire.values import OCTETS, ValueRow, Values, number, string


def _count(cursor: Cursor) -> int:
    return int.from_bytes(cursor.take(4), "little")


def _put_count(sink: Sink, count: int) -> None:
    sink.put(count.to_bytes(4, "little"))


def _read_text(cursor: Cursor, _size: int | None) -> str:
    octets: bytes = OCTETS.read(cursor, None)
    return octets.decode("utf-8", "surrogateescape")


def _write_text(sink: Sink, value: Any, _size: int | None) -> None:
    sink.put((value or "").encode("utf-8", "surrogateescape"))


COMPONENT_VALUES = Values(
    {
        "u8": number("B"), "i8": number("b"), "u16": number("H"), "i16": number("h"),
        "u32": number("I"), "i32": number("i"), "u64": number("Q"), "i64": number("q"),
        "f32": number("f"), "f64": number("d"), "bool": number("?"),
        "string": string(_count, _put_count),
        "text": ValueRow(_read_text, _write_text), "rest": OCTETS, "u8[]": OCTETS,
    },
    {
        "int": "i32", "uint": "u32", "float": "f32", "double": "f64", "byte": "u8", "bytes": "rest",
        "vec2": "f32[2]", "vec3": "f32[3]", "vec4": "f32[4]",
    },
    _count,
    _put_count,
)  # fmt: skip
"""Types of component data. `string` has a u32 length, `text` and `rest` take all remaining bytes;
arrays of fixed size have no length.
"""
