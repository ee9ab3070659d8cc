"""Derived readers of netplay: generated from the layers, do not edit.

`python -m netdissect.dissect.derive` regenerates them. `read_...` returns one value per field and
the next offset, or None if bytes are missing. `odd_...` appends a finding for each soft rule that
these values break; without a reader, its values are those that the rules name, in field order.
"""

# ruff: noqa
from __future__ import annotations

from struct import Struct
from typing import Any, Final

from netdissect.model.events import Ev, Event

_BE_HBH: Final = Struct("!HBH").unpack_from


def read_NetplayFrame(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (length, options, type, next offset)."""
    if p + 5 > end: return None
    v_length, v_options, v_type = _BE_HBH(buf, p)
    p += 5
    k = (v_length or 0) - 3
    if k < 0 or p + k > end: return None
    return (v_length, v_options, v_type, p + k,)


def odd_NetplayFrame(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if (values[1] or 0) & 252: found.append((Ev.NOTE, 'reserved-option-bits', f'options {values[1]:#04x}: bits 2 to 7 are reserved'))
    if (values[1] or 0) & 2: found.append((Ev.NOTE, 'encrypted-flag-set', "no release encrypts: the application's own mark"))


def read_NetplayText(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (class_name, body, next offset)."""
    k = buf.find(b'\n', p, end)
    if k < 0: return None
    v_class_name = buf[p:k]
    p = k + 1
    k = buf.find(b'\n', p, end)
    if k < 0: return None
    v_body = buf[p:k]
    p = k + 1
    return (v_class_name, v_body, p,)


def odd_NetplayShortFrame(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if (values[0] or 0) < 3: found.append((Ev.NOTE, 'frame-length-below-3', f'length {values[0]}: options and type alone take 3 bytes'))


def odd_NetplayChunk(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if (values[0] or 0) & 63: found.append((Ev.NOTE, 'chunk-header-invalid', f'chunk header {values[0]:#04x}'))
