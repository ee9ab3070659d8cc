"""The variable-length integers of the protocols.

Byte-oriented readers return (value, next position), and raise `VarintError` instead of reading past
`end`. Writers use the shortest form; `is_minimal` tells whether bytes have it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from netdissect.model.native import i64, read_i64_le

_U32: Final = 0xFFFFFFFF
_MODULUS: Final = 0x100000000
_WORD: Final = 8
"""Size of a machine word, bytes."""
_IN_A_WORD: Final = 7
"""Bytes that a machine word holds without its sign."""
_SEVEN_BYTES: Final = 0xFFFFFFFFFFFFFF
_SEVEN_BYTES_BITS: Final = 56
VARULONG_GROUPS_MAX: Final = 10
"""Groups of the longest 64-bit varULong. Source: Riptide 2.1 `Message.GetVarULong`."""


class VarintError(ValueError):
    """The bytes end inside a variable-length integer."""


@dataclass(frozen=True, slots=True)
class VarintCodec:
    """One family of byte-oriented variable-length integers."""

    name: str
    """Name for people, as the protocol's reference calls it."""
    read: Callable[[bytes, int, int], tuple[int, int]]
    """(data, position, end) -> (value, next position); raises VarintError."""
    write: Callable[[int], bytes]
    """Value -> shortest encoding; of a value out of range only the low bits are written."""
    minimum: int
    """Smallest value."""
    maximum: int
    """Largest value."""
    lua: str = ""
    """`read` as a Lua function for Wireshark: (tvb, place, end) -> value, next place. It reports
    missing bytes by `fault("truncated", text)`. "" for a family that the runtime knows.
    """

    def is_minimal(self, raw: bytes, value: int) -> bool:
        """Return whether `raw` is the shortest encoding of `value`."""
        return len(raw) == 1 or self.write(value) == raw

    def single_limit(self) -> int:
        """Return the power of two below which a single byte is the number; 0 if there is none."""
        limit = 1
        while limit <= 1 << 7 and self.write(limit - 1) == bytes([limit - 1]):
            limit <<= 1
        return limit >> 1


# --- Teeworlds: sign in the first byte, 6 + 7 + 7 + 7 + 4 bits ----------------------------------


def read_teeworlds(data: bytes, position: i64, end: i64) -> tuple[i64, i64]:
    """Return (value, next position) of an integer of the family `TEEWORLDS`.

    Raises:
        VarintError: the integer is cut short.

    """
    if position >= end:
        raise VarintError("no byte for a variable-length integer")
    first: i64 = data[position]
    position += 1
    if first < 0x80:  # noqa: PLR2004 - no byte follows
        return (first if first < 0x40 else ~(first & 0x3F)), position  # noqa: PLR2004 - sign
    value = first & 0x3F
    # The reference stops after five bytes, whatever bit 7 of the fifth is.
    shift: i64 = 6
    while shift < 28:  # noqa: PLR2004 - four bytes of seven bits
        if position >= end:
            raise VarintError("variable-length integer runs past the end")
        octet: i64 = data[position]
        position += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:  # noqa: PLR2004 - no byte follows
            break
        shift += 7
    # 32-bit arithmetic drops the surplus bits of the fifth byte.
    if first & 0x40:
        value = ~value
    return signed_32(value), position


def signed_32(value: i64) -> i64:
    """Return the low 32 bits of a number as a signed number."""
    value &= _U32
    return value - _MODULUS if value & 0x80000000 else value


def _write_teeworlds(value: int) -> bytes:
    value = ((value + 0x80000000) & _U32) - 0x80000000
    sign = 0x40 if value < 0 else 0
    rest = ~value if value < 0 else value
    last, rest = sign | (rest & 0x3F), rest >> 6
    octets = []
    while rest:
        octets.append(last | 0x80)
        last, rest = rest & 0x7F, rest >> 7
    octets.append(last)
    return bytes(octets)


# --- kNet: VLE-1.7/8, VLE-1.7/1.7/16, VLE-1.15/16 ------------------------------------------------


def _need(position: int, octets: int, end: int) -> None:
    if position + octets > end:
        raise VarintError("variable-length integer runs past the end")


def _read_7_8(data: bytes, position: int, end: int) -> tuple[int, int]:
    _need(position, 1, end)
    low = data[position]
    if low < 0x80:  # noqa: PLR2004
        return low, position + 1
    _need(position, 2, end)
    return (low & 0x7F) | data[position + 1] << 7, position + 2


def _write_7_8(value: int) -> bytes:
    value &= 0x7FFF
    if value < 0x80:  # noqa: PLR2004
        return bytes([value])
    return bytes([value & 0x7F | 0x80, value >> 7])


def _read_7_7_16(data: bytes, position: int, end: int) -> tuple[int, int]:
    _need(position, 1, end)
    low = data[position]
    if low < 0x80:  # noqa: PLR2004
        return low, position + 1
    _need(position, 2, end)
    middle = data[position + 1]
    if middle < 0x80:  # noqa: PLR2004
        return (low & 0x7F) | middle << 7, position + 2
    _need(position, 4, end)
    high = data[position + 2] | data[position + 3] << 8
    return (low & 0x7F) | (middle & 0x7F) << 7 | high << 14, position + 4


