"""How far a kNet connection is, as far as decoding its datagrams needs it."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["Phase", "Progress"]


class Phase:
    """How far a connection is, as far as decoding needs it."""

    START: Final = 0
    """Nothing seen: the client's first datagram may be a connect datagram."""
    PENDING: Final = 1
    """The client has spoken, the server has not."""
    LEARNING: Final = 2
    """Both speak; which application it is may still show."""
    OPEN: Final = 3
    """Both speak, nothing more is to be learnt."""
    KNOCKING: Final = 4
    """A client datagram that no sender makes came on a live connection: perhaps a new client."""
    DISCONNECTING: Final = 5
    """A Disconnect was seen."""
    CLOSED: Final = 6
    """A DisconnectAck was seen."""
    DEAF: Final = 7
    """The client has got what makes it read nothing more."""
    ASKING: Final = 8
    """The client's first datagram is its connect datagram, whatever it looks like."""
    RETURNING: Final = 9
    """A client datagram came after the end: a new client's first, or a late copy."""


class Progress(NamedTuple):
    """What `Hints.extra` holds for kNet. Frozen."""

    phase: int = Phase.START
    closing: tuple[int, int, int | None] | None = None
    """(direction, PacketID, reliable number) of the Disconnect."""
    evidence: int = 0
    """Bits of what was seen of a known application."""
    looked_at: int = 0
    """Datagrams looked at for it."""
    strangers: int = 0
    """Messages among them that belong to no known application."""
    opener: int | None = None
    """Checksum of the client's first message datagram: a copy of it opens nothing."""
    contrary: tuple[int, int] = (0, 0)
    """Control messages of each direction that only another dialect numbers so."""

    @property
    def starts(self) -> bool:
        """Return whether nothing has been seen yet."""
        return self.phase == Phase.START

    @property
    def asks(self) -> bool:
        """Return whether the next datagram of the client is its connect datagram."""
        return self.phase == Phase.ASKING
