"""Fields of bits, the least significant first, at any bit position (see `netdissect.wire.bits`)."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

from scapy.fields import Field
from scapy.volatile import RandNum

from netdissect.layers.fields import FieldFault, Hex, Limited, Named, split
from netdissect.model.dissection import OCTETS
from netdissect.wire.bits import BitString, extract, insert, slice_bits
from netdissect.wire.varint import read_varulong_bits, varulong_groups

__all__ = ["LsbBits", "LsbPad", "LsbTail", "LsbVarULong"]


def _append(state: Any, number: int, size: int) -> Any:
    """Append `size` bits to a Scapy build state, least significant bit first."""
    done, pending, held = state if isinstance(state, tuple) else (state, 0, 0)
    held |= (number & ((1 << size) - 1)) << pending
    pending += size
    octets = pending >> 3
    done += (held & ((1 << 8 * octets) - 1)).to_bytes(octets, "little")
    held >>= 8 * octets
    pending &= 7
    return (done, pending, held) if pending else done


class _Placed:
    """A field that is read at any bit position; shared by the fields below."""

    __slots__ = ()
    read_at: Callable[..., tuple[Any, int]]
    """(bytes, bit) -> (the value that begins there, the bit behind it); raises FieldFault."""

    def getfield(self, pkt: Any, s: Any) -> tuple[Any, Any]:
        """Read it at the bit that a Scapy dissection state stands at."""
        data, bit = split(s)
        value, end = self.read_at(data, bit)
        rest, used = data[end >> 3 :], end & 7
        return (rest, used) if used else rest, value


class LsbBits(Named, _Placed, Field):  # type: ignore[misc]
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
        """Read the bits; FieldFault `truncated` when they are not all there."""
        if bit + self.size > 8 * len(data):
            raise FieldFault("truncated", f"{self.name} needs {self.size} bits")
        value = extract(data, bit, self.size)
        if self.signed and value >> (self.size - 1):
            value -= 1 << self.size
        return value, bit + self.size

    def addfield(self, pkt: Any, s: Any, val: int | None) -> Any:
        """Append the bits; a value too large is cut to them."""
        return _append(s, val or 0, self.size)

    def i2len(self, pkt: Any, x: Any) -> float:
        """Return the length in bytes."""
        return self.size / 8


class LsbVarULong(Limited, _Placed, Field):  # type: ignore[misc]
    """A Riptide varULong at any bit position, cut to `keep` bits by its reader."""

    __slots__ = ["keep", "limits"]

    def __init__(self, name: str, default: int, keep: int = 64) -> None:
        Field.__init__(self, name, default)
        self.keep, self.limits = keep, (0, (1 << keep) - 1)

    def read_at(self, data: bytes, bit: int, _pkt: Any = None) -> tuple[int, int]:
        """Read up to ten groups; FieldFault when the data ends first or a tenth group goes on."""
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

    def addfield(self, pkt: Any, s: Any, val: int | None) -> Any:
        """Append the shortest form."""
        return _append(s, *varulong_groups(val or 0))

    def i2len(self, pkt: Any, x: Any) -> float:
        """Return the length in bytes of the shortest form."""
        return varulong_groups(x or 0)[1] / 8


class LsbTail(Hex, _Placed, Field):  # type: ignore[misc]
    """All remaining bits as a `BitString`, re-aligned to its own start; closes the last byte with
    zeros.
    """

    private = OCTETS

    def __init__(self, name: str) -> None:
        Field.__init__(self, name, b"")

    def read_at(self, data: bytes, bit: int, _pkt: Any = None) -> tuple[BitString, int]:
        """Take everything."""
        return slice_bits(data, bit), 8 * len(data)

    def addfield(self, pkt: Any, s: Any, val: bytes | None) -> bytes:
        """Append the bits (8 for each byte of a plain `bytes`), then fill the byte with zeros."""
        return _close(_append(s, *insert(val or b"")), 0)

    def any2i(self, pkt: Any, x: Any) -> Any:
        """Accept text for its bytes."""
        return x.encode() if isinstance(x, str) else x

    def i2len(self, pkt: Any, x: Any) -> float:
        """Return the length in bytes."""
        return insert(x or b"")[1] / 8


def _close(state: Any, padding: int) -> bytes:
    if not isinstance(state, tuple):
        return bytes(state)
    done, pending, held = state
    return bytes(done) + bytes([(held | padding << pending) & 0xFF])


class LsbPad(_Placed, Field):  # type: ignore[misc]
    """The unused high bits of the last byte; zero in every message that a real sender builds."""

    def __init__(self) -> None:
        Field.__init__(self, "padding", 0)

    def read_at(self, data: bytes, bit: int, _pkt: Any = None) -> tuple[int | None, int]:
        """Read up to the byte boundary; None where the message ends on one."""
        used = bit & 7
        return (data[bit >> 3] >> used, bit - used + 8) if used else (None, bit)

    def addfield(self, pkt: Any, s: Any, val: int | None) -> bytes:
        """Fill the byte."""
        return _close(s, index(val or 0))

    def i2len(self, pkt: Any, x: Any) -> float:
        """Return 0: padding has no length of its own."""
        return 0

    def randval(self) -> Any:
        """Return zero: padding is made, not chosen."""
        return RandNum(0, 0)