def _write_7_7_16(value: int) -> bytes:
    value &= 0x3FFFFFFF
    if value < 0x80:  # noqa: PLR2004
        return bytes([value])
    if value < 0x4000:  # noqa: PLR2004
        return bytes([value & 0x7F | 0x80, value >> 7])
    high = value >> 14
    return bytes([value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, high & 0xFF, high >> 8])


def _read_15_16(data: bytes, position: int, end: int) -> tuple[int, int]:
    _need(position, 2, end)
    low = data[position] | data[position + 1] << 8
    if low < 0x8000:  # noqa: PLR2004
        return low, position + 2
    _need(position, 4, end)
    high = data[position + 2] | data[position + 3] << 8
    return (low & 0x7FFF) | high << 15, position + 4


def _write_15_16(value: int) -> bytes:
    value &= 0x7FFFFFFF
    if value < 0x8000:  # noqa: PLR2004
        return value.to_bytes(2, "little")
    return (value & 0x7FFF | 0x8000).to_bytes(2, "little") + (value >> 15).to_bytes(2, "little")


TEEWORLDS: Final = VarintCodec(
    "varint", read_teeworlds, _write_teeworlds, -(1 << 31), (1 << 31) - 1
)
"""1 to 5 bytes, sign bit in the first. Source: Teeworlds `CVariableInt`,
src/engine/shared/compression.cpp.
"""
KNET_7_8: Final = VarintCodec("VLE-1.7/8", _read_7_8, _write_7_8, 0, 0x7FFF)
"""1 or 2 bytes. Source: kNet `VLE8_16`, include/kNet/VLEPacker.h."""
KNET_7_7_16: Final = VarintCodec("VLE-1.7/1.7/16", _read_7_7_16, _write_7_7_16, 0, 0x3FFFFFFF)
"""1, 2 or 4 bytes. Source: kNet `VLE8_16_32`, include/kNet/VLEPacker.h."""
KNET_15_16: Final = VarintCodec("VLE-1.15/16", _read_15_16, _write_15_16, 0, 0x7FFFFFFF)
"""2 or 4 bytes. Source: kNet `VLE16_32`, include/kNet/VLEPacker.h."""
OWN: Final = (TEEWORLDS, KNET_7_8, KNET_7_7_16, KNET_15_16)
"""Families that the runtime of the dissectors for Wireshark knows."""


# --- Riptide: groups of 8 bits at any bit position, least significant group first ----------------


def low_octets(data: bytes, start: int, count: int) -> int:
    """Return bytes as a little-endian number; bytes behind the end of `data` are 0."""
    if count > _IN_A_WORD:
        return int.from_bytes(data[start : start + count], "little")
    return low_word(data, start, count)


def low_word(data: bytes, start: i64, count: i64) -> i64:
    """Return the same as a machine integer, for at most seven bytes."""
    size: i64 = len(data)
    if start + _WORD <= size:
        return read_i64_le(data, start) & (_SEVEN_BYTES >> _SEVEN_BYTES_BITS - 8 * count)
    stop = start + count
    if stop > size:  # noqa: PLR1730 - the builtin would cost more
        stop = size
    value: i64 = 0
    shift: i64 = 0
    while start < stop:
        octet: i64 = data[start]
        value |= octet << shift
        shift += 8
        start += 1
    return value


def read_varulong_bits(number: int, start: int, end: int) -> tuple[int, int, bool]:
    """Return (value, next bit, is complete) of the varULong at bit `start` of a number.

    The number is little endian and ends at bit `end`. As in the library, missing groups are 0;
    `is complete` is then False. Reading stops after ten groups, and the value is cut to 64 bits.
    """
    value = shift = 0
    position = start
    for _ in range(VARULONG_GROUPS_MAX):
        if position + 8 > end:
            value |= (number >> position & ((1 << max(0, end - position)) - 1) & 0x7F) << shift
            return value, end, False
        group = number >> position & 0xFF
        position += 8
        value |= (group & 0x7F) << shift
        shift += 7
        if group < 0x80:  # noqa: PLR2004
            return value & 0xFFFFFFFFFFFFFFFF, position, True
    return value & 0xFFFFFFFFFFFFFFFF, position, False


def varulong_groups(value: int) -> tuple[int, int]:
    """Return (number, length in bits) of the shortest varULong of an unsigned 64-bit value."""
    value &= 0xFFFFFFFFFFFFFFFF
    number = bits = 0
    while True:
        group = value & 0x7F
        value >>= 7
        number |= (group | (0x80 if value else 0)) << bits
        bits += 8
        if not value:
            return number, bits


def zigzag(value: int) -> int:
    """Return the unsigned form of a signed 64-bit value: (v << 1) ^ (v >> 63)."""
    return (value << 1 ^ value >> 63) & 0xFFFFFFFFFFFFFFFF


def unzigzag(value: int) -> int:
    """Return the signed value of a zigzag number, over the whole 64-bit range.

    The library misreads magnitudes from 2**62 on (defect D9 of docs/protocols/riptide.md).
    """
    return value >> 1 ^ -(value & 1)
