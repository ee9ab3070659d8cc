"""Derived readers of eoudp: generated from the layers, do not edit.

Regenerate with `python -m netdissect.dissect.derive`. Each function returns one value per field and
the next offset, or None where the octets do not suffice.
"""

# ruff: noqa
from __future__ import annotations

from struct import Struct
from typing import Any, Final


_S0_Eoudp30: Final = Struct("!BfQBQ8s").unpack_from
_S0_EoudpAck: Final = Struct("<Q").unpack_from
_S0_EoudpComponentOf: Final = Struct("<QI").unpack_from
_S0_EoudpComponentOf32: Final = Struct("<II").unpack_from
_S0_EoudpConnectAccept: Final = Struct("<Q").unpack_from
_S0_EoudpDeleteComponent: Final = Struct("<QI").unpack_from
_S0_EoudpDeleteComponent32: Final = Struct("<II").unpack_from
_S0_EoudpDeleteEntity: Final = Struct("<Q").unpack_from
_S0_EoudpDeleteEntity32: Final = Struct("<I").unpack_from
_S0_EoudpEarly: Final = Struct("!BfQQ1s").unpack_from
_S0_EoudpEarlyLong32: Final = Struct("!BfII9s").unpack_from
_S0_EoudpEvent: Final = Struct("<IB").unpack_from
_S0_EoudpLate: Final = Struct("!BdQBQ").unpack_from
_S0_EoudpLateLong32: Final = Struct("!BdIBI8s").unpack_from
_S0_EoudpMid: Final = Struct("!BfQBQ").unpack_from
_S0_EoudpMidLong32: Final = Struct("!BfIBI8s").unpack_from
_S0_EoudpPair: Final = Struct("<ii").unpack_from
_S0_EoudpRfc01: Final = Struct("!BfQQ").unpack_from
_S0_EoudpRfc02: Final = Struct("!BfQQ").unpack_from
_S0_EoudpRfc03: Final = Struct("!BdQBQ").unpack_from
_S0_EoudpString: Final = Struct("<I").unpack_from
_S1_EoudpComponentOf: Final = Struct("<I").unpack_from
_S1_EoudpComponentOf32: Final = Struct("<I").unpack_from


def read_EoudpRfc01(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, size, next offset)."""
    p = off
    if p + 21 > end: return None
    v_cmd, v_timestamp, v_id, v_size = _S0_EoudpRfc01(buf, p)
    p += 21
    return (v_cmd, v_timestamp, v_id, v_size, p,)


def read_EoudpRfc02(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, size, next offset)."""
    p = off
    if p + 21 > end: return None
    v_cmd, v_timestamp, v_id, v_size = _S0_EoudpRfc02(buf, p)
    p += 21
    return (v_cmd, v_timestamp, v_id, v_size, p,)


def read_EoudpRfc03(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    p = off
    if p + 26 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size = _S0_EoudpRfc03(buf, p)
    p += 26
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p,)


def read_EoudpEarly(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, size, next offset)."""
    p = off
    if p + 22 > end: return None
    v_cmd, v_timestamp, v_id, v_size, v_padding = _S0_EoudpEarly(buf, p)
    p += 22
    return (v_cmd, v_timestamp, v_id, v_size, p,)


def read_Eoudp30(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    p = off
    if p + 30 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size, v_padding = _S0_Eoudp30(buf, p)
    p += 30
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p,)


def read_EoudpMid(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    p = off
    if p + 22 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size = _S0_EoudpMid(buf, p)
    p += 22
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p,)


def read_EoudpLate(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    p = off
    if p + 26 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size = _S0_EoudpLate(buf, p)
    p += 26
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p,)


def read_EoudpEarlyLong32(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, size, next offset)."""
    p = off
    if p + 22 > end: return None
    v_cmd, v_timestamp, v_id, v_size, v_padding = _S0_EoudpEarlyLong32(buf, p)
    p += 22
    return (v_cmd, v_timestamp, v_id, v_size, p,)


def read_EoudpMidLong32(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    p = off
    if p + 22 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size, v_padding = _S0_EoudpMidLong32(buf, p)
    p += 22
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p,)


def read_EoudpLateLong32(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    p = off
    if p + 26 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size, v_padding = _S0_EoudpLateLong32(buf, p)
    p += 26
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p,)


