"""How values travel in kNet application messages: packed bits, least significant first.

Source: kNet `DataSerializer`, `DataDeserializer`, doc/src/KristalliXML.dox. Numbers are little
endian at whatever bit the value before them ended.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from netdissect.wire.cursor import Cursor, Sink
from netdissect.wire.values import ValueRow
from netdissect.wire.varint import KNET_7_7_16, KNET_7_8, KNET_15_16, VarintCodec

__all__ = ["VALUES"]


def _number(fmt: str) -> ValueRow:
    layout = struct.Struct("<" + fmt)

    def read(cursor: Cursor, _size: int | None) -> Any:
        return layout.unpack(cursor.take(layout.size))[0]

    def write(sink: Sink, value: Any, _size: int | None) -> None:
        sink.put(layout.pack(value or 0))

    return ValueRow(read, write)


def _read_vle(cursor: Cursor, codec: VarintCodec) -> int:
    window = cursor.take(min(4, cursor.left // 8))
    value, used = codec.read(window, 0, len(window))
    cursor.position -= 8 * (len(window) - used)
    return value


def _vle(codec: VarintCodec) -> ValueRow:
    return ValueRow(
        lambda cursor, _size: _read_vle(cursor, codec),
        lambda sink, value, _size: sink.put(codec.write(value or 0)),
    )


def _bits() -> ValueRow:
    return ValueRow(
        lambda cursor, size: cursor.bits(size or 1),
        lambda sink, value, size: sink.bits(value or 0, size or 1),
    )


def _string(count: Callable[[Cursor], int], put: Callable[[Sink, int], None]) -> ValueRow:
    def read(cursor: Cursor, _size: int | None) -> str:
        return cursor.take(count(cursor)).decode("utf-8", "surrogateescape")

    def write(sink: Sink, value: Any, _size: int | None) -> None:
        octets = (value or "").encode("utf-8", "surrogateescape")
        put(sink, len(octets))
        sink.put(octets)

    return ValueRow(read, write)


def _read_octets(cursor: Cursor, count: int | None) -> bytes:
    return cursor.take(cursor.left // 8 if count is None else count)


def _write_octets(sink: Sink, value: Any, _count: int | None) -> None:
    sink.put(bytes.fromhex(value) if isinstance(value, str) else bytes(value or b""))


class _KnetValues:
    """Values follow each other; objects have no head; nothing is null."""

    aliases: Mapping[str, str] = {"byte[]": "u8[]"}
    scalars: Mapping[str, ValueRow] = {
        "bit": _bits(), "bits": _bits(), "bool": _number("?"),
        "u8": _number("B"), "s8": _number("b"), "u16": _number("H"), "s16": _number("h"),
        "u32": _number("I"), "s32": _number("i"), "u64": _number("Q"), "s64": _number("q"),
        "float": _number("f"), "double": _number("d"), "byte": _number("B"),
        "vle8_16": _vle(KNET_7_8), "vle8_16_32": _vle(KNET_7_7_16), "vle16_32": _vle(KNET_15_16),
        "string": _string(
            lambda cursor: _read_vle(cursor, KNET_7_7_16),
            lambda sink, count: sink.put(KNET_7_7_16.write(count)),
        ),
        "string8": _string(lambda cursor: cursor.bits(8), lambda sink, count: sink.bits(count, 8)),
        "string16": _string(
            lambda cursor: cursor.bits(16), lambda sink, count: sink.bits(count, 16)
        ),
        "bytes": ValueRow(_read_octets, _write_octets),
        "u8[]": ValueRow(_read_octets, _write_octets),
        "byte[]": ValueRow(_read_octets, _write_octets),
    }  # fmt: skip

    def count(self, cursor: Cursor) -> int:
        """Read a VLE-1.7/1.7/16."""
        return _read_vle(cursor, KNET_7_7_16)

    def put_count(self, sink: Sink, count: int) -> None:
        """Append a VLE-1.7/1.7/16."""
        sink.put(KNET_7_7_16.write(count))

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


VALUES = _KnetValues()
"""The value table of kNet: `string` has the length of releases after 2014-10, `string8` that of
earlier ones (section 1); below 128 octets they are equal.
"""
