"""Derived readers of eoudp: generated from the layers, do not edit.

`python -m netdissect.dissect.derive` regenerates them. `read_...` returns one value per field and
the next offset, or None if bytes are missing. `odd_...` appends a finding for each soft rule that
these values break; without a reader, its values are those that the rules name, in field order.
"""

# ruff: noqa
from __future__ import annotations

from struct import Struct
from typing import Any, Final

from netdissect.model.events import Ev, Event

_BE_BdIBI8s: Final = Struct("!BdIBI8s").unpack_from
_BE_BdQBQ: Final = Struct("!BdQBQ").unpack_from
_BE_BfIBI8s: Final = Struct("!BfIBI8s").unpack_from
_BE_BfII9s: Final = Struct("!BfII9s").unpack_from
_BE_BfQBQ: Final = Struct("!BfQBQ").unpack_from
_BE_BfQBQ8s: Final = Struct("!BfQBQ8s").unpack_from
_BE_BfQQ: Final = Struct("!BfQQ").unpack_from
_BE_BfQQ1s: Final = Struct("!BfQQ1s").unpack_from
_LE_Q: Final = Struct("<Q").unpack_from


def read_EoudpRfc01(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, size, next offset)."""
    if p + 21 > end: return None
    v_cmd, v_timestamp, v_id, v_size = _BE_BfQQ(buf, p)
    return (v_cmd, v_timestamp, v_id, v_size, p + 21,)


def odd_EoudpRfc01(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if (values[0] or 0) not in {0, 1, 2, 3, 11, 12, 13, 14, 15, 16, 17, 129, 130, 138, 139, 140}: found.append((Ev.NOTE, 'eoudp-unknown-command', f"command {values[0]:#04x} is not defined: a connected receiver's process ends"))
    if not 1e-06 <= (values[1] or 0) < 100000000000.0 and (values[1] or 0) != 0: found.append((Ev.NOTE, 'eoudp-timestamp', f"time stamp {values[1]} cannot be a sender's clock"))
    if (values[2] or 0) >= 2147483648: found.append((Ev.NOTE, 'eoudp-far-id', f'id {values[2]}: senders count from 0 in a signed 32-bit number'))


def read_EoudpRfc03(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    if p + 26 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size = _BE_BdQBQ(buf, p)
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p + 26,)


def odd_EoudpRfc03(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if (values[0] or 0) not in {0, 1, 2, 3, 11, 12, 13, 14, 15, 16, 17, 129, 130, 138, 139, 140}: found.append((Ev.NOTE, 'eoudp-unknown-command', f"command {values[0]:#04x} is not defined: a connected receiver's process ends"))
    if not 1e-06 <= (values[1] or 0) < 100000000000.0 and (values[1] or 0) != 0: found.append((Ev.NOTE, 'eoudp-timestamp', f"time stamp {values[1]} cannot be a sender's clock"))
    if (values[2] or 0) >= 2147483648: found.append((Ev.NOTE, 'eoudp-far-id', f'id {values[2]}: senders count from 0 in a signed 32-bit number'))
    if (values[3] or 0) > 1: found.append((Ev.NOTE, 'eoudp-important-value', f'important flag is {values[3]}, read as true'))


def read_EoudpEarly(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, size, next offset)."""
    if p + 22 > end: return None
    v_cmd, v_timestamp, v_id, v_size, v_padding = _BE_BfQQ1s(buf, p)
    return (v_cmd, v_timestamp, v_id, v_size, p + 22,)


