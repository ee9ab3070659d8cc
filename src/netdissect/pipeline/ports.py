"""Flows and the two directions of a claimed one: what the table of the pipeline maps a key to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from netdissect.model.claims import Claim, Sample
from netdissect.model.events import Ev, Event
from netdissect.model.packets import FlowKey, Packet
from netdissect.protocols.base import Assembler, Fault, Framer, Protocol
from netdissect.protocols.claiming import DecodeAs
from netdissect.track.connection import Connection

if TYPE_CHECKING:
    from netdissect.pipeline.table import Pipeline

__all__ = ["Flow", "Port", "Taker", "WatchedPort"]

_RESTART: Final = int(Ev.RESTART)
_PART: Final = int(Ev.PART)


@dataclass(slots=True, eq=False)
class Flow:
    """One address pair of one transport: sampled, or claimed by a protocol."""

    key: FlowKey
    """Key of endpoint 0's datagrams: those of the sender of the first one."""
    transport: str
    ports: tuple[int, int]
    rule: DecodeAs | None
    """Decode-as rule that fits; None = recognition decides."""
    sample: list[Sample] = field(default_factory=list)
    packets: list[tuple[int, Packet]] = field(default_factory=list)
    """(endpoint, packet) of everything held, for the replay."""
    octets: int = 0
    """Octets held."""
    last_ns: int = 0
    looks: int = 0
    """How often it was judged before and belonged to nobody."""
    protocol: Protocol | None = None
    connection: Connection | None = None
    claim: Claim | None = None
    client: int = 0
    """Endpoint that is the client."""
    framers: list[Framer] = field(default_factory=list)
    """TCP: one per direction."""
    assembler: Assembler | None = None
    ordinal: int = 0
    """TCP: ordinal of the connection at hand on this 4-tuple."""
    held: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    """Datagrams (direction, frame, time, payload) that may begin a new connection."""
    earlier: list[tuple[Connection, Assembler | None]] = field(default_factory=list)
    """Connections of this address pair that may go on beside the present one, oldest first."""
    faults: tuple[Fault, ...] = ()
    """TCP: what the framer has found about the message at hand."""
    offset: int = 0
    """TCP: where in its stream the message at hand begins."""

    def assemble(self, direction: int, frame: int, time_ns: int, events: list[Event]) -> None:
        """Give the parts of a datagram to the assembler; track what it says."""
        if self.assembler is not None and self.connection is not None:
            more = self.assembler.feed(direction, frame, time_ns, events)
            if more:
                self.connection.further(direction, frame, time_ns, more)


class Taker:
    """What takes the datagrams of one direction of a UDP flow."""

    __slots__ = ()

    def take(self, frame: int, time_ns: int, payload: bytes) -> None:
        """Take one datagram."""
        raise NotImplementedError


class Port(Taker):
    """One direction of a claimed UDP flow."""

    __slots__ = ("connection", "direction", "flow", "pipeline", "scan")

    def __init__(
        self, pipeline: Pipeline, flow: Flow, protocol: Protocol, connection: Connection, side: int
    ) -> None:
        self.pipeline = pipeline
        self.flow = flow
        self.direction = side ^ flow.client
        self.scan = protocol.brief or protocol.scan
        self.connection = connection

    def take(self, frame: int, time_ns: int, payload: bytes) -> None:
        """Scan, track and assemble one datagram."""
        connection = self.connection
        direction = self.direction
        try:
            events = self.scan(payload, direction, connection.hints)
            if events and events[0][0] == _RESTART:
                self.pipeline.restart(self.flow, direction, frame, time_ns, payload, events)
                return
            if self.flow.held:
                self.pipeline.release(self.flow, direction)
            connection.datagram(direction, frame, time_ns, payload, events)
            if events and events[-1][0] == _PART:
                self.flow.assemble(direction, frame, time_ns, events)
        except Exception as bug:  # noqa: BLE001 - the one place that catches a fault of a protocol
            self.pipeline.bug(connection, direction, frame, time_ns, bug)


class WatchedPort(Port):
    """A port of a flow with an observer of every datagram."""

    __slots__ = ()

    def take(self, frame: int, time_ns: int, payload: bytes) -> None:
        """Scan, track, assemble and show one datagram."""
        self.pipeline.watched(self.flow, self.direction, frame, time_ns, payload)
