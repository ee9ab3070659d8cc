"""Derived readers of eoudp: generated from the layers, do not edit.

Regenerate with `python -m netdissect.dissect.derive`. Each function returns one value per field and
the next offset, or None where the octets do not suffice; `odd_...` adds a finding for each soft
rule that such values break, or the values that rules name where there is no reader.
"""

# ruff: noqa
from __future__ import annotations

from struct import Struct
from typing import Any, Final


_BE_BdIBI8s: Final = Struct("!BdIBI8s").unpack_from
_BE_BdQBQ: Final = Struct("!BdQBQ").unpack_from
_BE_BfIBI8s: Final = Struct("!BfIBI8s").unpack_from
_BE_BfII9s: Final = Struct("!BfII9s").unpack_from
_BE_BfQBQ: Final = Struct("!BfQBQ").unpack_from
_BE_BfQBQ8s: Final = Struct("!BfQBQ8s").unpack_from
_BE_BfQQ: Final = Struct("!BfQQ").unpack_from
_BE_BfQQ1s: Final = Struct("!BfQQ1s").unpack_from
_LE_Q: Final = Struct("<Q").unpack_from
_LE_ii: Final = Struct("<ii").unpack_from


def read_EoudpRfc01(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, size, next offset)."""
    p = off
    if p + 21 > end: return None
    v_cmd, v_timestamp, v_id, v_size = _BE_BfQQ(buf, p)
    p += 21
    return (v_cmd, v_timestamp, v_id, v_size, p,)


def read_EoudpRfc03(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    p = off
    if p + 26 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size = _BE_BdQBQ(buf, p)
    p += 26
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p,)


def read_EoudpEarly(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, size, next offset)."""
    p = off
    if p + 22 > end: return None
    v_cmd, v_timestamp, v_id, v_size, v_padding = _BE_BfQQ1s(buf, p)
    p += 22
    return (v_cmd, v_timestamp, v_id, v_size, p,)


def read_Eoudp30(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    p = off
    if p + 30 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size, v_padding = _BE_BfQBQ8s(buf, p)
    p += 30
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p,)


def read_EoudpMid(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    p = off
    if p + 22 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size = _BE_BfQBQ(buf, p)
    p += 22
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p,)


def read_EoudpEarlyLong32(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, size, next offset)."""
    p = off
    if p + 22 > end: return None
    v_cmd, v_timestamp, v_id, v_size, v_padding = _BE_BfII9s(buf, p)
    p += 22
    return (v_cmd, v_timestamp, v_id, v_size, p,)


def read_EoudpMidLong32(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    p = off
    if p + 22 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size, v_padding = _BE_BfIBI8s(buf, p)
    p += 22
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p,)


def read_EoudpLateLong32(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    p = off
    if p + 26 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size, v_padding = _BE_BdIBI8s(buf, p)
    p += 26
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p,)


def read_EoudpPair(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (received, sent, next offset)."""
    p = off
    if p + 8 > end: return None
    v_received, v_sent = _LE_ii(buf, p)
    p += 8
    return (v_received, v_sent, p,)


def read_EoudpAck(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (acked_id, next offset)."""
    p = off
    if p + 8 > end: return None
    v_acked_id, = _LE_Q(buf, p)
    p += 8
    return (v_acked_id, p,)


def read_EoudpConnectAccept(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (client_index, next offset)."""
    p = off
    if p + 8 > end: return None
    v_client_index, = _LE_Q(buf, p)
    p += 8
    return (v_client_index, p,)


def read_EoudpConnectAcceptText(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (client_index, next offset)."""
    p = off
    k = buf[p:end]
    if not 1 <= len(k) <= 20 or not (k.isascii() and k.isdigit()):
        return None
    v_client_index = int(k)
    p = end
    return (v_client_index, p,)


read_EoudpRfc02: Final = read_EoudpRfc01
read_EoudpLate: Final = read_EoudpRfc03
