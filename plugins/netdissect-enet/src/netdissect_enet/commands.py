"""Reads the commands of a datagram, as strictly as the library, with the derived readers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from netdissect.dissect.cache import readers
from netdissect_enet.rangecoder import RangeCoderError, decompress
from netdissect_enet.rules import CRC, LAYERS, MAX_COMMANDS, PEER, PLAIN

DATA: Final = frozenset({6, 7, 8, 9, 12})
"""Commands with a channel: those of data."""
_LEAST = 4
"""Bytes of the shortest command. Fewer bytes at the end of a datagram are ignored."""


class Head(NamedTuple):
    """The fields of a datagram before the commands, as in `EnetHead`."""

    timed: int
    compressed: int
    session: int
    peer: int
    sent_time: int | None
    start: int
    """Offset of the first command."""


_Reader = Callable[[bytes, int, int], Any]


@cache
def _readers() -> tuple[dict[str, _Reader], dict[int, _Reader]]:
    """Return the readers of heads by dialect, and of commands by number."""
    made = readers("netdissect_enet.layers")
    return (
        {PLAIN: made.read_EnetHead, CRC: made.read_EnetHeadCrc},
        {number: getattr(made, f"read_{name}") for number, name in LAYERS.items()},
    )


def read_datagram(octets: bytes, dialect: str) -> tuple[Head, list[Any], str] | None:
    """Return (head, commands, fault) of a datagram; None if its head is cut short.

    A command is the tuple of its fields and the offset behind it; the first four fields are bits.
    `fault` is the code of the finding that ended the reading, or "".
    """
    heads, _ = _readers()
    read = heads[dialect](octets, 0, len(octets))
    if read is None:
        return None
    *known, at = read
    head = Head._make([*known[:5], at])
    if head.compressed:
        try:
            octets, at = decompress(octets[at:]), 0
        except RangeCoderError:
            return head, [], "enet-compression"
    return head, *_commands(octets, at, timed=bool(head.timed))


def _commands(octets: bytes, at: int, *, timed: bool) -> tuple[list[Any], str]:
    _, table = _readers()
    end = len(octets)
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
        if command[4] == PEER and command[3] in DATA:
            return found, "enet-bad-command"  # data on no channel
        found.append(command)
        at = command[-1]
    return found, "" if end - at < _LEAST else "enet-commands"
