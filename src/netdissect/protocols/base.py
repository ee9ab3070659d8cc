"""What a protocol is to the pipeline: names and rows, recognition, and `scan`. Holds no protocol.

A protocol is one module with one object, `PROTOCOL`, of a subclass of `Protocol`. It keeps no state
of connections: what a connection has taught goes through `Hints`, what it means is concluded by
`track` from the events of `scan` and the rows of `policy`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from typing import Protocol as Shape

from netdissect.model.annotations import CodeRow
from netdissect.model.claims import Claim, Hints, Sample
from netdissect.model.dissection import Dissection
from netdissect.model.events import Event
from netdissect.model.policy import Policy
from netdissect.model.segments import StreamPiece
from netdissect.protocols.scanner import Scanner
from netdissect.wire.inflate import Bounds

__all__ = [
    "Assembler",
    "DialectRow",
    "Fault",
    "Fragment",
    "Framed",
    "Framer",
    "Inspector",
    "Protocol",
    "Reading",
    "in_full",
]

Fault = str | tuple[str, str]
"""A catalogue code, alone or with a sentence that says more."""
Framed = tuple[bytes, tuple[int, ...], tuple[Fault, ...], int]
"""(bytes of one framed message, frames that they came from, faults, offset in the stream).

Without bytes there is no message, only faults.
"""


def in_full(fault: Fault) -> tuple[str, str]:
    """Return the code and the sentence of a fault, "" where it has none."""
    return (fault, "") if isinstance(fault, str) else fault


class Framer(Shape):
    """Cuts one direction of a TCP stream into messages. One object per direction; bounded."""

    def feed(self, piece: StreamPiece) -> list[Framed]:
        """Return the messages that this piece completed."""

    def finish(self) -> list[Framed]:
        """Return what is left at the end of the stream, with a fault code, or nothing."""


class Assembler(Shape):
    """Rejoins what spans datagrams (fragments, snapshots). One object per connection; bounded."""

    def feed(
        self, direction: int, frame: int, time_ns: int, events: Sequence[Event]
    ) -> list[Event]:
        """Return further events (COUNTER, NOTE ...) of a datagram whose last events are PARTs."""

    def finish(self) -> tuple[list[Event], list[Event]]:
        """Return the events of what stays incomplete at the end, of each direction."""


class Inspector(Shape):
    """Adds to the trees of a connection what needs the datagrams before. One object per connection;
    bounded. Only `read`, `show` and their like have one: `connections` does not pay for it.
    """

    def wants(self, events: list[Event]) -> bool:
        """Return whether a datagram with these events may matter; others need not be decoded."""
        del events
        return True

    def follow(self, payload: bytes, dialect: str, events: list[Event]) -> bool:
        """Take the next datagram, which nobody looks at, without its tree; False where `inspect`
        has to take it.
        """
        del payload, dialect, events
        return False

    def inspect(self, dissection: Dissection) -> None:
        """Add nodes, fields of messages and annotations to the tree of the next datagram."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a user says about bytes that nothing on the wire tells."""

    byte_order: str | None = None
    """`<` or `>`: order of numbers where a format leaves it open; None = found out."""
    bounds: Bounds = field(default_factory=Bounds)
    """How far compressed bodies are inflated."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """Bytes that are no packet, read in one of the protocol's codes."""

    values: dict[str, Any]
    """Plain values by name."""
    notes: tuple[tuple[str, str], ...] = ()
    """(catalogue code, what) of what is wrong with them."""


@dataclass(frozen=True, slots=True)
class DialectRow:
    """One dialect as `netdissect protocols` lists it."""

    name: str
    """Full name, with the protocol's prefix where the reference has one."""
    title: str
    """Which versions speak it, one line."""
    message_types: tuple[str, ...]
    """Type names that `scan` counts."""


