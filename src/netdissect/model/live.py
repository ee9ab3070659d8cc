"""Snapshots of a running capture, for the dashboard and for metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from netdissect.model.diagnosis import Diagnosis
from netdissect.model.reports import ConnectionEvent, UnitRecord

ORDERS = ("active", "number", "resent", "loss", "late", "RTT")
"""Sort orders of connections: the most recently active first, the newest first, or the worst first.
"""


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """Which part of a running capture to show."""

    connections: int
    """Largest number of connections."""
    recent: int
    """Largest number of timeline lines."""
    order: str = "active"
    """One of ORDERS."""
    text: str = ""
    """Words that must occur in the endpoints, dialect or state of a connection."""
    only: int | None = None
    """Number of the only connection to show, with its timeline; None = all."""


@dataclass(slots=True)
class ConnectionSnapshot:
    """The current state of one connection."""

    connection: int
    dialects: tuple[str, str]
    """Dialect of each direction."""
    transport: str
    client: str
    """"address:port"."""
    server: str
    state: str
    """As in `ConnectionReport`."""
    first_time_ns: int
    last_time_ns: int
    datagrams: tuple[int, int]
    """By direction."""
    octets: tuple[int, int]
    """Payload bytes by direction."""
    units: int
    """Reliable units of both directions."""
    retransmissions: int
    rtt_ms: float | None
    """Median of the round trips so far; None without any."""
    anomalies: tuple[int, int, int, int]
    """Findings by severity: chat, note, warn, error."""
    diagnosis: Diagnosis | None = None
    """The diagnosis if the capture ended now."""


@dataclass(slots=True)
class ServerFigures:
    """Totals of all connections of one server, including those that have ended."""

    server: str
    """"address:port"; `other` for all servers beyond the bound."""
    protocol: str
    open: int = 0
    """Connections that are open now."""
    begun: int = 0
    """Connections so far."""
    datagrams: list[int] = field(default_factory=lambda: [0, 0])
    """By direction."""
    octets: list[int] = field(default_factory=lambda: [0, 0])
    """Payload bytes by direction."""
    units: int = 0
    """Reliable and numbered units of both directions."""
    retransmissions: int = 0
    lost: int = 0
    """Units that were never seen although later ones were."""
    findings: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    """By severity: chat, note, warn, error."""
    trips_ms: list[float] = field(default_factory=list)
    """Median round trip of each open connection that has measured any."""


@dataclass(slots=True)
class LiveView:
    """A running capture."""

    source: str
    """What is captured, and by which backend."""
    now_ns: int
    """Time of the newest packet; 0 before the first."""
    packets: int
    lost: int
    """Packets that could not be parsed in time."""
    other_datagrams: int
    connections_begun: int
    connections: list[ConnectionSnapshot] = field(default_factory=list)
    """In the requested order."""
    hidden: int = 0
    """Tracked connections that are not listed."""
    recent: list[UnitRecord | ConnectionEvent] = field(default_factory=list)
    """The end of the timeline, oldest first."""
