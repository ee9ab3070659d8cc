"""The interface between the pipeline and a protocol. This module knows no protocol.

A protocol is a module with an object `PROTOCOL` of a subclass of `Protocol`. That object keeps no
state of connections: `Hints` carry what a connection has taught its decoder, and `track` draws
conclusions from the events of `scan` and the rules of `policy`.
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

Fault = str | tuple[str, str]
"""A catalogue code, or (catalogue code, sentence)."""
Framed = tuple[bytes, tuple[int, ...], tuple[Fault, ...], int]
"""(bytes of one framed message, frames that they came from, faults, offset in the stream).

Empty bytes: there is no message, only faults.
"""


def in_full(fault: Fault) -> tuple[str, str]:
    """Return the code and the sentence of a fault; the sentence is "" where it has none."""
    return (fault, "") if isinstance(fault, str) else fault


class Framer(Shape):
    """Cuts one direction of a TCP stream into messages. One object per direction; bounded."""

    def feed(self, piece: StreamPiece) -> list[Framed]:
        """Return the messages that this piece completes."""

    def finish(self) -> list[Framed]:
        """Return the incomplete message at the end of the stream, with its faults, if any."""


class Assembler(Shape):
    """Reassembles what spans datagrams (fragments). One object per connection; bounded."""

    def feed(
        self, direction: int, frame: int, time_ns: int, events: Sequence[Event]
    ) -> list[Event]:
        """Return further events (COUNTER, NOTE ...) of a datagram whose last events are PARTs."""

    def finish(self) -> tuple[list[Event], list[Event]]:
        """Return the events of each direction for what stays incomplete at the end."""


class Inspector(Shape):
    """Adds to a datagram's tree what only earlier datagrams explain. One object per connection;
    bounded. Only commands that show trees (`read`, `show` ...) create one.
    """

    asks_scanner: bool
    """Whether it wants no datagram that a scanner reports by calls, unless that says so: with PARTs
    or `Scanner.follows`.
    """

    def wants(self, events: list[Event]) -> bool:
        """Return False for a datagram whose events show that it does not matter to the inspector.

        Such a datagram is passed to neither of the following methods.
        """
        del events
        return True

    def follow(
        self, payload: bytes, dialect: str, direction: int, events: list[Event]
    ) -> bool:
        """Process a datagram that is not shown, without its tree.

        Return False to have it decoded and passed to `inspect` after all.
        """
        del payload, dialect, direction, events
        return False

    def inspect(self, dissection: Dissection) -> None:
        """Add nodes, fields of messages and annotations to the tree of the next datagram."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a user states about bytes because the wire does not tell it."""

    byte_order: str | None = None
    """`<` or `>`: byte order of numbers where a format leaves it open; None = detect it."""
    bounds: Bounds = field(default_factory=Bounds)
    """How far compressed bodies are inflated."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """Values of bytes that are no packet but fit one of the protocol's encodings."""

    values: dict[str, Any]
    """Values by name."""
    notes: tuple[tuple[str, str], ...] = ()
    """(catalogue code, sentence) of each thing that is wrong with the bytes."""


@dataclass(frozen=True, slots=True)
class DialectRow:
    """One dialect as `netdissect protocols` lists it."""

    name: str
    """Full name, with the protocol's prefix where the reference has one."""
    title: str
    """One line: the versions that speak it."""
    message_types: tuple[str, ...]
    """Type names that `scan` reports."""


