"""Derived readers of netplay: generated from the layers, do not edit.

Regenerate with `python -m netdissect.dissect.derive`. Each function returns one value per field and
the next offset, or None where the octets do not suffice.
"""

# ruff: noqa
from __future__ import annotations

from struct import Struct
from typing import Any, Final


_S0_NetplayChunk: Final = Struct("!B").unpack_from
_S0_NetplayFrame: Final = Struct("!HBH").unpack_from
_S0_NetplayShortFrame: Final = Struct("!H").unpack_from


def read_NetplayFrame(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (length, options, type, next offset)."""
    p = off
    if p + 5 > end: return None
    v_length, v_options, v_type = _S0_NetplayFrame(buf, p)
    p += 5
    k = (v_length or 0) - 3
    if k < 0 or p + k > end: return None
    p += k
    return (v_length, v_options, v_type, p,)


def read_NetplayShortFrame(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (length, next offset)."""
    p = off
    if p + 2 > end: return None
    v_length, = _S0_NetplayShortFrame(buf, p)
    p += 2
    k = (v_length or 0)
    if k < 0 or p + k > end: return None
    p += k
    return (v_length, p,)


def read_NetplayChunk(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (chunk_header, next offset)."""
    p = off
    if p + 1 > end: return None
    v_chunk_header, = _S0_NetplayChunk(buf, p)
    p += 1
    p = end
    return (v_chunk_header, p,)


def read_NetplayText(buf: bytes, off: int, end: int) -> tuple[Any, ...] | None:
    """Return (class_name, body, next offset)."""
    p = off
    k = buf.find(b'\n', p, end)
    if k < 0: return None
    v_class_name = buf[p:k]
    p = k + 1
    k = buf.find(b'\n', p, end)
    if k < 0: return None
    v_body = buf[p:k]
    p = k + 1
    return (v_class_name, v_body, p,)
