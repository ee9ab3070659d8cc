"""Facts that messages state about their connection: versions, the map, the player's name."""

from __future__ import annotations

from typing import Final

from netdissect.model.events import Ev, Event
from netdissect.wire.teeworlds_forms import UUID_OCTETS
from netdissect.wire.varint import TEEWORLDS, VarintError

_IDENTITY, _RESTART = Ev.IDENTITY, Ev.RESTART

TYPES: Final = frozenset(
    ("sys.info", "sys.map_change", "game.cl_start_info", "sys.client_version")
)
"""Types of the messages that state such facts."""
SNAPSHOTS: Final = frozenset(("sys.snap", "sys.snap_single", "sys.snap_empty"))
MAP_CHANGE: Final = "sys.map_change"
FOLLOWED: Final = SNAPSHOTS | {MAP_CHANGE}
"""Types of the messages on which the trees of later datagrams depend."""


def facts(name: str, data: bytes, position: int, end: int) -> list[Event]:
    """Return the facts in one message whose fields are data[position:end]."""
    if name == "sys.client_version":
        # The version follows two UUIDs: that of the message, and that of the connection.
        version = _number(data, position + 2 * UUID_OCTETS, end)
        return [] if version is None else [(_IDENTITY, "ddnet_version", version)]
    text, position = _text(data, position, end)
    if text is None:
        return []
    if name == "sys.info":
        found: list[Event] = [(_IDENTITY, "version", text)]
        _password, position = _text(data, position, end)
        version = _number(data, position, end)
        if version is not None:
            found.append((_IDENTITY, "client_version", version))
        return found
    if name == "sys.map_change":
        # A map change resets the server's tick.
        return [(_IDENTITY, "map", text), (_RESTART, "snapshot")]
    return [(_IDENTITY, "player_name", text)]


def _text(data: bytes, position: int, end: int) -> tuple[str | None, int]:
    stop = data.find(b"\0", position, end)
    if stop < 0:
        return None, end
    return data[position:stop].decode("utf-8", "surrogateescape"), stop + 1


def _number(data: bytes, position: int, end: int) -> int | None:
    try:
        return TEEWORLDS.read(data, position, end)[0]
    except VarintError:
        return None
