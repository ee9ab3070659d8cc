"""Reads and writes values at any bit position of a buffer whose bits are packed LSB first."""

from __future__ import annotations

from netdissect.wire.bits import BitString, extract, insert, slice_bits


class OutOfData(ValueError):  # noqa: N818 - names a condition, as StopIteration does
    """A value needs more bits than are left."""


class Cursor:
    """Reads forward through `data`, from bit `position` up to bit `end`."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self.data = data
        self.position = position
        self.end = 8 * len(data) if end is None else end

    @property
    def left(self) -> int:
        """Return the number of bits left."""
        return self.end - self.position

    def bits(self, size: int) -> int:
        """Read `size` bits, least significant first, as an unsigned number."""
        if size > self.left:
            raise OutOfData(f"{size} bits wanted, {self.left} left")
        value = extract(self.data, self.position, size)
        self.position += size
        return value

    def take(self, octets: int) -> bytes:
        """Read whole bytes, from any bit position. At a byte boundary this is a slice."""
        if octets < 0 or octets > self.left >> 3:
            raise OutOfData(f"{octets} bytes wanted, {self.left // 8} left")
        start, self.position = self.position, self.position + 8 * octets
        if start & 7:
            return bytes(slice_bits(self.data, start, self.position))
        return self.data[start >> 3 : self.position >> 3]


class Sink:
    """Collects bits, least significant first."""

    __slots__ = ("_bits", "_number")

    def __init__(self) -> None:
        self._number = 0
        self._bits = 0

    def bits(self, value: int, size: int) -> None:
        """Append the low `size` bits of `value`."""
        self._number |= (value & ((1 << size) - 1)) << self._bits
        self._bits += size

    def put(self, octets: bytes) -> None:
        """Append bytes, or the bits of a `BitString`."""
        self.bits(*insert(octets))

    def getvalue(self) -> BitString:
        """Return everything appended so far."""
        return BitString(self._number.to_bytes((self._bits + 7) // 8, "little"), self._bits)
