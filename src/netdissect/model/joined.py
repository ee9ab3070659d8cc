"""What two captures of one conversation tell together. Times in ns since the Unix epoch by the
clock of the first capture, durations in ms, `None` = not knowable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from netdissect.model.diagnosis import Ceiling
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import CaptureInfo, ConnectionReport, RttSummary

__all__ = [
    "Burst",
    "ClockReport",
    "Fate",
    "FateRow",
    "Flight",
    "JoinReport",
    "JoinedConnection",
    "ResendReport",
    "StreamReport",
    "WayReport",
]


class Fate(IntEnum):
    """What became of a frame between two captures."""

    APART = 0
    """Not compared: no datagram, or of a flow that the other capture does not have."""
    DELIVERED = 1
    """Sent here, arrived there."""
    LOST = 2
    """Sent here, and did not arrive there."""
    OUTSIDE = 3
    """The other capture had not begun, or had ended, when it would have been there."""
    UNSEEN = 4
    """Sent here and, as its answer shows, received; the capture there has missed it."""
    DOUBTFUL = 5
    """Not in the other capture, which demonstrably misses some: lost, or not captured."""
    ARRIVED = 6
    """Arrived here for the first time."""
    COPY = 7
    """Arrived here once more: the network copied it."""
    APPEARED = 8
    """Arrived here, and was not seen sent: put in on the way, or missed by the other capture."""

    @property
    def label(self) -> str:
        """Return the word used in output."""
        return self.name.lower()

    @property
    def sent(self) -> bool:
        """Return whether it is a fate of what was sent; `OUTSIDE` is one of both."""
        return self in _OF_SENT


_OF_SENT = frozenset({Fate.DELIVERED, Fate.LOST, Fate.UNSEEN, Fate.DOUBTFUL})


class FateRow(NamedTuple):
    """What became of one frame."""

    fate: Fate
    partner: int | None
    """Frame of the same datagram in the other capture; of a copy that of its sending."""
    delay_ms: float | None
    """One-way delay; None for what has no partner."""
    ambiguous: bool
    """Equal datagrams cannot be told apart: this is the likeliest reading."""
    copied: bool
    """Of what was sent: the network copied it."""
    reordered: bool
    """Of a first arrival: one of the same flow that was sent later came before it."""
    common_ns: int
    """Its time by the first capture's clock."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One datagram between the two captures."""

    record: DatagramRecord
    """As its sender's capture has it; of one that only appeared, as its receiver's."""
    capture: int
    """Capture that the record is from: 0 or 1."""
    fate: FateRow
    sent_ns: int | None
    """By the first capture's clock; None where nobody was seen sending it."""
    arrived_ns: int | None
    """None where it did not arrive, or nobody knows."""
    copy: bool = False
    """A further arrival, made by the network."""

    @property
    def moment_ns(self) -> int:
        """Return when it was first seen."""
        if self.copy or self.sent_ns is None:
            return self.arrived_ns or 0
        return self.sent_ns


@dataclass(frozen=True, slots=True)
class ClockReport:
    """How the clock of the second capture relates to that of the first."""

    offset_ms: float
    """Second less first, in the middle of what both captured."""
    bound_ms: float | None
    """The offset is off by no more than this; None where only one direction was seen: then the
    least delay is taken for none."""
    drift_ppm: float
    """Growth of the offset, parts in a million; 0 where none can be told."""
    drift_bound_ppm: float
    least_delay_ms: tuple[float | None, float | None]
    """Least delay toward the second and toward the first capture, by this clock."""
    anchors: int
    """Datagrams that it rests on."""
    contradicting: int
    """Datagrams left out because no clock explains them."""
    steps: tuple[tuple[int, int, float], ...]
    """(capture 0 or 1, first frame after it, ms) where a clock was set."""


