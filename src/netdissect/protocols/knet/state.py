"""What earlier datagrams of a kNet connection have taught its decoder: `Hints.extra`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


class Phase:
    """How far a connection has come, as far as decoding depends on it."""

    START: Final = 0
    """Nothing was seen: the client's first datagram may be a connect datagram."""
    PENDING: Final = 1
    """The client has spoken, the server has not."""
    IDENTIFYING: Final = 2
    """Both sides speak; which application uses the connection is being found out."""
    OPEN: Final = 3
    """Both sides speak, and nothing more is to be found out."""
    RECONNECTING: Final = 4
    """The client sent a datagram on a live connection that no sender makes: perhaps a new client's.
    """
    DISCONNECTING: Final = 5
    """A Disconnect was seen."""
    CLOSED: Final = 6
    """A DisconnectAck was seen."""
    STOPPED_READING: Final = 7
    """The client has received what makes it read nothing more."""
    CONNECT_FIRST: Final = 8
    """The client's next datagram is its connect datagram, whatever its bytes look like."""
    REOPENING: Final = 9
    """The client sent a datagram after the end: a new client's first one, or a late copy."""
    ANSWERED_AGAIN: Final = 10
    """Since then the server has begun again, for a new client or for that copy."""


@dataclass(slots=True, init=False)
class DecoderState:
    """What a connection has taught so far.

    Never changed once made. It is no NamedTuple, because each of a connection's first datagrams
    replaces it, and `_replace` takes ten times as long.
    """

    phase: int
    disconnect: tuple[int, int, int | None] | None
    """(direction, PacketID, reliable number) of the Disconnect."""
    evidence: int
    """Bits of the evidence for a known application; see `learning`."""
    examined: int
    """Datagrams examined for such evidence."""
    foreign: int
    """Messages in them that belong to no known application."""
    first_checksum: int | None
    """CRC-32 of the client's first message datagram: a copy of it opens no new connection."""
    contradictions: tuple[int, int]
    """Control messages of each direction that only another dialect numbers in this way."""
    silent: tuple[bool, bool]
    """Directions without a message, which are named like the other one until they speak."""
    connect: bytes | None
    """The client's connect datagram: a copy of it is none of its numbered datagrams."""
    pings: tuple[int, int]
    """Number of the newest ping of 2010, and that of the peer's newest reply if it came without
    one, while the peer is undecided; -1 = none.
    """

    def __init__(
        self, phase: int = Phase.START, disconnect: tuple[int, int, int | None] | None = None,
        evidence: int = 0, examined: int = 0, foreign: int = 0, first_checksum: int | None = None,
        contradictions: tuple[int, int] = (0, 0), silent: tuple[bool, bool] = (False, False),
        connect: bytes | None = None, pings: tuple[int, int] = (-1, -1),
    ) -> None:  # fmt: skip
        self.phase = phase
        self.disconnect = disconnect
        self.evidence = evidence
        self.examined = examined
        self.foreign = foreign
        self.first_checksum = first_checksum
        self.contradictions = contradictions
        self.silent = silent
        self.connect = connect
        self.pings = pings

    def replace(
        self, phase: int | None = None, disconnect: tuple[int, int, int | None] | None = None,
        first_checksum: int | None = None, contradictions: tuple[int, int] | None = None,
        connect: bytes | None = None, pings: tuple[int, int] | None = None,
        silent: tuple[bool, bool] | None = None,
    ) -> DecoderState:  # fmt: skip
        """Return a copy in which the arguments that are not None replace the attributes."""
        return DecoderState(
            self.phase if phase is None else phase,
            disconnect or self.disconnect,
            self.evidence,
            self.examined,
            self.foreign,
            self.first_checksum if first_checksum is None else first_checksum,
            contradictions or self.contradictions,
            silent or self.silent,
            self.connect if connect is None else connect,
            pings or self.pings,
        )

    @property
    def is_new(self) -> bool:
        """Return whether nothing was seen of the connection yet."""
        return self.phase == Phase.START

    @property
    def expects_connect(self) -> bool:
        """Return whether the client's next datagram is its connect datagram."""
        return self.phase == Phase.CONNECT_FIRST
