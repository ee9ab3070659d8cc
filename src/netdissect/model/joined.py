"""What two captures of the same conversations show together. Times are in ns since the Unix epoch
by the clock of the first capture, durations in ms; `None` means that the captures cannot tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from netdissect.model.diagnosis import Ceiling
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import CaptureInfo, ConnectionReport, RttSummary


class Fate(IntEnum):
    """What happened to the datagram of a frame between the two captures."""

    APART = 0
    """Not compared: not a datagram, or of a flow that the other capture does not have."""
    DELIVERED = 1
    """Sent, and captured again on arrival."""
    LOST = 2
    """Sent, but did not arrive."""
    OUTSIDE = 3
    """The other capture had not begun, or had ended, when the datagram would have been in it."""
    UNSEEN = 4
    """Sent and, as an answer shows, received, but missed by the other capture."""
    DOUBTFUL = 5
    """Lost or not captured: it is not in the other capture, which is known to miss datagrams."""
    ARRIVED = 6
    """Arrived for the first time."""
    COPY = 7
    """Arrived again: the network duplicated it."""
    APPEARED = 8
    """Arrived, but was not seen when sent: injected on the way, or missed by the other capture."""

    @property
    def label(self) -> str:
        """Return the word used in output."""
        return self.name.lower()

    @property
    def sent(self) -> bool:
        """Return whether only a datagram that was sent can have it; others were received. `OUTSIDE`
        applies to both.
        """
        return self in _OF_SENT


_OF_SENT = frozenset({Fate.DELIVERED, Fate.LOST, Fate.UNSEEN, Fate.DOUBTFUL})


class FateRow(NamedTuple):
    """The fate of one frame."""

    fate: Fate
    partner: int | None
    """Frame of the same datagram in the other capture; for a copy, the frame in which it was sent.
    """
    delay_ms: float | None
    """One-way delay; None without a partner."""
    ambiguous: bool
    """True if this is only the most likely fate: identical datagrams cannot be told apart, or the
    captures do not show how their clocks relate at that time."""
    copied: bool
    """For a datagram that was sent: the network duplicated it."""
    reordered: bool
    """For a first arrival: a datagram of the same flow that was sent later arrived before it."""
    common_ns: int
    """Its time by the clock of the first capture."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One datagram on its way between the two captures."""

    record: DatagramRecord
    """The record of the capture next to the sender, or of the other one if only that has it."""
    capture: int
    """Capture of the record: 0 or 1."""
    fate: FateRow
    sent_ns: int | None
    """Time of sending; None if that was not seen."""
    arrived_ns: int | None
    """Time of arrival; None if it did not arrive, or that is unknown."""
    copy: bool = False
    """True for a further arrival, duplicated by the network."""

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
    """Second clock minus first, in the middle of the time that both captures cover."""
    bound_ms: float | None
    """Largest error of the offset. None if only one direction was seen; the shortest delay is then
    taken as zero.
    """
    drift_ppm: float
    """Growth of the offset, parts per million; 0 if it cannot be measured."""
    drift_bound_ppm: float
    """Largest error of the drift."""
    least_delay_ms: tuple[float | None, float | None]
    """Shortest delay toward the second capture, and toward the first."""
    anchors: int
    """Datagrams that the estimate is based on."""
    contradicting: int
    """Datagrams left out because no clock can explain them."""
    steps: tuple[tuple[int, int, float], ...]
    """(capture 0 or 1, first frame after the step, size in ms) for each time a clock was set."""


class Burst(NamedTuple):
    """Consecutive datagrams of one flow that were lost."""

    first_frame: int
    last_frame: int
    datagrams: int
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class ResendReport:
    """Whether the retransmissions of one direction were necessary."""

    needed: int = 0
    """Retransmissions of units of which no earlier copy had arrived."""
    spurious: int = 0
    """Retransmissions of units of which an earlier copy had arrived."""
    copied: int = 0
    """Further copies at the receiver that were not sent: the network duplicated them."""
    unknown: int = 0
    """Retransmissions of units of which the fate of the earlier copies is unknown."""
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
    """Datagrams sent whose fates are only the most likely ones."""
    arrived: int = 0
    """Arrivals: first arrivals, `copies` and `appeared`."""
    copies: int = 0
    """Arrivals duplicated by the network."""
    appeared: int = 0
    """Arrivals that were not seen when sent."""
    reordered: int = 0
    """First arrivals after a datagram of the same flow that was sent later."""
    delay: RttSummary = field(default_factory=RttSummary)
    """One-way delays of first arrivals that are not ambiguous, or of all if all are; their error is
    at most `ClockReport.bound_ms`.
    """
    jitter_ms: float | None = None
    """Mean change of the delay from one of these arrivals to the next. Source: RFC 3393."""
    bursts: list[Burst] = field(default_factory=list)
    """The longest bursts of at least two lost datagrams, longest first."""
    burst_count: int = 0
    """Number of all such bursts."""
    ceiling: Ceiling | None = None
    """A rate limit, in datagrams that arrived; None without one."""
    resends: ResendReport = field(default_factory=ResendReport)

    @property
    def loss_share(self) -> float | None:
        """Return lost / all datagrams whose fate is known; None without any."""
        known = self.delivered + self.lost + self.unseen
        return self.lost / known if known else None


@dataclass(slots=True)
class StreamReport:
    """One direction of a TCP connection that a proxy relays in segments of its own."""

    toward: int
    """Capture next to the sender: 0 or 1."""
    octets: tuple[int, int]
    """Bytes of the stream in each capture."""
    equal: bool | None
    """Whether they are the same; None if a gap in a capture leaves it open."""
    differs_at: int | None
    """Offset of the first byte that differs or is missing on one side; None without one."""
    delay: RttSummary = field(default_factory=RttSummary)
    """Time from the first capture of a byte next to the sender to that next to the receiver."""


@dataclass(slots=True)
class JoinedConnection:
    """Connections of both captures that carry the same datagrams."""

    number: int
    """From 1, in the order of the first frames in the first capture."""
    kind: str
    """`relayed` (addresses or ports differ), `routed` (they are the same), `proxied` (one stream in
    two TCP connections), `same place`.
    """
    transport: str
    connections: tuple[list[int], list[int]]
    """Numbers of the connections in each capture; empty for an unknown protocol."""
    protocol: str | None
    ends: tuple[list[tuple[str, str]], list[tuple[str, str]]]
    """For each capture: the pairs of client and server addresses."""
    client: int | None
    """Capture next to the client, 0 or 1; None if it is unknown which side is the client."""
    ways: list[WayReport] = field(default_factory=list)
    """Client to server, then server to client. If it is unknown which side is the client: from the
    first capture to the second, then back. Empty for `proxied`.
    """
    streams: list[StreamReport] = field(default_factory=list)
    """The same for `proxied`."""


@dataclass(slots=True)
class JoinReport:
    """The result of joining two captures."""

    captures: tuple[CaptureInfo, CaptureInfo]
    clock: ClockReport
    same_place: bool
    """True if both were taken at one place, so that a datagram missing from one was not lost."""
    overlap_ms: float
    """How long both were running."""
    conversations: list[JoinedConnection]
    reports: tuple[list[ConnectionReport], list[ConnectionReport]]
    """For each capture: the connections of the joined conversations."""
    apart: tuple[int, int]
    """For each capture: datagrams of flows that the other does not have."""
    limits_hit: dict[str, int]
    """Name of a bound -> how often it was hit."""
