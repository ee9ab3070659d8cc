"""Bytes that are no packet: an integer, Huffman code, or the UUID of a message. For `decode`."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from netdissect.protocols.base import Fragment
from netdissect.wire.huffman import HuffmanError, compress, decompress, eof_bit, inspect
from netdissect.wire.teeworlds import uuid_names
from netdissect.wire.teeworlds_forms import MAX_PACKET
from netdissect.wire.varint import TEEWORLDS, VarintError

_MAX_INTEGER_OCTETS: Final = 5
"""Size of the longest variable-length integer, bytes."""
_LAST_OCTET_MASK: Final = 0x0F
"""Bits of the fifth byte of an integer that are within its 32 bits."""
_MAX_AFTER_END: Final = 1
"""Bytes that an encoder writes at most behind the byte with the end symbol."""


def fragment(payload: bytes, *, packet: bool) -> Fragment | None:
    """Return the values of bytes that are no packet; see `Protocol.fragment`."""
    name = uuid_names().get(payload)
    if name is not None:
        return Fragment({"uuid": str(UUID(bytes=payload)), "name": name})
    if packet or not payload:
        return None
    return _integer(payload) or _huffman_code(payload)


def _integer(payload: bytes) -> Fragment | None:
    more = [octet & 0x80 for octet in payload]
    if len(payload) > _MAX_INTEGER_OCTETS or not all(more[:-1]):
        return None
    try:
        value, used = TEEWORLDS.read(payload, 0, len(payload))
    except VarintError:
        return Fragment({"error": "needs another byte"})
    notes = []
    if len(payload) == _MAX_INTEGER_OCTETS and payload[-1] > _LAST_OCTET_MASK:
        notes.append(("overlong-varint", "the fifth byte has bits above 32"))
    elif not TEEWORLDS.is_minimal(payload, value):
        notes.append(("overlong-varint", f"{value} in {used} bytes"))
    return Fragment({"value": value, "bytes": used}, tuple(notes))


def _huffman_code(payload: bytes) -> Fragment | None:
    end = inspect(payload)
    if end is None or len(payload) - end > _MAX_AFTER_END:
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