class Protocol(ABC):
    """Everything that the pipeline, the tracker and the command line ask a protocol for."""

    name: str
    """Lower-case name: `riptide`."""
    title: str
    """Name for people."""
    dialects: tuple[DialectRow, ...]
    """Known dialects; the first is the default where nothing tells them apart."""
    transports: tuple[str, ...]
    """Of `udp` and `tcp`."""
    default_ports: tuple[int, ...] = ()
    """Ports that the programs use unless told otherwise. A weak hint: they add to a claim."""
    codes: tuple[CodeRow, ...] = ()
    """Rows of the catalogue for the NOTE events of `scan` and of the assembler."""
    policies: Mapping[str, Policy]
    """Full name of a dialect -> its rules."""
    lives: int = 1
    """Connections of one address pair that may go on side by side, told apart by what is on the
    wire (RESTART "<"); 1 = the old one ends where the new one begins."""
    secrets: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Message type -> its fields that hold passwords."""
    layer_module: str | None = None
    """Dotted name of the layer module; None = `netdissect.layers.<name>`."""
    drivers: Mapping[str, str] = MappingProxyType({})
    """Transport -> "module:class" of the fuzz driver; the first is the usual one."""
    servers: Mapping[str, str] = MappingProxyType({})
    """Transport -> "module:class" of the minimal server, for tests and tutorials."""
    schema_formats: Mapping[str, str] = MappingProxyType({})
    """End of a file's name -> "module:function" that returns the object of a schema from the text
    of the protocol's own message descriptions."""
    field_aliases: Mapping[str, str] = MappingProxyType({})
    """Another tool's name of a field -> ours, for filters."""
    privacy: str | None = None
    """Dotted name of the module that knows how text is written over without changing a size (see
    `pipeline/privacy.py`); None = every byte costs the same."""
    wireshark: str | None = None
    """Dotted name of the module that compares with Wireshark's dissector of the protocol, for
    `verify`; None = Wireshark has none."""

    @abstractmethod
    def recognise(self, sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
        """Return the claim on a flow from its first datagrams, or None. Pure.

        `transport` is one of `transports`. Called at sample sizes 1, 2, 3, 4, 6, 8, 12 and 16, and
        once more with `final` where the flow ends before; only a STRONG claim (or a decode-as rule)
        takes the flow. For TCP a sample is one piece of stream as it became readable.
        """

    def may_stand_alone(self, payload: bytes) -> bool:
        """Return False where a flow that is this one datagram or piece of stream cannot be claimed:
        most flows of a scan or an attack are such, so they are not put to `recognise`. Cheap and
        pure.
        """
        del payload
        return True

    def policy(self, dialect: str) -> Policy:
        """Return the rules of one dialect. For an unknown name: those of the first dialect."""
        row = self.dialect_row(dialect) or self.dialects[0]
        return self.policies[row.name]

    def scanner(self, direction: int) -> Scanner | None:
        """Return a new one for what one side of a connection sends, for flows that nobody watches:
        it tells what `scan` returns, or fewer events that lead to the same conclusions. None where
        there is none.
        """
        del direction
        return None

    @abstractmethod
    def scan(self, payload: bytes, direction: int, hints: Hints) -> list[Event]:
        """Return the events of one datagram or framed message. Never raises on input."""

    def for_layers(self, extra: Any) -> Any:
        """Return what of `Hints.extra` the layers read: all that is kept for a later look."""
        return extra

    def initial_hints(self, claim: Claim) -> Hints:
        """Return the hints that a connection starts with."""
        default = self.dialects[0].name
        first, second = (name or default for name in claim.dialects)
        return Hints((second, first) if claim.client == 1 else (first, second))

    def informed(self, hints: Hints, reading: Reading) -> Hints:
        """Return the hints with what the user says; asked only where that is not the default."""
        del reading
        return hints

    def next_hints(self, hints: Hints) -> Hints:
        """Return the hints for the next connection on the same address pair (RESTART "*")."""
        return Hints(hints.dialects)

    def framer(self, dialect: str, direction: int) -> Framer | None:
        """Return a framer for one direction of a TCP stream; None where `transports` lacks tcp."""
        del dialect, direction
        return None

    def assembler(self) -> Assembler | None:
        """Return a new assembler for one connection; None where nothing spans datagrams."""
        return None

    def inspector(self) -> Inspector | None:
        """Return a new inspector for one connection; None where a datagram's tree stands alone."""
        return None

    def over(self, transport: str) -> Protocol:
        """Return what tracks the protocol over a transport: itself, unless the two differ."""
        del transport
        return self

    def fragment(self, payload: bytes, *, packet: bool) -> Fragment | None:
        """Return what bytes are in one of the protocol's codes where no dialect takes them for a
        packet (`decode`), else None.

        Args:
            payload: the bytes.
            packet: the user says that they are a packet: only what cannot be chance.

        """
        del payload, packet
        return None

    def dialect_row(self, name: str) -> DialectRow | None:
        """Return the row of a dialect by its full name or without the protocol's prefix."""
        for row in self.dialects:
            if name in (row.name, row.name.removeprefix(f"{self.name}-")):
                return row
        return None
