"""The strict test of a message: whether a real sender of a release would have sent these bytes.

Source: docs/protocols/riptide.md section 10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netdissect.dissect.readers import riptide as read
from netdissect.wire.riptide import BYTES_20, BYTES_21DEV, TYPES_20, TYPES_21, UNDECIDED

_KICKED: Final = 4
"""Reason of Disconnect: the only one that a message may follow."""

_Reader = Callable[[bytes, int, int], tuple[Any, ...] | None]


def _readers(prefix: str, names: tuple[str, ...]) -> tuple[tuple[str, _Reader], ...]:
    return tuple((name, getattr(read, f"read_{prefix}{name}")) for name in names)


_READERS: Final = {
    UNDECIDED: _readers("Riptide", TYPES_21),
    BYTES_20: _readers("Riptide20", TYPES_20),
    BYTES_21DEV: _readers("Riptide21dev", TYPES_21),
}
"""Packing -> (type name, reader) by type number."""


class Message:
    """One message, read in one packing: sender, time, type name and the values of its reader."""

    __slots__ = ("octets", "side", "time_ns", "type", "values")

    def __init__(
        self, side: int, time_ns: int, type_: str, values: tuple[Any, ...], octets: bytes
    ) -> None:
        self.side = side
        self.time_ns = time_ns
        self.type = type_
        self.values = values
        self.octets = octets


def read_message(
    octets: bytes, packing: str, side: int, time_ns: int, *, from_client: bool
) -> Message | None:
    """Return one message; None where it is impossible by the rules of section 10."""
    if not octets:
        return None
    readers = _READERS[packing]
    number = octets[0] & 15 if packing == UNDECIDED else octets[0]
    if number >= len(readers):
        return None
    type_, reader = readers[number]
    size = len(octets)
    values = reader(octets, 0, size)
    if values is None or not _is_plausible(type_, values, octets, packing, from_client=from_client):
        return None
    return Message(side, time_ns, type_, values, octets)


def _is_plausible(  # noqa: PLR0911 - one line per message type
    type_: str, values: tuple[Any, ...], octets: bytes, packing: str, *, from_client: bool
) -> bool:
    """Return False for a size, padding bits or a direction in which no release sends the type."""
    size = len(octets)
    padded = packing == UNDECIDED
    if type_ in ("Ack", "AckExtra"):
        if packing == BYTES_20:
            return size == (7 if type_ == "AckExtra" else 5)
        used = 53 if size == 7 else 37  # noqa: PLR2004 - with and without the named id
        return size in (5, 7) and not (padded and octets[-1] >> (used & 7))
    if type_ == "Heartbeat":
        return size == (4 if from_client else 2) and not (padded and octets[-1] >> 4)
    if type_ == "Welcome":
        return size == 5 and not (padded and octets[-1] >> 4)  # noqa: PLR2004 - whole message
    if type_ in ("ClientConnected", "ClientDisconnected"):
        return size == 5 and not from_client  # noqa: PLR2004 - whole message
    if type_ == "Reject":
        custom = 5 if packing == BYTES_20 else 4
        plain = size == 2 and not (padded and octets[1] >> 4)  # noqa: PLR2004 - type and reason
        return not from_client and (values[1] == custom or (plain and values[1] < custom))
    if type_ == "Disconnect":
        # The message of an application may follow the reason Kicked.
        return size == 1 if from_client else size == 2 or (size > 2 and values[1] == _KICKED)  # noqa: PLR2004 - type and reason
    if type_ == "Connect":
        return from_client or size == 1
    if type_ == "Unreliable" and padded and size == 2:  # noqa: PLR2004 - type and message id
        return octets[1] >> 3 == 0  # an id of one byte
    return size >= 3  # noqa: PLR2004 - type and number, or type and message id


def is_possible(octets: bytes, packing: str) -> bool:
    """Return whether bytes could be a message of a packing, whichever side sends it."""
    return any(
        read_message(octets, packing, 0, 0, from_client=side) is not None for side in (False, True)
    )
