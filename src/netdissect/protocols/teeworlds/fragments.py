"""What bytes may be that are no packet: a number, Huffman code, or the UUID of a message."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from netdissect.protocols.base import Fragment
from netdissect.wire.huffman import HuffmanError, compress, decompress, eof_bit, inspect
from netdissect.wire.teeworlds import uuid_names
from netdissect.wire.teeworlds_forms import MAX_PACKET
from netdissect.wire.varint import TEEWORLDS, VarintError

__all__ = ["fragment"]

_NUMBER_OCTETS = 5
_LAST_OCTET = 0x0F
"""Bits that the fifth byte of a number may have."""
_BEHIND_END = 1


def fragment(payload: bytes, *, packet: bool) -> Fragment | None:
    """Return what the bytes are in one of the protocol's codes, None where they are in none."""
    name = uuid_names().get(payload)
    if name is not None:
        return Fragment({"uuid": str(UUID(bytes=payload)), "name": name})
    if packet or not payload:
        return None
    return _number(payload) or _code(payload)


def _number(payload: bytes) -> Fragment | None:
    more = [octet & 0x80 for octet in payload]
    if len(payload) > _NUMBER_OCTETS or not all(more[:-1]):
        return None
    try:
        value, used = TEEWORLDS.read(payload, 0, len(payload))
    except VarintError:
        return Fragment({"error": "needs another byte"})
    notes = []
    if len(payload) == _NUMBER_OCTETS and payload[-1] > _LAST_OCTET:
        notes.append(("overlong-varint", "the fifth byte has bits above 32"))
    elif not TEEWORLDS.is_minimal(payload, value):
        notes.append(("overlong-varint", f"{value} in {used} bytes"))
    return Fragment({"value": value, "bytes": used}, tuple(notes))


def _code(payload: bytes) -> Fragment | None:
    end = inspect(payload)
    if end is None or len(payload) - end > _BEHIND_END:
        return None
    try:
        plain = decompress(payload, MAX_PACKET)
    except HuffmanError:
        return None
    values: dict[str, Any] = {
        "decompressed_hex": plain.hex(),
        "eof_bit_position": eof_bit(payload),
        "compresses_back_to_same_bytes": compress(plain) == payload,
    }
    return Fragment(values)
