"""Bit fields, least significant bit first, at any bit position (see `netdissect.wire.bits`)."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

from scapy.fields import Field
from scapy.volatile import RandNum

from netdissect.layers.fields import FieldFault, Hex, Limited, Named, Overlong, split
from netdissect.model.dissection import OCTETS
from netdissect.wire.bits import BitString, extract, insert, slice_bits
from netdissect.wire.varint import read_varulong_bits, varulong_groups


def _append(state: Any, number: int, size: int) -> Any:
    """Append `size` bits to a Scapy build state: bytes, or (bytes, pending bits, their value)."""
    done, pending, value = state if isinstance(state, tuple) else (state, 0, 0)
    value |= (number & ((1 << size) - 1)) << pending
    pending += size
    octets = pending >> 3
    done += (value & ((1 << 8 * octets) - 1)).to_bytes(octets, "little")
    value >>= 8 * octets
    pending &= 7
    return (done, pending, value) if pending else done


class _AnyBit:
    """Mixin for fields that can begin at any bit."""

    __slots__ = ()
    read_at: Callable[..., tuple[Any, int]]
    """(bytes, bit position) -> (value, position of the next bit); raises FieldFault."""

    def getfield(self, pkt: Any, s: Any) -> tuple[Any, Any]:
        """Read the value at the current bit of a Scapy dissection state."""
        data, bit = split(s)
        value, end = self.read_at(data, bit)
        rest, used = data[end >> 3 :], end & 7
        return (rest, used) if used else rest, value


class LsbBits(Named, _AnyBit, Field):  # type: ignore[misc]
    """A number of `size` bits."""

    __slots__ = ["limits", "names", "signed", "size"]

    def __init__(
        self,
        name: str,
        default: int | None,
        size: int,
        names: dict[int, str] | None = None,
        *,
        signed: bool = False,
    ) -> None:
        Field.__init__(self, name, default)
        self.size = size
        self.names = names
        self.signed = signed
        self.limits = (-(1 << size - 1), (1 << size - 1) - 1) if signed else (0, (1 << size) - 1)
        self.sz = size / 8

    def read_at(self, data: bytes, bit: int, _pkt: Any = None) -> tuple[int, int]:
        """Read the bits; raise FieldFault `truncated` if some are missing."""
        if bit + self.size > 8 * len(data):
            raise FieldFault("truncated", f"{self.name} needs {self.size} bits")
        value = extract(data, bit, self.size)
        if self.signed and value >> (self.size - 1):
            value -= 1 << self.size
        return value, bit + self.size

    def addfield(self, pkt: Any, s: Any, val: int | None) -> Any:
        """Append the bits; higher bits of a value that is too large are dropped."""
        return _append(s, val or 0, self.size)

    def i2len(self, pkt: Any, x: Any) -> float:
        """Return the length in bytes."""
        return self.size / 8


class LsbVarULong(Limited, _AnyBit, Field):  # type: ignore[misc]
    """A Riptide varULong. Its receiver keeps the lowest `keep` bits."""

    __slots__ = ["keep", "limits"]

    def __init__(self, name: str, default: int, keep: int = 64) -> None:
        Field.__init__(self, name, default)
        self.keep, self.limits = keep, (0, (1 << keep) - 1)

    def read_at(self, data: bytes, bit: int, _pkt: Any = None) -> tuple[int, int]:
        """Read up to ten groups; raise FieldFault if the last one announces another."""
        before, window = bit & ~7, data[bit >> 3 : (bit >> 3) + 11]
        value, after, complete = read_varulong_bits(
            int.from_bytes(window, "little"), bit & 7, 8 * len(window)
        )
        value &= self.limits[1]
        if not complete:
            if 8 * len(data) < bit + 80:
                raise FieldFault("truncated", f"{self.name} is an unterminated varULong", value)
            raise FieldFault("overlong-varint", f"{self.name} has more than ten groups", value)
        return value, before + after

    def getfield(self, pkt: Any, s: Any) -> tuple[Any, Any]:
        """Read the value at the current bit, and remember its groups if they are not the usual."""
        state, value = super().getfield(pkt, s)
        (data, bit), (rest, end) = split(s), split(state)
        size = 8 * (len(data) - len(rest)) + end - bit
        groups = extract(data, bit, size), size
        if groups != varulong_groups(value):
            value = Overlong(value, LsbVarULong, groups)
        return state, value

    def addfield(self, pkt: Any, s: Any, val: int | None) -> Any:
        """Append the shortest encoding, or the one that was read."""
        if isinstance(val, Overlong) and val.codec is LsbVarULong:
            return _append(s, *val.written)
        return _append(s, *varulong_groups(val or 0))

    def i2len(self, pkt: Any, x: Any) -> float:
        """Return the length in bytes of the shortest encoding."""
        return varulong_groups(x or 0)[1] / 8


class LsbTail(Hex, _AnyBit, Field):  # type: ignore[misc]
    """All remaining bits as a `BitString`, whose first byte begins with the first of them."""

    private = OCTETS

    def __init__(self, name: str) -> None:
        Field.__init__(self, name, b"")

    def read_at(self, data: bytes, bit: int, _pkt: Any = None) -> tuple[BitString, int]:
        """Read all bits that are left."""
        return slice_bits(data, bit), 8 * len(data)

    def addfield(self, pkt: Any, s: Any, val: bytes | None) -> bytes:
        """Append the bits (8 for each byte of a plain `bytes`), then pad the byte with zeros."""
        return _close(_append(s, *insert(val or b"")), 0)

    def i2len(self, pkt: Any, x: Any) -> float:
        """Return the length in bytes."""
        return insert(x or b"")[1] / 8


def _close(state: Any, padding: int) -> bytes:
    """Return the bytes of a build state; the unused bits of the last one hold `padding`."""
    if not isinstance(state, tuple):
        return bytes(state)
    done, pending, value = state
    return bytes(done) + bytes([(value | padding << pending) & 0xFF])


class LsbPad(_AnyBit, Field):  # type: ignore[misc]
    """The unused high bits of the last byte. Every real sender sets them to zero."""

    def __init__(self) -> None:
        Field.__init__(self, "padding", 0)

    def read_at(self, data: bytes, bit: int, _pkt: Any = None) -> tuple[int | None, int]:
        """Read up to the next byte; None if the message ends with a whole one."""
        used = bit & 7
        return (data[bit >> 3] >> used, bit - used + 8) if used else (None, bit)

    def addfield(self, pkt: Any, s: Any, val: int | None) -> bytes:
        """Complete the last byte."""
        return _close(s, index(val or 0))

    def i2len(self, pkt: Any, x: Any) -> float:
        """Return 0: its length depends on the fields before it."""
        return 0

    def randval(self) -> Any:
        """Return zero: other padding would be a finding of its own."""
        return RandNum(0, 0)
