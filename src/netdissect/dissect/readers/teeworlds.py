"""Derived readers of teeworlds: generated from the layers, do not edit.

Regenerate with `python -m netdissect.dissect.derive`. Each function returns one value per field and
the next offset, or None where the octets do not suffice.
"""

# ruff: noqa
from __future__ import annotations

from struct import Struct
from typing import Any, Final


_S0_Tw06: Final = Struct("!B").unpack_from
_S0_Tw065: Final = Struct("!B").unpack_from
_S0_Tw06Chunk: Final = Struct("!B").unpack_from
_S0_Tw06Connless: Final = Struct("!2s4s").unpack_from
_S0_Tw07: Final = Struct("!B4s").unpack_from
_S0_Tw07Chunk: Final = Struct("!B").unpack_from
_S0_Tw07Connless: Final = Struct("!4s4s").unpack_from
_S0_Tw07ControlConnect: Final = Struct("!B4s").unpack_from
_S0_Tw07ControlToken: Final = Struct("!B4s").unpack_from
_S1_Tw065: Final = Struct("!4s").unpack_from


def read_Tw06(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (compressed_flag, resend_flag, connless_flag, control_flag, reserved, ack, num_chunks, next offset)."""
    p = off
    if p + 2 > end: return None
    n = int.from_bytes(buf[p:p + 2], 'big')
    v_compressed_flag = n >> 15
    v_resend_flag = n >> 14 & 0x1
    v_connless_flag = n >> 13 & 0x1
    v_control_flag = n >> 12 & 0x1
    v_reserved = n >> 10 & 0x3
    v_ack = n & 0x3ff
    p += 2
    if p + 1 > end: return None
    v_num_chunks, = _S0_Tw06(buf, p)
    p += 1
    return (v_compressed_flag, v_resend_flag, v_connless_flag, v_control_flag, v_reserved, v_ack, v_num_chunks, p,)


def read_Tw065(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (compressed_flag, resend_flag, connless_flag, control_flag, token_flag, reserved, ack, num_chunks, token, next offset)."""
    p = off
    if p + 2 > end: return None
    n = int.from_bytes(buf[p:p + 2], 'big')
    v_compressed_flag = n >> 15
    v_resend_flag = n >> 14 & 0x1
    v_connless_flag = n >> 13 & 0x1
    v_control_flag = n >> 12 & 0x1
    v_token_flag = n >> 11 & 0x1
    v_reserved = n >> 10 & 0x1
    v_ack = n & 0x3ff
    p += 2
    if p + 1 > end: return None
    v_num_chunks, = _S0_Tw065(buf, p)
    p += 1
    if (v_token_flag or 0):
        if p + 4 > end: return None
        v_token, = _S1_Tw065(buf, p)
        p += 4
    else:
        v_token = None
    return (v_compressed_flag, v_resend_flag, v_connless_flag, v_control_flag, v_token_flag, v_reserved, v_ack, v_num_chunks, v_token, p,)


def read_Tw07(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (reserved, connless_flag, compressed_flag, resend_flag, control_flag, ack, num_chunks, token, next offset)."""
    p = off
    if p + 2 > end: return None
    n = int.from_bytes(buf[p:p + 2], 'big')
    v_reserved = n >> 14
    v_connless_flag = n >> 13 & 0x1
    v_compressed_flag = n >> 12 & 0x1
    v_resend_flag = n >> 11 & 0x1
    v_control_flag = n >> 10 & 0x1
    v_ack = n & 0x3ff
    p += 2
    if p + 5 > end: return None
    v_num_chunks, v_token = _S0_Tw07(buf, p)
    p += 5
    return (v_reserved, v_connless_flag, v_compressed_flag, v_resend_flag, v_control_flag, v_ack, v_num_chunks, v_token, p,)


def read_Tw06Chunk(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (resend, vital, size_high, sequence_high, size_low, sequence_low, next offset)."""
    p = off
    if p + 1 > end: return None
    n = buf[p]
    v_resend = n >> 7
    v_vital = n >> 6 & 0x1
    v_size_high = n & 0x3f
    p += 1
    if p + 1 > end: return None
    n = buf[p]
    v_sequence_high = n >> 4
    v_size_low = n & 0xf
    p += 1
    if (v_vital or 0):
        if p + 1 > end: return None
        v_sequence_low, = _S0_Tw06Chunk(buf, p)
        p += 1
    else:
        v_sequence_low = None
    k = (v_size_high or 0) << 4 | (v_size_low or 0)
    if k < 0 or p + k > end: return None
    p += k
    return (v_resend, v_vital, v_size_high, v_sequence_high, v_size_low, v_sequence_low, p,)


def read_Tw07Chunk(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (resend, vital, size_high, sequence_high, size_low, sequence_low, next offset)."""
    p = off
    if p + 1 > end: return None
    n = buf[p]
    v_resend = n >> 7
    v_vital = n >> 6 & 0x1
    v_size_high = n & 0x3f
    p += 1
    if p + 1 > end: return None
    n = buf[p]
    v_sequence_high = n >> 6
    v_size_low = n & 0x3f
    p += 1
    if (v_vital or 0):
        if p + 1 > end: return None
        v_sequence_low, = _S0_Tw07Chunk(buf, p)
        p += 1
    else:
        v_sequence_low = None
    k = (v_size_high or 0) << 6 | (v_size_low or 0)
    if k < 0 or p + k > end: return None
    p += k
    return (v_resend, v_vital, v_size_high, v_sequence_high, v_size_low, v_sequence_low, p,)


def read_Tw06Connless(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (signature, extra, next offset)."""
    p = off
    if p + 6 > end: return None
    v_signature, v_extra = _S0_Tw06Connless(buf, p)
    p += 6
    p = end
    return (v_signature, v_extra, p,)


def read_Tw07Connless(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (reserved, connless_flag, other_flags, version, token, response_token, next offset)."""
    p = off
    if p + 1 > end: return None
    n = buf[p]
    v_reserved = n >> 6
    v_connless_flag = n >> 5 & 0x1
    v_other_flags = n >> 2 & 0x7
    v_version = n & 0x3
    p += 1
    if p + 8 > end: return None
    v_token, v_response_token = _S0_Tw07Connless(buf, p)
    p += 8
    p = end
    return (v_reserved, v_connless_flag, v_other_flags, v_version, v_token, v_response_token, p,)


def read_Tw07ControlToken(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (control_id, response_token, padding, next offset)."""
    p = off
    if p + 5 > end: return None
    v_control_id, v_response_token = _S0_Tw07ControlToken(buf, p)
    p += 5
    v_padding = buf[p:end]
    p = end
    return (v_control_id, v_response_token, v_padding, p,)


def read_Tw07ControlConnect(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (control_id, response_token, padding, next offset)."""
    p = off
    if p + 5 > end: return None
    v_control_id, v_response_token = _S0_Tw07ControlConnect(buf, p)
    p += 5
    v_padding = buf[p:end]
    p = end
    return (v_control_id, v_response_token, v_padding, p,)
