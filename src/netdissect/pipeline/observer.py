"""The interface through which the pipeline shows every datagram to commands such as `read`."""

from __future__ import annotations

from typing import Final, Protocol

from netdissect.model.annotations import Severity
from netdissect.model.claims import Hints
from netdissect.model.events import Event
from netdissect.model.packets import FlowKey, Packet
from netdissect.model.records import Finding
from netdissect.model.reports import Copy, UnitRecord
from netdissect.protocols.base import Fault
from netdissect.protocols.base import Protocol as GameProtocol
from netdissect.track.connection import Connection

_RECORD_OCTETS: Final = 600
"""Estimated memory of a datagram without its bytes, events and units."""
_EVENT_OCTETS: Final = 250
"""Estimated memory of an event."""
_UNIT_OCTETS: Final = 1000
"""Estimated memory of a unit with its copies."""


class Datagram:
    """One datagram, or one message of a stream, as the pipeline has processed it."""

    __slots__ = (
        "_events", "connection", "direction", "faults", "findings", "follows", "frame", "frames",
        "hints", "is_aside", "octets", "packet", "payload", "protocol", "scanned", "stream",
        "time_ns", "touched",
    )  # fmt: skip

    def __init__(self, frame: int, time_ns: int, payload: bytes) -> None:
        self.frame = frame
        self.time_ns = time_ns
        self.payload = payload
        self.packet: Packet | None = None
        """Set only for an unknown protocol; the attributes below are not set then."""
        self.connection: Connection | None = None
        self.protocol: GameProtocol | None = None
        self.direction = 0
        self._events: list[Event] | None = None
        self.is_aside = False
        """Whether nothing but its place in the order is needed."""
        self.scanned = False
        """Whether `events` are exactly what a scan of the payload returns."""
        self.follows = False
        """Whether the inspector of its connection has to see it, as far as the scanner knows that
        has reported the datagram by calls.
        """
        self.hints: Hints | None = None
        """The hints before this datagram."""
        self.frames: tuple[int, ...] = ()
        """Frames of the segments of a message."""
        self.touched: tuple[tuple[UnitRecord, Copy], ...] = ()
        """The copies of units in it."""
        self.findings: tuple[Finding, ...] = ()
        self.octets = 0
        """What `weigh` has returned."""
        self.faults: tuple[Fault, ...] = ()
        """Faults that the framer of a stream has found in the message."""
        self.stream: tuple[FlowKey, int, int] | None = None
        """As `DatagramRecord.stream`."""

    @property
    def is_listed(self) -> bool:
        """Return whether the events are kept."""
        return self._events is not None

    @property
    def listed(self) -> int:
        """How many events are kept."""
        return 0 if self._events is None else len(self._events)

    @property
    def events(self) -> list[Event]:
        """The events of the scan; scanned again if they are not kept."""
        events = self._events
        if events is not None:
            return events
        if not self.scanned or self.protocol is None or self.hints is None:
            return []
        return self.protocol.scan(self.payload, self.direction, self.hints)

    @events.setter
    def events(self, events: list[Event]) -> None:
        self._events = events

    def weigh(self) -> int:
        """Return its estimated memory in bytes, including that of its units."""
        self.octets = (
            _RECORD_OCTETS + 2 * len(self.payload)
            + _EVENT_OCTETS * self.listed + _UNIT_OCTETS * len(self.touched)
        )  # fmt: skip
        return self.octets

    def set_aside(self) -> None:
        """Keep only its place in the order: later datagrams leave with what is known once all of
        its units are settled.
        """
        self.is_aside = True
        self.payload, self._events, self.hints = b"", [], None

    def release_events(self) -> None:
        """Free the memory of the events while the datagram waits, if a scan can restore them."""
        if self.scanned:
            self._events = None


class Observer(Protocol):
    """Is shown every datagram, after the tracker has processed it."""

    def reads_events(self, protocol: GameProtocol) -> bool:
        """Return whether `seen` reads the events of every datagram of a protocol."""

    def seen(self, item: Datagram) -> None:
        """Process a datagram of a known protocol."""

    def other(self, packet: Packet) -> None:
        """Process a packet of an unknown protocol."""

    def finding(self, code: str, severity: Severity, frame: int | None) -> None:
        """Process a finding of the tracker, also a repeated one, before its datagram."""
