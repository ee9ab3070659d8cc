"""Derived readers of riptide: generated from the layers, do not edit.

`python -m netdissect.dissect.derive` regenerates them. `read_...` returns one value per field and
the next offset, or None if bytes are missing. `odd_...` appends a finding for each soft rule that
these values break; without a reader, its values are those that the rules name, in field order.
"""

# ruff: noqa
from __future__ import annotations

from struct import Struct
from typing import Any, Final

from netdissect.model.native import ABSENT, i64
from netdissect.model.events import Ev, Event
from netdissect.wire.varint import low_octets, low_word
from netdissect.wire.varint import read_varulong_bits

_BE_BB: Final = Struct("!BB").unpack_from
_LE_BH: Final = Struct("<BH").unpack_from
_LE_BHBH: Final = Struct("<BHBH").unpack_from
_LE_BHH: Final = Struct("<BHH").unpack_from
_LE_BHHH: Final = Struct("<BHHH").unpack_from
_LE_H: Final = Struct("<H").unpack_from
_LE_h: Final = Struct("<h").unpack_from


def read_Riptide20Unreliable(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, message_id, next offset)."""
    if p + 1 > end: return None
    v_type_id = buf[p]
    p += 1
    if p + 2 <= end:
        v_message_id, = _LE_H(buf, p)
        p += 2
    else:
        v_message_id = None
    return (v_type_id, v_message_id, end,)


def odd_Riptide20Unreliable(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if values[1] is None: found.append((Ev.NOTE, 'riptide-missing-message-id', 'no message id: a real receiver reads 0'))


def read_Riptide20Ack(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, last_received, ack_bits, next offset)."""
    if p + 5 > end: return None
    v_type_id, v_last_received, v_ack_bits = _LE_BHH(buf, p)
    return (v_type_id, v_last_received, v_ack_bits, p + 5,)


def read_Riptide20AckExtra(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, last_received, ack_bits, acked_sequence_id, next offset)."""
    if p + 7 > end: return None
    v_type_id, v_last_received, v_ack_bits, v_acked_sequence_id = _LE_BHHH(buf, p)
    return (v_type_id, v_last_received, v_ack_bits, v_acked_sequence_id, p + 7,)


def read_Riptide20Connect(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, next offset)."""
    if p + 1 > end: return None
    v_type_id = buf[p]
    return (v_type_id, end,)


def read_Riptide20Reject(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, reason, next offset)."""
    if p + 2 > end: return None
    v_type_id, v_reason = _BE_BB(buf, p)
    return (v_type_id, v_reason, end,)


def odd_Riptide20Reject(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if direction is not None and (direction or 0) == 0: found.append((Ev.NOTE, 'riptide-wrong-direction', 'Reject is sent by servers only'))


def read_Riptide20Heartbeat(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, ping_id, rtt_ms, next offset)."""
    if p + 2 > end: return None
    v_type_id, v_ping_id = _BE_BB(buf, p)
    p += 2
    if p + 2 <= end:
        v_rtt_ms, = _LE_h(buf, p)
        p += 2
    else:
        v_rtt_ms = None
    return (v_type_id, v_ping_id, v_rtt_ms, p,)


