"""The encoding of values in kNet application messages: packed bits, least significant first.

Numbers are little-endian and begin at any bit.
*Source:* kNet `DataSerializer`, `DataDeserializer`, doc/src/KristalliXML.dox.
"""

from __future__ import annotations

from netdissect.wire.cursor import Cursor, Sink
from netdissect.wire.values import BITS, OCTETS, ValueRow, Values, number, string
from netdissect.wire.varint import KNET_7_7_16, KNET_7_8, KNET_15_16, VarintCodec


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


def _count(cursor: Cursor) -> int:
    return _read_vle(cursor, KNET_7_7_16)


def _put_count(sink: Sink, count: int) -> None:
    sink.put(KNET_7_7_16.write(count))


VALUES = Values(
    {
        "bit": BITS, "bits": BITS, "bool": number("?"),
        "u8": number("B"), "s8": number("b"), "u16": number("H"), "s16": number("h"),
        "u32": number("I"), "s32": number("i"), "u64": number("Q"), "s64": number("q"),
        "float": number("f"), "double": number("d"), "byte": number("B"),
        "vle8_16": _vle(KNET_7_8), "vle8_16_32": _vle(KNET_7_7_16), "vle16_32": _vle(KNET_15_16),
        "string": string(_count, _put_count),
        "string8": string(lambda cursor: cursor.bits(8), lambda sink, count: sink.bits(count, 8)),
        "string16": string(
            lambda cursor: cursor.bits(16), lambda sink, count: sink.bits(count, 16)
        ),
        "bytes": OCTETS, "u8[]": OCTETS, "byte[]": OCTETS,
    },
    {"byte[]": "u8[]"},
    _count,
    _put_count,
)  # fmt: skip
"""Types of user values. `string` has the length of releases since October 2014, `string8` that of
earlier ones; up to 127 bytes they are equal. *Source:* docs/protocols/knet.md section 1.
"""