def odd_EoudpEarly(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if (values[0] or 0) not in {0, 1, 2, 3, 11, 12, 13, 14, 15, 16, 129, 130, 138, 139, 140}: found.append((Ev.NOTE, 'eoudp-unknown-command', f"command {values[0]:#04x} is not defined: a connected receiver's process ends"))
    if (values[0] or 0) in {16, 138, 140}: found.append((Ev.NOTE, 'eoudp-unhandled-command', f'command {values[0]:#04x} has no handler in any release: the receiving process ends'))
    if not 1000000000000.0 <= (values[1] or 0) < 2200000000000.0: found.append((Ev.NOTE, 'eoudp-timestamp', f"time stamp {values[1]} cannot be a sender's clock"))
    if (values[2] or 0) >= 2147483648: found.append((Ev.NOTE, 'eoudp-far-id', f'id {values[2]}: senders count from 0 in a signed 32-bit number'))


def read_Eoudp30(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    if p + 30 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size, v_padding = _BE_BfQBQ8s(buf, p)
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p + 30,)


def odd_Eoudp30(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if (values[0] or 0) not in {0, 1, 2, 3, 11, 12, 13, 14, 15, 16, 129, 130, 138, 139, 140}: found.append((Ev.NOTE, 'eoudp-unknown-command', f"command {values[0]:#04x} is not defined: a connected receiver's process ends"))
    if (values[0] or 0) in {16, 138, 140}: found.append((Ev.NOTE, 'eoudp-unhandled-command', f'command {values[0]:#04x} has no handler in any release: the receiving process ends'))
    if not 1000000000000.0 <= (values[1] or 0) < 2200000000000.0: found.append((Ev.NOTE, 'eoudp-timestamp', f"time stamp {values[1]} cannot be a sender's clock"))
    if (values[2] or 0) >= 2147483648: found.append((Ev.NOTE, 'eoudp-far-id', f'id {values[2]}: senders count from 0 in a signed 32-bit number'))
    if (values[3] or 0) > 1: found.append((Ev.NOTE, 'eoudp-important-value', f'important flag is {values[3]}, read as true'))


def read_EoudpMid(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    if p + 22 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size = _BE_BfQBQ(buf, p)
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p + 22,)


def read_EoudpEarlyLong32(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, size, next offset)."""
    if p + 22 > end: return None
    v_cmd, v_timestamp, v_id, v_size, v_padding = _BE_BfII9s(buf, p)
    return (v_cmd, v_timestamp, v_id, v_size, p + 22,)


def read_EoudpMidLong32(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    if p + 22 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size, v_padding = _BE_BfIBI8s(buf, p)
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p + 22,)


def read_EoudpLateLong32(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (cmd, timestamp, id, important, size, next offset)."""
    if p + 26 > end: return None
    v_cmd, v_timestamp, v_id, v_important, v_size, v_padding = _BE_BdIBI8s(buf, p)
    return (v_cmd, v_timestamp, v_id, v_important, v_size, p + 26,)


def read_EoudpAck(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (acked_id, next offset)."""
    if p + 8 > end: return None
    v_acked_id, = _LE_Q(buf, p)
    return (v_acked_id, p + 8,)


def odd_EoudpAck(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if (values[0] or 0) >= 2147483648: found.append((Ev.NOTE, 'eoudp-far-id', f'acknowledges id {values[0]}: above what a sender can count'))


def read_EoudpConnectAccept(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (client_index, next offset)."""
    if p + 8 > end: return None
    v_client_index, = _LE_Q(buf, p)
    return (v_client_index, p + 8,)


def read_EoudpConnectAcceptText(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (client_index, next offset)."""
    k = buf[p:end]
    if not 1 <= len(k) <= 20 or not (k.isascii() and k.isdigit()):
        return None
    v_client_index = int(k)
    return (v_client_index, end,)


def odd_EoudpPair(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if (values[0] or 0) < 0 or (values[1] or 0) < 0: found.append((Ev.NOTE, 'eoudp-negative-count', f'received {values[0]}, sent {values[1]}: counters do not go below zero'))


read_EoudpRfc02: Final = read_EoudpRfc01
odd_EoudpRfc02: Final = odd_EoudpRfc01
odd_EoudpMid: Final = odd_Eoudp30
read_EoudpLate: Final = read_EoudpRfc03
odd_EoudpLate: Final = odd_Eoudp30
odd_EoudpEarlyLong32: Final = odd_EoudpEarly
odd_EoudpMidLong32: Final = odd_Eoudp30
odd_EoudpLateLong32: Final = odd_Eoudp30
