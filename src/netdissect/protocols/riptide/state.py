"""What earlier messages of a Riptide connection have taught its decoder: `Hints.extra`."""

from __future__ import annotations

from typing import Final, NamedTuple


class Phase:
    """How far a connection has come."""

    UNKNOWN: Final = 0
    """No handshake was seen: the capture starts mid-connection."""
    CONNECTING: Final = 1
    """A Connect was seen."""
    CONNECTED: Final = 2
    """A Welcome was seen."""
    CLOSED: Final = 3
    """The connection was refused or has ended."""
    RECONNECTING: Final = 4
    """A Connect came on a live connection: a new connection if a first Welcome follows."""


class DecoderState(NamedTuple):
    """What a connection has taught so far."""

    phase: int = Phase.UNKNOWN
    client_id: int | None = None
    """Client id in the last Welcome of the server."""
    answered: bool = False
    """Whether the client has sent a Welcome back."""
