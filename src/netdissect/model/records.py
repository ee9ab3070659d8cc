"""What `read` hands on: one record per datagram, with one record per message inside."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from netdissect.model.annotations import Annotation, Severity
from netdissect.model.dissection import Dissection
from netdissect.model.packets import FlowKey

__all__ = [
    "ConnectionFacts",
    "DatagramRecord",
    "Finding",
    "LateMessage",
    "MessageRecord",
    "Reliability",
    "share_notes",
]


class Finding(NamedTuple):
    """A finding of the tracker on one datagram."""

    code: str
    severity: Severity


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """What is known of a connection when one of its datagrams is shown; a report has the same
    names.
    """

    state: str
    """The contract's word."""
    handshake: str
    client: str
    server: str
    vantage: str


@dataclass(slots=True)
class Reliability:
    """What the tracker knows about one copy of one unit."""

    space: str
    """Name of its space."""
    wire_seq: int
    """Number on the wire."""
    seq: int
    """Extended (unwrapped) number."""
    reliable: bool
    """True where the sender repeats the unit until it is acknowledged."""
    kind: str | None
    """`original`, `retransmission`, `duplicate`; None where the capture cannot tell."""
    of_frame: int | None = None
    """Frame of the first copy, for a retransmission or duplicate."""
    acked_in: int | None = None
    """Frame of the first acknowledgement; None = none seen (yet)."""
    rtt_ms: float | None = None
    """Unambiguous round trip, milliseconds."""
    since_ms: float | None = None
    """Time since the previous copy of the unit, milliseconds; None for the first."""
    attempts: int | None = None
    """How often its sender had sent the unit until it was acknowledged, and until this copy; None
    where that is not remembered.
    """
    latency_ms: float | None = None
    """From the first copy to the first acknowledgement, milliseconds."""
    added_ms: float | None = None
    """What resends added to that: from the first copy to the last one before the acknowledgement.
    """


@dataclass(slots=True)
class MessageRecord:
    """One message: a row of `read --json`."""

    index: int
    """Position in its datagram, from 0."""
    type: str
    """Type name, as counted in `connections`; `datagram` where the payload has no messages."""
    offset: int
    """First byte in its buffer."""
    length: int
    """Length in bytes."""
    fields: dict[str, Any]
    """Typed values by name."""
    reliability: Reliability | None = None
    """None for a message without a sequence number."""
    annotations: list[Annotation] = field(default_factory=list)
    """Findings inside this message."""
    buffer: int = 0
    """Index into the dissection's buffers."""
    summary: str = ""
    """One line for people. Not yet made safe for a terminal."""


class LateMessage(MessageRecord):
    """A message of which some values are made when they are first asked for."""

    __slots__ = ("later",)

    later: Callable[[], dict[str, Any]]

    def __getattr__(self, name: str) -> Any:
        """Make them: only an attribute that is not there yet leads here."""
        if name != "fields":
            raise AttributeError(name)
        self.fields = self.later()
        return self.fields


@dataclass(slots=True)
class DatagramRecord:
    """One datagram (or one framed TCP message) with everything that is known about it."""

    frame: int
    """Frame number from 1; for TCP the frame that completed the message."""
    time_ns: int
    """Time of that frame, ns since the Unix epoch."""
    connection: int | None
    """Connection number; None where it belongs to none."""
    direction: int | None
    """`Direction`; None where the roles are not known."""
    transport: str
    """`udp` or `tcp`."""
    src: str
    """"address:port"."""
    dst: str
    protocol: str | None
    """None = no known protocol."""
    dialect: str | None
    length: int
    """Payload bytes."""
    frames: tuple[int, ...] = ()
    """All frames that the bytes came from; empty for a whole UDP datagram in one frame."""
    stream: tuple[FlowKey, int, int] | None = None
    """TCP: key of the direction, ordinal of the connection on it, and where in the stream the
    bytes begin."""
    payload: bytes = b""
    """The bytes."""
    dissection: Dissection | None = None
    """The tree; None for an unknown protocol."""
    messages: list[MessageRecord] = field(default_factory=list)
    """At least one for a known protocol."""
    findings: tuple[Finding, ...] = ()
    """What the tracker found on this datagram, repeats included."""
    facts: ConnectionFacts | None = None
    """The connection as it was known when the record was made."""
    kinds: tuple[str | None, ...] | None = None
    """Kinds of the copies of units that it carries; None = only its messages tell."""
    faults: tuple[str, ...] = ()
    """Catalogue codes found below the protocol (IP, UDP, TCP, snap length)."""


def share_notes(notes: Sequence[Annotation], messages: Sequence[MessageRecord]) -> None:
    """Give each finding to the message that it lies in; to the first where it lies in none."""
    places = sorted(
        (message.buffer, 8 * message.offset, 8 * (message.offset + message.length), message.index)
        for message in messages
        if message.length
    )
    for note in notes:
        at = bisect_right(places, (note.buffer, note.bit_offset, inf)) - 1
        inside = at >= 0 and places[at][0] == note.buffer and note.bit_offset < places[at][2]
        messages[places[at][3] if inside else 0].annotations.append(note)
