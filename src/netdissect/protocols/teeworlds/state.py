"""What earlier packets of a Teeworlds connection have taught its decoder: `Hints.extra`."""

from __future__ import annotations

from typing import Final, NamedTuple

from netdissect.model.claims import Hints


class Phase:
    """How far a connection has come."""

    UNKNOWN: Final = 0
    """Nothing was seen: the capture starts mid-connection, or with this packet."""
    REQUESTED: Final = 1
    """The client has asked for a token or for a connection."""
    ACCEPTED: Final = 2
    """The server has accepted the client."""
    ONLINE: Final = 3
    """The server has sent data."""
    CLOSED: Final = 4
    """One side has closed the connection."""


class DecoderState(NamedTuple):
    """What a connection has taught so far."""

    phase: int = Phase.UNKNOWN
    tokens: tuple[bytes | None, bytes | None] = (None, None)
    """Token that packets of each direction must carry; None where none is agreed on or known."""
    client_sent_data: bool = False
    client_token: bytes | None = None
    """Token that the client chose: it identifies the connection attempt."""
    offered: str | None = None
    """Dialect that the client offered; None again once the server has answered."""
    reconnecting: bool = False
    """True while a request on a live connection is unanswered."""


_UNKNOWN: Final = DecoderState()


def state_of(hints: Hints) -> DecoderState:
    """Return the decoder state in the hints; that of a new connection where there is none."""
    extra = hints.extra
    return extra if isinstance(extra, DecoderState) else _UNKNOWN
