"""Sentences about what the other connections of the same server show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from netdissect.diagnosis.words import DIRECTIONS

_MOVED: Final = " It may have continued from another port: "


def may_have_moved(text: str, frame: int) -> str:
    """Extend the cause of a client's silence: its address opens another connection meanwhile."""
    known = text.partition(_MOVED)[0]
    return f"{known}{_MOVED}its address opens another connection to this server in #{frame}."


def sent_meanwhile(direction: int, numbers: Sequence[int]) -> str:
    """Return what a silence is not: packets of other connections of the server kept arriving."""
    if direction:
        return f"{_SERVER}it kept sending to {_names(numbers)} in that time"
    clients = "client" if len(numbers) == 1 else "clients"
    return f"{_SERVER_LINK}packets from the {clients} of {_names(numbers)} arrived in that time"


def dropped_or_broken(numbers: Sequence[int]) -> str:
    """Return the cause of a server's silence toward one client alone."""
    return (
        f"The server kept sending to {_names(numbers)}: the path between it and this client was"
        " broken, or it dropped this client without notice."
    )


def lost_little(direction: int, numbers: Sequence[int]) -> str:
    """Return what a loss is not: other connections of the server lost almost nothing."""
    return (
        f"{_SERVER_LINK}{_names(numbers)} lost almost nothing from {DIRECTIONS[direction]} in that"
        " time"
    )


_SERVER: Final = "the server as a whole: "
_SERVER_LINK: Final = "the link of the server: "


def is_of_server(text: str) -> bool:
    """Return whether a cause was ruled out by what other connections of the server show."""
    return text.startswith((_SERVER, _SERVER_LINK))


_MAX_NAMED: Final = 3
"""Connections that are named; further ones are counted."""


def _names(numbers: Sequence[int]) -> str:
    """Return the names of a few connections, and how many more there are."""
    shown = ", ".join(f"c{number}" for number in numbers[:_MAX_NAMED])
    more = len(numbers) - _MAX_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