class Burst(NamedTuple):
    """Datagrams of one flow lost one after the other."""

    first_frame: int
    last_frame: int
    datagrams: int
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class ResendReport:
    """What the resends of one direction were for."""

    needed: int = 0
    """Nothing sent before of the unit had arrived."""
    spurious: int = 0
    """A copy sent before had arrived."""
    copied: int = 0
    """Further copies at the receiver that its sender did not send: the network copied them."""
    unknown: int = 0
    """What became of the copies before cannot be told."""
    spaces: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    """Space -> needed, spurious, copied, unknown."""


@dataclass(slots=True)
class WayReport:
    """One direction of a joined conversation."""

    sender: int
    """Capture next to the sender: 0 or 1."""
    sent: int = 0
    """sent = delivered + lost + outside + unseen + doubtful."""
    delivered: int = 0
    lost: int = 0
    outside: int = 0
    unseen: int = 0
    doubtful: int = 0
    ambiguous: int = 0
    """Of those sent, how many cannot be told from others."""
    arrived: int = 0
    """Arrivals: first ones, copies and those that appeared."""
    copies: int = 0
    """Further arrivals that the network made."""
    appeared: int = 0
    """Arrivals that nobody was seen sending."""
    reordered: int = 0
    """First arrivals that came after one of the same flow that was sent later."""
    delay: RttSummary = field(default_factory=RttSummary)
    """One-way delays of first arrivals; each is off by no more than the clock's bound."""
    jitter_ms: float | None = None
    """Mean change of the delay from one first arrival to the next. Source: RFC 3393."""
    bursts: list[Burst] = field(default_factory=list)
    """The longest runs of lost datagrams, longest first; at least two each."""
    burst_count: int = 0
    ceiling: Ceiling | None = None
    """A limit of the rate, in datagrams that arrived; None where nothing shows one."""
    resends: ResendReport = field(default_factory=ResendReport)

    @property
    def loss_share(self) -> float | None:
        """Return lost / all whose fate is known; None without any."""
        known = self.delivered + self.lost + self.unseen
        return self.lost / known if known else None


@dataclass(slots=True)
class StreamReport:
    """One direction of a TCP connection that a proxy carries on in segments of its own."""

    toward: int
    """Capture next to the sender: 0 or 1."""
    octets: tuple[int, int]
    """Bytes of the stream in each capture."""
    equal: bool | None
    """Whether they are the same; None where a gap in a capture leaves it open."""
    differs_at: int | None
    """Offset of the first byte that differs or is missing on one side."""
    delay: RttSummary = field(default_factory=RttSummary)
    """From a byte's first sight at the sender to its first sight at the receiver."""


@dataclass(slots=True)
class JoinedConnection:
    """Connections of both captures that carry the same datagrams."""

    number: int
    """From 1, in order of first frame in the first capture."""
    kind: str
    """`relayed` (addresses or ports differ), `routed` (they are the same), `proxied` (one stream in
    two TCP connections), `same place`."""
    transport: str
    connections: tuple[list[int], list[int]]
    """Connections of each capture by number; empty for no known protocol."""
    protocol: str | None
    ends: tuple[list[tuple[str, str]], list[tuple[str, str]]]
    """Of each capture the (client, server) addresses that it uses."""
    client: int | None
    """Capture next to the client, 0 or 1; None where the roles are not known."""
    ways: list[WayReport] = field(default_factory=list)
    """Client to server, then server to client; where roles are unknown, from the first capture to
    the second, then back. Empty for `proxied`."""
    streams: list[StreamReport] = field(default_factory=list)
    """Of a proxied one; in the same order."""


@dataclass(slots=True)
class JoinReport:
    """Two captures, joined."""

    captures: tuple[CaptureInfo, CaptureInfo]
    clock: ClockReport
    same_place: bool
    """Both were taken at one place: what one of them lacks is not loss."""
    overlap_ms: float
    """How long both ran."""
    conversations: list[JoinedConnection]
    reports: tuple[list[ConnectionReport], list[ConnectionReport]]
    """Connections of the joined conversations, of each capture."""
    apart: tuple[int, int]
    """Datagrams of each capture in flows that the other does not have."""
    limits_hit: dict[str, int]
    """Named bound -> how often it was hit."""
