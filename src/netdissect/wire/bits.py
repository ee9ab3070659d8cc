"""Bit strings packed least significant bit first.

Bit i of a message is bit i % 8 (least significant first) of byte i // 8: the message is one
little-endian number. Source: Riptide 2.1 `Converter`, see docs/protocols/riptide.md section 2.
"""

from __future__ import annotations


class BitString(bytes):
    """Bytes with a length in bits. The unused high bits of the last byte are zero.

    Where a `BitString` is expected, plain `bytes` have 8 bits per byte.
    """

    bits: int
    """Length in bits, at most 8 * len(self)."""

    def __new__(cls, data: bytes = b"", bits: int | None = None) -> BitString:  # noqa: PYI034
        """Return the first `bits` bits of `data`, all of them by default."""
        length = 8 * len(data) if bits is None else max(0, min(bits, 8 * len(data)))
        number = int.from_bytes(data, "little") & ((1 << length) - 1)
        self = super().__new__(cls, number.to_bytes((length + 7) // 8, "little"))
        self.bits = length
        return self

    def __repr__(self) -> str:
        return f"BitString({bytes(self)!r}, {self.bits})"

    def __reduce__(self) -> tuple[type[BitString], tuple[bytes, int]]:
        return (BitString, (bytes(self), self.bits))


def extract(data: bytes, start: int, length: int) -> int:
    """Return `length` bits from bit `start` on as an unsigned number; missing bits are 0."""
    first = start >> 3
    last = (start + length + 7) >> 3
    number = int.from_bytes(data[first:last], "little") >> (start & 7)
    return number & ((1 << length) - 1)


def slice_bits(data: bytes, start: int, end: int | None = None) -> BitString:
    """Return bits [start, end) as a string of its own; `end` defaults to the last bit."""
    stop = 8 * len(data) if end is None else min(end, 8 * len(data))
    length = max(0, stop - start)
    if end is not None:
        octets = extract(data, start, length).to_bytes((length + 7) // 8, "little")
    else:
        octets = data[start >> 3 :]
        if start & 7:
            number = int.from_bytes(octets, "little") >> (start & 7)
            octets = number.to_bytes((length + 7) // 8, "little")
    result = bytes.__new__(BitString, octets)
    result.bits = length
    return result


def insert(value: bytes) -> tuple[int, int]:
    """Return (number, length in bits) of a bit string, as `Sink.bits` appends it."""
    bits = value.bits if isinstance(value, BitString) else 8 * len(value)
    return int.from_bytes(value, "little"), bits
