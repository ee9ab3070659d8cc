"""The commands of a datagram, read strictly by the derived readers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from netdissect.dissect.kept import readers
from netdissect_enet.rangecoder import RangeCoderError, decompress
from netdissect_enet.rules import CRC, MAX_COMMANDS, NAMES

__all__ = ["ACK", "CONNECT", "DISCONNECT", "VERIFY", "Head", "read_datagram"]

ACK, CONNECT, VERIFY, DISCONNECT = 1, 2, 3, 4
DATA: Final = frozenset({6, 7, 8, 9, 12})
"""Commands that a channel has."""
_PEER = 0xFF
_TRAILING = 3
"""Bytes at the end that are no command: too few to be one."""
_LEAST = 4


class Head(NamedTuple):
    """What stands before the commands."""

    peer: int
    session: int
    sent_time: int | None
    checksum: int | None
    start: int
    """Byte of the first command."""
    compressed: bool


@cache
def _readers() -> dict[int, Callable[[bytes, int, int], Any]]:
    made = readers("netdissect_enet.layers")
    names = {number: "".join(part.title() for part in NAMES[number].split("_")) for number in NAMES}
    return {number: getattr(made, f"read_Enet{name}") for number, name in names.items()}


def read_datagram(octets: bytes, dialect: str) -> tuple[Head, list[Any], str] | None:
    """Return (head, commands, fault) of a datagram; None where it has no head.

    A command is the tuple of its fields in the order of its layer, its first four being bits, and
    the offset behind it last. `fault` is the code of what ended the parse, "" where nothing did.
    """
    size = len(octets)
    if size < 2:  # noqa: PLR2004 - the peer word
        return None
    word = octets[0] << 8 | octets[1]
    start = 4 if word & 0x8000 else 2
    checked = dialect == CRC
    end = start + 4 if checked else start
    if end > size:
        return None
    head = Head(
        word & 0xFFF, word >> 12 & 3,
        octets[2] << 8 | octets[3] if word & 0x8000 else None,
        int.from_bytes(octets[start:end], "big") if checked else None, end, bool(word & 0x4000),
    )  # fmt: skip
    if head.compressed:
        try:
            octets, end = decompress(octets[end:]), 0
        except RangeCoderError:
            return head, [], "enet-compression"
    return head, *_commands(octets, end, timed=head.sent_time is not None)


def _commands(octets: bytes, at: int, *, timed: bool) -> tuple[list[Any], str]:
    table, end = _readers(), len(octets)
    found: list[Any] = []
    while end - at >= _LEAST and len(found) < MAX_COMMANDS:
        read = table.get(octets[at] & 0xF)
        if read is None:
            return found, "enet-bad-command"
        if octets[at] & 0x80 and not timed:
            return found, "enet-sent-time"
        command = read(octets, at, end)
        if command is None:
            return found, "truncated"
        if command[4] == _PEER and command[3] in DATA:
            return found, "enet-bad-command"  # data on no channel
        found.append(command)
        at = command[-1]
    return found, "" if end - at <= _TRAILING else "enet-commands"
