"""Mutators of plain bytes, which need no knowledge of the format.

Each takes bytes and a `Chance` and returns other bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from netdissect.fuzz.chance import Chance

OctetMutator: TypeAlias = Callable[[bytes, Chance], bytes]

SIZE_LIMIT = 4096
"""Maximum size of a mutant in bytes: beyond every protocol's limit, yet small enough for a socket.
"""

_SPECIAL = (0x00, 0x01, 0x20, 0x3F, 0x40, 0x7F, 0x80, 0x81, 0xBF, 0xC0, 0xFE, 0xFF)
"""Bytes that are special in encodings: signs, continuation bits, terminators."""
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def flip(data: bytes, chance: Chance) -> bytes:
    """Invert one to four bits."""
    out = bytearray(data or b"\0")
    for _ in range(chance.between(1, 4)):
        out[chance.below(len(out))] ^= 1 << chance.below(8)
    return bytes(out)


def set_octet(data: bytes, chance: Chance) -> bytes:
    """Replace one byte by a special one."""
    out = bytearray(data or b"\0")
    out[chance.below(len(out))] = chance.choice(_SPECIAL)
    return bytes(out)


def set_any(data: bytes, chance: Chance) -> bytes:
    """Replace one byte by any other."""
    out = bytearray(data or b"\0")
    out[chance.below(len(out))] ^= chance.between(1, 255)
    return bytes(out)


def set_number(data: bytes, chance: Chance) -> bytes:
    """Overwrite two or four bytes with a boundary number in either byte order."""
    width = chance.choice((2, 4))
    number = chance.choice(_NUMBERS) & ((1 << 8 * width) - 1)
    order = "little" if chance.one_in(2) else "big"
    at = chance.below(max(1, len(data) - width + 1))
    return data[:at] + number.to_bytes(width, order) + data[at + width :]  # type: ignore[arg-type]


def add(data: bytes, chance: Chance) -> bytes:
    """Add a small number to one byte."""
    out = bytearray(data or b"\0")
    at = chance.below(len(out))
    out[at] = (out[at] + chance.between(-8, 8)) & 0xFF
    return bytes(out)


def insert(data: bytes, chance: Chance) -> bytes:
    """Insert one to eight random bytes."""
    at = chance.below(len(data) + 1)
    return data[:at] + chance.octets(chance.between(1, 8)) + data[at:]


def delete(data: bytes, chance: Chance) -> bytes:
    """Delete one to eight bytes."""
    at = chance.below(max(1, len(data)))
    return data[:at] + data[at + chance.between(1, 8) :]


def truncate(data: bytes, chance: Chance) -> bytes:
    """Cut off the end, but leave at least one byte."""
    return data[: chance.between(1, max(1, len(data) - 1))]


def extend(data: bytes, chance: Chance) -> bytes:
    """Append random bytes, or many equal ones."""
    if chance.one_in(2):
        return data + chance.octets(chance.between(1, 64))
    return data + bytes([chance.choice(_SPECIAL)]) * chance.choice((1, 16, 255, 256, 1024, 1500))


def repeat(data: bytes, chance: Chance) -> bytes:
    """Repeat a part of the bytes several times."""
    at = chance.below(max(1, len(data)))
    part = data[at : at + chance.between(1, 32)]
    return data[:at] + part * chance.choice((2, 3, 8, 64)) + data[at + len(part) :]


def noise(data: bytes, chance: Chance) -> bytes:
    """Replace the tail by random bytes of the same length."""
    at = chance.below(max(1, len(data)))
    return data[:at] + chance.octets(len(data) - at)


def _limited(mutator: OctetMutator) -> OctetMutator:
    def limited(data: bytes, chance: Chance) -> bytes:
        return mutator(data, chance)[:SIZE_LIMIT]

    return limited


OCTET_MUTATORS: dict[str, OctetMutator] = {
    mutator.__name__: _limited(mutator)
    for mutator in (
        flip, set_octet, set_any, set_number, add, insert, delete, truncate, extend, repeat, noise,
    )
}  # fmt: skip
"""Name -> mutator."""