def read_EoudpPair(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (received, sent, next offset)."""
    p = off
    if p + 8 > end: return None
    v_received, v_sent = _S0_EoudpPair(buf, p)
    p += 8
    return (v_received, v_sent, p,)


def read_EoudpPacketInfo(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (pairs, next offset)."""
    p = off
    v_pairs = []
    while p < end:
        item = read_EoudpPair(buf, p, end)
        if item is None: return None
        v_pairs.append(item)
        p = item[-1]
    return (v_pairs, p,)


def read_EoudpAck(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (acked_id, next offset)."""
    p = off
    if p + 8 > end: return None
    v_acked_id, = _S0_EoudpAck(buf, p)
    p += 8
    return (v_acked_id, p,)


def read_EoudpConnectAccept(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (client_index, next offset)."""
    p = off
    if p + 8 > end: return None
    v_client_index, = _S0_EoudpConnectAccept(buf, p)
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


def read_EoudpEvent(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (key, pressed, next offset)."""
    p = off
    if p + 5 > end: return None
    v_key, v_pressed = _S0_EoudpEvent(buf, p)
    p += 5
    return (v_key, v_pressed, p,)


def read_EoudpDeleteEntity(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (entity, next offset)."""
    p = off
    if p + 8 > end: return None
    v_entity, = _S0_EoudpDeleteEntity(buf, p)
    p += 8
    return (v_entity, p,)


def read_EoudpDeleteEntity32(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (entity, next offset)."""
    p = off
    if p + 4 > end: return None
    v_entity, = _S0_EoudpDeleteEntity32(buf, p)
    p += 4
    return (v_entity, p,)


def read_EoudpComponentOf(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (entity, name_length, component, data_length, next offset)."""
    p = off
    if p + 12 > end: return None
    v_entity, v_name_length = _S0_EoudpComponentOf(buf, p)
    p += 12
    k = (v_name_length or 0)
    if k < 0 or p + k > end: return None
    v_component = buf[p:p + k]
    p += k
    if p + 4 > end: return None
    v_data_length, = _S1_EoudpComponentOf(buf, p)
    p += 4
    k = (v_data_length or 0)
    if k < 0 or p + k > end: return None
    p += k
    return (v_entity, v_name_length, v_component, v_data_length, p,)


def read_EoudpComponentOf32(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (entity, name_length, component, data_length, next offset)."""
    p = off
    if p + 8 > end: return None
    v_entity, v_name_length = _S0_EoudpComponentOf32(buf, p)
    p += 8
    k = (v_name_length or 0)
    if k < 0 or p + k > end: return None
    v_component = buf[p:p + k]
    p += k
    if p + 4 > end: return None
    v_data_length, = _S1_EoudpComponentOf32(buf, p)
    p += 4
    k = (v_data_length or 0)
    if k < 0 or p + k > end: return None
    p += k
    return (v_entity, v_name_length, v_component, v_data_length, p,)


def read_EoudpDeleteComponent(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (entity, name_length, component, next offset)."""
    p = off
    if p + 12 > end: return None
    v_entity, v_name_length = _S0_EoudpDeleteComponent(buf, p)
    p += 12
    k = (v_name_length or 0)
    if k < 0 or p + k > end: return None
    v_component = buf[p:p + k]
    p += k
    return (v_entity, v_name_length, v_component, p,)


def read_EoudpDeleteComponent32(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (entity, name_length, component, next offset)."""
    p = off
    if p + 8 > end: return None
    v_entity, v_name_length = _S0_EoudpDeleteComponent32(buf, p)
    p += 8
    k = (v_name_length or 0)
    if k < 0 or p + k > end: return None
    v_component = buf[p:p + k]
    p += k
    return (v_entity, v_name_length, v_component, p,)


def read_EoudpString(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (length, text, next offset)."""
    p = off
    if p + 4 > end: return None
    v_length, = _S0_EoudpString(buf, p)
    p += 4
    k = (v_length or 0)
    if k < 0 or p + k > end: return None
    v_text = buf[p:p + k]
    p += k
    return (v_length, v_text, p,)


def read_EoudpSystemLoad(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (entries, next offset)."""
    p = off
    v_entries = []
    while p < end:
        item = read_EoudpString(buf, p, end)
        if item is None: return None
        v_entries.append(item)
        p = item[-1]
    return (v_entries, p,)