class Protocol(ABC):
    """Everything that the pipeline, the tracker and the command line ask a protocol for."""

    name: str
    """Lower-case name."""
    title: str
    """Name for people."""
    dialects: tuple[DialectRow, ...]
    """Known dialects; the first is the default where the wire does not tell."""
    transports: tuple[str, ...]
    """`udp`, `tcp` or both."""
    default_ports: tuple[int, ...] = ()
    """Ports that programs use by default. Weak evidence: they only strengthen a claim."""
    codes: tuple[CodeRow, ...] = ()
    """Rows of the catalogue for the NOTE events of `scan` and of the assembler."""
    policies: Mapping[str, Policy]
    """Full name of a dialect -> its reliability rules."""
    lives: int = 1
    """Connections of one address pair that may be open at once, where the wire tells them apart
    (RESTART "<"). 1: a new connection ends the old one."""
    secrets: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Message type -> its fields that hold passwords."""
    layer_module: str | None = None
    """Dotted name of the layer module; None = `netdissect.layers.<name>`."""
    drivers: Mapping[str, str] = MappingProxyType({})
    """Transport -> "module:class" of the fuzz driver; the first transport is the default."""
    servers: Mapping[str, str] = MappingProxyType({})
    """Transport -> "module:class" of the minimal server, for tests and tutorials."""
    schema_formats: Mapping[str, str] = MappingProxyType({})
    """File name suffix -> "module:function" that turns a message description in the protocol's own
    format into the object of a schema."""
    field_aliases: Mapping[str, str] = MappingProxyType({})
    """Name of a field in another tool -> our name, for filters."""
    privacy: str | None = None
    """Dotted name of the module that overwrites text without changing the size of a packet (see
    `pipeline/privacy.py`); None where replacing bytes never changes a size."""
    wireshark: str | None = None
    """Dotted name of the module that compares with Wireshark's own dissector, for `verify`; None
    where Wireshark has none."""

    # -- recognition -------------------------------------------------------------------------------

    @abstractmethod
    def recognise(self, sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
        """Return the claim on a flow from its first datagrams, or None. Pure.

        Called at the sample sizes of `claiming.SAMPLE_SIZES`, and once more with `final` where the
        flow ends earlier. Only a STRONG claim (or a decode-as rule) takes the flow.

        Args:
            sample: the first datagrams; for TCP, the first pieces of stream as they became
                readable.
            transport: one of `transports`.
            final: nothing follows the sample.

        """

    def may_stand_alone(self, payload: bytes) -> bool:
        """Return False if a flow that consists of this datagram alone can never be claimed.

        Port scans and floods consist of such flows; they are not passed to `recognise`. For TCP the
        payload is one piece of stream. Cheap and pure.
        """
        del payload
        return True

    # -- events ------------------------------------------------------------------------------------

    @abstractmethod
    def scan(self, payload: bytes, direction: int, hints: Hints) -> list[Event]:
        """Return the events of one datagram or framed message. Never raises on input."""

    def scanner(self, direction: int) -> Scanner | None:
        """Return a new scanner for one direction of a connection; None where there is none.

        A scanner is the fast way for flows that nobody watches: it reports the events of `scan`, or
        fewer that lead to the same conclusions.
        """
        del direction
        return None

    def policy(self, dialect: str) -> Policy:
        """Return the reliability rules of a dialect; those of the first for an unknown name."""
        found = self.policies.get(dialect)
        if found is None:
            row = self.dialect_row(dialect) or self.dialects[0]
            found = self.policies[row.name]
        return found

    def framer(self, dialect: str, direction: int) -> Framer | None:
        """Return a framer for one direction of a TCP stream; None where `transports` lacks tcp."""
        del dialect, direction
        return None

    def assembler(self) -> Assembler | None:
        """Return a new assembler for one connection; None where nothing spans datagrams."""
        return None

    def over(self, transport: str) -> Protocol:
        """Return the protocol as it is tracked over a transport: itself, unless they differ."""
        del transport
        return self

    # -- hints -------------------------------------------------------------------------------------

    def initial_hints(self, claim: Claim) -> Hints:
        """Return the hints that a connection starts with."""
        default = self.dialects[0].name
        first, second = claim.dialects[0] or default, claim.dialects[1] or default
        return Hints((second, first) if claim.client == 1 else (first, second))

    def informed(self, hints: Hints, reading: Reading) -> Hints:
        """Return the hints with what the user states; called only where that is not the default."""
        del reading
        return hints

    def next_hints(self, hints: Hints) -> Hints:
        """Return the hints for the next connection on the same address pair (RESTART "*")."""
        return Hints(hints.dialects)

    def unproven(self, hints: Hints, direction: int) -> str | None:
        """Return the code of the finding that nothing has proven the dialect of a direction.

        Asked at the end of a connection that was joined in mid-stream.
        """
        del hints, direction
        return None

    def for_layers(self, extra: Any) -> Any:
        """Return the part of `Hints.extra` that layers read, which is kept for each datagram."""
        return extra

    # -- trees -------------------------------------------------------------------------------------

    def inspector(self) -> Inspector | None:
        """Return a new inspector for one connection; None where every tree stands alone."""
        return None

    def fragment(self, payload: bytes, *, packet: bool) -> Fragment | None:
        """Return the values of bytes that are no packet but fit one of the protocol's encodings.

        Called by `decode` for bytes that no dialect accepts as a packet.

        Args:
            payload: the bytes.
            packet: the user says that they are a packet: return only what cannot be coincidence.

        """
        del payload, packet
        return None

    def dialect_row(self, name: str) -> DialectRow | None:
        """Return the row of a dialect by its full name or without the protocol's prefix."""
        for row in self.dialects:
            if name in (row.name, row.name.removeprefix(f"{self.name}-")):
                return row
        return None