def odd_Riptide20Heartbeat(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if direction is not None and (direction or 0) == 0 and (values[2] is None): found.append((Ev.NOTE, 'riptide-heartbeat-form', "a client's heartbeat without RTT field: a real server reads 0"))
    if (direction or 0) == 1 and values[2] is not None: found.append((Ev.NOTE, 'riptide-heartbeat-form', "a server's heartbeat answer carries no RTT field"))
    if (values[2] or 0) < -1: found.append((Ev.NOTE, 'riptide-implausible-rtt', f'RTT {values[2]} ms: only -1 (none yet) is a valid negative value'))


def read_Riptide20Disconnect(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, reason, next offset)."""
    if p + 1 > end: return None
    v_type_id = buf[p]
    p += 1
    if p + 1 <= end:
        v_reason = buf[p]
        p += 1
    else:
        v_reason = None
    return (v_type_id, v_reason, end,)


def odd_Riptide20Disconnect(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if direction is not None and (direction or 0) == 0 and (values[1] is not None): found.append((Ev.NOTE, 'riptide-wrong-direction', "a client's Disconnect carries no reason"))


def read_Riptide20Reliable(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, sequence_id, message_id, next offset)."""
    if p + 3 > end: return None
    v_type_id, v_sequence_id = _LE_BH(buf, p)
    p += 3
    if p + 2 <= end:
        v_message_id, = _LE_H(buf, p)
        p += 2
    else:
        v_message_id = None
    return (v_type_id, v_sequence_id, v_message_id, end,)


def odd_Riptide20Reliable(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if values[2] is None: found.append((Ev.NOTE, 'riptide-missing-message-id', 'no message id: a real receiver reads 0'))


def read_Riptide20Welcome(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, sequence_id, client_id, next offset)."""
    if p + 5 > end: return None
    v_type_id, v_sequence_id, v_client_id = _LE_BHH(buf, p)
    return (v_type_id, v_sequence_id, v_client_id, p + 5,)


def odd_Riptide20ClientConnected(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if direction is not None and (direction or 0) == 0: found.append((Ev.NOTE, 'riptide-wrong-direction', 'ClientConnected is sent by servers only'))


def odd_Riptide20ClientDisconnected(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if direction is not None and (direction or 0) == 0: found.append((Ev.NOTE, 'riptide-wrong-direction', 'ClientDisconnected is sent by servers only'))


def read_Riptide20Invalid(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, sequence_id, next offset)."""
    if p + 1 > end: return None
    v_type_id = buf[p]
    p += 1
    if p + 2 <= end:
        v_sequence_id, = _LE_H(buf, p)
        p += 2
    else:
        v_sequence_id = None
    return (v_type_id, v_sequence_id, end,)


def odd_Riptide20Invalid(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if True: found.append((Ev.NOTE, 'riptide-invalid-type', f'type {values[0]} is not defined: a real receiver acknowledges it as reliable, then discards it'))


def read_Riptide21devAck(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, last_received, ack_bits, acked_sequence_id, next offset)."""
    if p + 5 > end: return None
    v_type_id, v_last_received, v_ack_bits = _LE_BHH(buf, p)
    p += 5
    if p + 2 <= end:
        v_acked_sequence_id, = _LE_H(buf, p)
        p += 2
    else:
        v_acked_sequence_id = None
    return (v_type_id, v_last_received, v_ack_bits, v_acked_sequence_id, p,)


def read_Riptide21devNotify(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, last_received, ack_bits, sequence_id, next offset)."""
    if p + 6 > end: return None
    v_type_id, v_last_received, v_ack_bits, v_sequence_id = _LE_BHBH(buf, p)
    return (v_type_id, v_last_received, v_ack_bits, v_sequence_id, end,)


def read_RiptideUnreliable(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, message_id, next offset)."""
    m = (end - off) << 3
    n = low_octets(buf, off, 2)
    if m < 4: return None
    v_type_id = n & 0xf
    b = 4
    if m >= b + 8:
        v_message_id = n >> b & 0xff
        if v_message_id < 0x80: b += 8
        else:
            v_message_id, b, k = read_varulong_bits(low_octets(buf, off, 11), b, m)
            if not k: return None
            v_message_id &= 0xffff
    else:
        v_message_id = None
    return (v_type_id, v_message_id, end,)


def read_RiptideAck(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, last_received, ack_bits, extra_flag, extra_seq_field, next offset)."""
    m = (end - off) << 3
    n = low_octets(buf, off, 7)
    if m < 37: return None
    v_type_id = n & 0xf
    v_last_received = n >> 4 & 0xffff
    v_ack_bits = n >> 20 & 0xffff
    v_extra_flag = n >> 36 & 0x1
    b = 37
    if m >= b + 16:
        v_extra_seq_field = n >> b & 0xffff
        b += 16
    else:
        v_extra_seq_field = None
    return (v_type_id, v_last_received, v_ack_bits, v_extra_flag, v_extra_seq_field, off + ((b + 7) >> 3),)


def odd_RiptideAck(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if (values[3] or 0) and values[4] is None: found.append((Ev.NOTE, 'truncated', 'flag 1 announces an acked id that is not there: a real receiver reads 0'))


def read_RiptideConnect(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, next offset)."""
    m = (end - off) << 3
    n = low_octets(buf, off, 1)
    if m < 4: return None
    v_type_id = n & 0xf
    return (v_type_id, end,)


def read_RiptideReject(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, reason, next offset)."""
    m = (end - off) << 3
    n = low_octets(buf, off, 2)
    if m < 12: return None
    v_type_id = n & 0xf
    v_reason = n >> 4 & 0xff
    return (v_type_id, v_reason, end,)


def read_RiptideHeartbeat(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, ping_id, rtt_ms, next offset)."""
    m = (end - off) << 3
    n = low_octets(buf, off, 4)
    if m < 12: return None
    v_type_id = n & 0xf
    v_ping_id = n >> 4 & 0xff
    b = 12
    if m >= b + 16:
        v_rtt_ms = n >> b & 0xffff
        if v_rtt_ms >= 0x8000: v_rtt_ms -= 0x10000
        b += 16
    else:
        v_rtt_ms = None
    return (v_type_id, v_ping_id, v_rtt_ms, off + ((b + 7) >> 3),)


def read_RiptideDisconnect(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, reason, next offset)."""
    m = (end - off) << 3
    n = low_octets(buf, off, 2)
    if m < 4: return None
    v_type_id = n & 0xf
    b = 4
    if m >= b + 8:
        v_reason = n >> b & 0xff
        b += 8
    else:
        v_reason = None
    return (v_type_id, v_reason, end,)


def odd_RiptideDisconnect(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if direction is not None and (direction or 0) == 0 and (values[1] is not None): found.append((Ev.NOTE, 'riptide-wrong-direction', "a client's Disconnect carries no reason"))
    if (values[1] or 0) == 80: found.append((Ev.NOTE, 'riptide-misencoded-stop', 'reason 80 is ServerStopped, sent as the raw bytes 05 05 by servers 2.1.0 to 2.2.0'))


def read_RiptideNotify(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, last_received, ack_bits, sequence_id, next offset)."""
    m = (end - off) << 3
    n = low_octets(buf, off, 6)
    if m < 44: return None
    v_type_id = n & 0xf
    v_last_received = n >> 4 & 0xffff
    v_ack_bits = n >> 20 & 0xff
    v_sequence_id = n >> 28 & 0xffff
    return (v_type_id, v_last_received, v_ack_bits, v_sequence_id, end,)


def read_RiptideReliable(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, sequence_id, message_id, next offset)."""
    m = (end - off) << 3
    n = low_octets(buf, off, 4)
    if m < 20: return None
    v_type_id = n & 0xf
    v_sequence_id = n >> 4 & 0xffff
    b = 20
    if m >= b + 8:
        v_message_id = n >> b & 0xff
        if v_message_id < 0x80: b += 8
        else:
            v_message_id, b, k = read_varulong_bits(low_octets(buf, off, 13), b, m)
            if not k: return None
            v_message_id &= 0xffff
    else:
        v_message_id = None
    return (v_type_id, v_sequence_id, v_message_id, end,)


def read_RiptideWelcome(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, sequence_id, client_id, next offset)."""
    m = (end - off) << 3
    n = low_octets(buf, off, 5)
    if m < 36: return None
    v_type_id = n & 0xf
    v_sequence_id = n >> 4 & 0xffff
    v_client_id = n >> 20 & 0xffff
    return (v_type_id, v_sequence_id, v_client_id, off + ((36 + 7) >> 3),)


def read_RiptideInvalid(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (type_id, sequence_id, next offset)."""
    m = (end - off) << 3
    n = low_octets(buf, off, 3)
    if m < 4: return None
    v_type_id = n & 0xf
    b = 4
    if m >= b + 16:
        v_sequence_id = n >> b & 0xffff
        b += 16
    else:
        v_sequence_id = None
    return (v_type_id, v_sequence_id, end,)


read_Riptide20ClientConnected: Final = read_Riptide20Welcome
read_Riptide20ClientDisconnected: Final = read_Riptide20Welcome
read_Riptide21devUnreliable: Final = read_Riptide20Unreliable
odd_Riptide21devUnreliable: Final = odd_Riptide20Unreliable
read_Riptide21devConnect: Final = read_Riptide20Connect
read_Riptide21devReject: Final = read_Riptide20Reject
odd_Riptide21devReject: Final = odd_Riptide20Reject
read_Riptide21devHeartbeat: Final = read_Riptide20Heartbeat
odd_Riptide21devHeartbeat: Final = odd_Riptide20Heartbeat
read_Riptide21devDisconnect: Final = read_Riptide20Disconnect
odd_Riptide21devDisconnect: Final = odd_Riptide20Disconnect
read_Riptide21devReliable: Final = read_Riptide20Reliable
odd_Riptide21devReliable: Final = odd_Riptide20Reliable
read_Riptide21devWelcome: Final = read_Riptide20Welcome
read_Riptide21devClientConnected: Final = read_Riptide20Welcome
odd_Riptide21devClientConnected: Final = odd_Riptide20ClientConnected
read_Riptide21devClientDisconnected: Final = read_Riptide20Welcome
odd_Riptide21devClientDisconnected: Final = odd_Riptide20ClientDisconnected
odd_RiptideUnreliable: Final = odd_Riptide20Unreliable
odd_RiptideReject: Final = odd_Riptide20Reject
odd_RiptideHeartbeat: Final = odd_Riptide20Heartbeat
odd_RiptideReliable: Final = odd_Riptide20Reliable
read_RiptideClientConnected: Final = read_RiptideWelcome
odd_RiptideClientConnected: Final = odd_Riptide20ClientConnected
read_RiptideClientDisconnected: Final = read_RiptideWelcome
odd_RiptideClientDisconnected: Final = odd_Riptide20ClientDisconnected
odd_RiptideInvalid: Final = odd_Riptide20Invalid


def word_RiptideAck(buf: bytes, off: i64, end: i64) -> tuple[i64, i64, i64, i64, i64, i64]:
    """Return (type_id, last_received, ack_bits, extra_flag, extra_seq_field, next offset) as machine integers."""
    m: i64 = (end - off) << 3
    n: i64 = low_word(buf, off, 7)
    if m < 37: return 0, 0, 0, 0, 0, -1
    v_type_id = n & 0xf
    v_last_received = n >> 4 & 0xffff
    v_ack_bits = n >> 20 & 0xffff
    v_extra_flag = n >> 36 & 0x1
    b: i64 = 37
    if m >= b + 16:
        v_extra_seq_field = n >> b & 0xffff
        b += 16
    else:
        v_extra_seq_field = ABSENT
    return v_type_id, v_last_received, v_ack_bits, v_extra_flag, v_extra_seq_field, off + ((b + 7) >> 3)


def word_RiptideNotify(buf: bytes, off: i64, end: i64) -> tuple[i64, i64, i64, i64, i64]:
    """Return (type_id, last_received, ack_bits, sequence_id, next offset) as machine integers."""
    m: i64 = (end - off) << 3
    n: i64 = low_word(buf, off, 6)
    if m < 44: return 0, 0, 0, 0, -1
    v_type_id = n & 0xf
    v_last_received = n >> 4 & 0xffff
    v_ack_bits = n >> 20 & 0xff
    v_sequence_id = n >> 28 & 0xffff
    return v_type_id, v_last_received, v_ack_bits, v_sequence_id, end


def word_RiptideInvalid(buf: bytes, off: i64, end: i64) -> tuple[i64, i64, i64]:
    """Return (type_id, sequence_id, next offset) as machine integers."""
    m: i64 = (end - off) << 3
    n: i64 = low_word(buf, off, 3)
    if m < 4: return 0, 0, -1
    v_type_id = n & 0xf
    b: i64 = 4
    if m >= b + 16:
        v_sequence_id = n >> b & 0xffff
        b += 16
    else:
        v_sequence_id = ABSENT
    return v_type_id, v_sequence_id, end
