"""What a running capture shows of itself at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from netdissect.model.diagnosis import Diagnosis
from netdissect.model.reports import ConnectionEvent, UnitRecord

__all__ = ["ORDERS", "Glimpse", "LiveView", "ServerFigures", "Wish"]

ORDERS = ("active", "number", "resent", "loss", "late", "RTT")
"""What connections can be sorted by: active last, the newest, or the worst first."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What of a running capture is to be shown."""

    connections: int
    """So many at most."""
    recent: int
    """So many lines of the end of the timeline at most."""
    order: str = "active"
    """One of ORDERS."""
    text: str = ""
    """Words that endpoints, dialect or state of a connection must hold."""
    only: int | None = None
    """The one connection that is wanted, with its timeline; None = all."""


@dataclass(slots=True)
class Glimpse:
    """One connection as it stands."""

    connection: int
    dialects: tuple[str, str]
    """Dialect of each direction."""
    transport: str
    client: str
    """"address:port"."""
    server: str
    state: str
    """Contract word: open, closed, timed_out, silent, rejected, unknown."""
    first_time_ns: int
    last_time_ns: int
    datagrams: tuple[int, int]
    """By direction."""
    octets: tuple[int, int]
    units: int
    """Reliable units of both directions."""
    retransmissions: int
    rtt_ms: float | None
    """Median of the round trips so far; None without any."""
    anomalies: tuple[int, int, int, int]
    """chat, note, warn, error."""
    diagnosis: Diagnosis | None = None
    """What could be said of it if the capture ended now."""


@dataclass(slots=True)
class ServerFigures:
    """What the connections of one server come to, those that have ended included."""

    server: str
    """"address:port"; `other` for all beyond the bound."""
    protocol: str
    open: int = 0
    """Connections at the moment."""
    begun: int = 0
    """Connections so far."""
    datagrams: list[int] = field(default_factory=lambda: [0, 0])
    """By direction."""
    octets: list[int] = field(default_factory=lambda: [0, 0])
    units: int = 0
    """Reliable and numbered units of both directions."""
    retransmissions: int = 0
    lost: int = 0
    """Units that were never seen although later ones were."""
    findings: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    """chat, note, warn, error."""
    trips_ms: list[float] = field(default_factory=list)
    """Median round trip of each connection at the moment that has any."""


@dataclass(slots=True)
class LiveView:
    """A running capture."""

    source: str
    """What is captured, and with what."""
    now_ns: int
    """Time of the newest packet; 0 before the first."""
    packets: int
    lost: int
    """Packets that could not be parsed in time."""
    other_datagrams: int
    connections_begun: int
    connections: list[Glimpse] = field(default_factory=list)
    """In the order that was wished for."""
    hidden: int = 0
    """Connections on the table that are not among them."""
    recent: list[UnitRecord | ConnectionEvent] = field(default_factory=list)
    """The end of the timeline, oldest first."""
