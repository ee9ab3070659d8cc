"""Who wants to see every datagram, and what is found on it: records for `read` and its kin."""

from __future__ import annotations

from typing import Protocol

from netdissect.model.annotations import Severity
from netdissect.model.claims import Hints
from netdissect.model.events import Event
from netdissect.model.packets import FlowKey, Packet
from netdissect.model.records import Finding
from netdissect.model.reports import Copy, UnitRecord
from netdissect.protocols.base import Fault
from netdissect.protocols.base import Protocol as GameProtocol
from netdissect.track.connection import Connection

__all__ = ["Datagram", "Observer"]


class Datagram:
    """One datagram, or one message of a stream, as the pipeline took it."""

    __slots__ = (
        "connection", "direction", "events", "faults", "findings", "frame", "frames", "hints",
        "octets", "packet", "payload", "protocol", "stream", "time_ns", "touched",
    )  # fmt: skip

    def __init__(self, frame: int, time_ns: int, payload: bytes) -> None:
        self.frame = frame
        self.time_ns = time_ns
        self.payload = payload
        self.packet: Packet | None = None
        """Where it is of no known protocol; nothing below is told then."""
        self.connection: Connection | None = None
        self.protocol: GameProtocol | None = None
        self.direction = 0
        self.events: list[Event] = []
        self.hints: Hints | None = None
        """As they were before it."""
        self.frames: tuple[int, ...] = ()
        """Frames of the segments of a message."""
        self.touched: tuple[tuple[UnitRecord, Copy], ...] = ()
        self.findings: tuple[Finding, ...] = ()
        self.octets = 0
        """About how much memory it takes, that of its units included."""
        self.faults: tuple[Fault, ...] = ()
        """What the framer of a stream has found about the message."""
        self.stream: tuple[FlowKey, int, int] | None = None
        """(key, ordinal of the connection on it, offset) of a message in its stream."""


class Observer(Protocol):
    """Somebody who wants to see every datagram of a known protocol (`read`)."""

    def seen(self, item: Datagram) -> None:
        """Take a datagram after the tracker has."""

    def other(self, packet: Packet) -> None:
        """Take a packet of no known protocol."""

    def finding(self, code: str, severity: Severity, frame: int | None) -> None:
        """Take a finding of the tracker, repeats included, before the datagram that it is on."""
