"""How far a kNet connection is, as far as decoding its datagrams needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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


@dataclass(slots=True, init=False)
class Progress:
    """What `Hints.extra` holds for kNet. Nobody changes one; it is no tuple, for each of the first
    datagrams makes another one, which `_replace` takes ten times as long to make.
    """

    phase: int
    closing: tuple[int, int, int | None] | None
    """(direction, PacketID, reliable number) of the Disconnect."""
    evidence: int
    """Bits of what was seen of a known application."""
    looked_at: int
    """Datagrams looked at for it."""
    strangers: int
    """Messages among them that belong to no known application."""
    opener: int | None
    """Checksum of the client's first message datagram: a copy of it opens nothing."""
    contrary: tuple[int, int]
    """Control messages of each direction that only another dialect numbers so."""

    def __init__(
        self, phase: int = Phase.START, closing: tuple[int, int, int | None] | None = None,
        evidence: int = 0, looked_at: int = 0, strangers: int = 0, opener: int | None = None,
        contrary: tuple[int, int] = (0, 0),
    ) -> None:  # fmt: skip
        self.phase = phase
        self.closing = closing
        self.evidence = evidence
        self.looked_at = looked_at
        self.strangers = strangers
        self.opener = opener
        self.contrary = contrary

    def but(
        self, phase: int | None = None, closing: tuple[int, int, int | None] | None = None,
        opener: int | None = None, contrary: tuple[int, int] | None = None,
    ) -> Progress:  # fmt: skip
        """Return the same with what is given, and not None, in its place."""
        return Progress(
            self.phase if phase is None else phase,
            closing or self.closing,
            self.evidence,
            self.looked_at,
            self.strangers,
            self.opener if opener is None else opener,
            contrary or self.contrary,
        )

    @property
    def starts(self) -> bool:
        """Return whether nothing has been seen yet."""
        return self.phase == Phase.START

    @property
    def asks(self) -> bool:
        """Return whether the next datagram of the client is its connect datagram."""
        return self.phase == Phase.ASKING
