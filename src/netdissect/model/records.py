"""What `read` yields: one record per datagram, with one record per message in it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from netdissect.model.annotations import Annotation, Severity
from netdissect.model.dissection import Dissection, LazyFields
from netdissect.model.packets import FlowKey


class Finding(NamedTuple):
    """A finding of the tracker about one datagram."""

    code: str
    severity: Severity


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """What was known about a connection when one of its datagrams was read. The fields are those of
    `ConnectionReport`.
    """

    state: str
    handshake: str
    client: str
    server: str
    vantage: str


class Reliability:
    """What the tracker knows about one copy of one unit."""

    __slots__ = ("acked_in", "added_ms", "attempts", "kind", "latency_ms", "of_frame", "reliable",
                 "retransmitted_in", "rtt_ms", "seq", "since_ms", "space", "wire_seq")  # fmt: skip

    # No class for records is a dataclass, whose `__init__` is not compiled.
    def __init__(
        self,
        space: str,
        wire_seq: int,
        seq: int,
        reliable: bool,  # noqa: FBT001 - a fact like the others
        kind: str | None,
        of_frame: int | None = None,
        acked_in: int | None = None,
        rtt_ms: float | None = None,
        since_ms: float | None = None,
        attempts: int | None = None,
        latency_ms: float | None = None,
        added_ms: float | None = None,
        retransmitted_in: int | None = None,
    ) -> None:
        self.space = space
        """Name of its space."""
        self.wire_seq = wire_seq
        """Number on the wire."""
        self.seq = seq
        """Extended (unwrapped) number."""
        self.reliable = reliable
        """True if the sender retransmits the unit until it is acknowledged."""
        self.kind = kind
        """`original`, `retransmission`, `duplicate`; None if the capture cannot tell."""
        self.of_frame = of_frame
        """Frame of the first copy, for a retransmission or duplicate."""
        self.acked_in = acked_in
        """Frame of the first acknowledgement; None if none was seen so far."""
        self.rtt_ms = rtt_ms
        """Unambiguous round trip, milliseconds."""
        self.since_ms = since_ms
        """Time since the previous copy of the unit, milliseconds; None for the first."""
        self.attempts = attempts
        """How often the sender has sent the unit up to this copy, not counting transmissions after
        it was acknowledged; None if that is not remembered.
        """
        self.latency_ms = latency_ms
        """Time from the first copy to the first acknowledgement, milliseconds."""
        self.added_ms = added_ms
        """The part of `latency_ms` due to retransmissions: from the first copy to the last one
        before the acknowledgement.
        """
        self.retransmitted_in = retransmitted_in
        """First frame in which TCP retransmitted bytes of the message, which has no record of its
        own; None if it did not, and for datagrams, where each copy has its record.
        """

    def values(self) -> tuple[Any, ...]:
        """Return all values, for comparisons."""
        return (
            self.space, self.wire_seq, self.seq, self.reliable, self.kind, self.of_frame,
            self.acked_in, self.rtt_ms, self.since_ms, self.attempts, self.latency_ms,
            self.added_ms, self.retransmitted_in,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Reliability{self.values()}"


class MessageRecord(LazyFields):
    """One message: a row of `read --json`."""

    __slots__ = ("annotations", "buffer", "index", "length", "offset", "reliability", "summary",
                 "type")  # fmt: skip

    def __init__(
        self,
        index: int,
        type: str,  # noqa: A002 - a key of the JSON
        offset: int,
        length: int,
        fields: dict[str, Any],
        reliability: Reliability | None = None,
        annotations: list[Annotation] | None = None,
        buffer: int = 0,
        summary: str = "",
    ) -> None:
        super().__init__(fields)
        self.index = index
        """Position in its datagram, from 0."""
        self.type = type
        """Type name, as counted by `connections`; `datagram` for a payload without messages."""
        self.offset = offset
        """First byte in its buffer."""
        self.length = length
        """Length in bytes."""
        self.reliability = reliability
        """None for a message without a sequence number."""
        self.annotations: list[Annotation] = [] if annotations is None else annotations
        """Findings inside this message."""
        self.buffer = buffer
        """Index into the dissection's buffers."""
        self.summary = summary
        """One line for people. Not yet made safe for a terminal."""

    def with_fields(self, fields: dict[str, Any], summary: str | None = None) -> MessageRecord:
        """Return a copy of the message with other fields and, if given, another summary."""
        return MessageRecord(
            self.index, self.type, self.offset, self.length, fields, self.reliability,
            self.annotations, self.buffer, self.summary if summary is None else summary,
        )  # fmt: skip


class DatagramRecord:
    """One datagram (or one framed TCP message) and everything known about it."""

    __slots__ = ("_dissection", "_messages", "connection", "decode", "dialect", "direction", "dst",
                 "facts", "faults", "findings", "frame", "frames", "kinds", "length", "payload",
                 "protocol", "src", "stream", "time_ns", "transport")  # fmt: skip

    def __init__(
        self,
        frame: int,
        time_ns: int,
        connection: int | None,
        direction: int | None,
        transport: str,
        src: str,
        dst: str,
        protocol: str | None,
        dialect: str | None,
        length: int,
        frames: tuple[int, ...] = (),
        stream: tuple[FlowKey, int, int] | None = None,
        payload: bytes = b"",
        dissection: Dissection | None = None,
        messages: list[MessageRecord] | None = None,
        findings: tuple[Finding, ...] = (),
        facts: ConnectionFacts | None = None,
        kinds: tuple[str | None, ...] | None = None,
        faults: tuple[str, ...] = (),
    ) -> None:
        self.frame = frame
        """Frame number from 1; for TCP the frame that completed the message."""
        self.time_ns = time_ns
        """Time of that frame, ns since the Unix epoch."""
        self.connection = connection
        """Connection number; None if it belongs to none."""
        self.direction = direction
        """`Direction`; None if it is unknown which side is the client."""
        self.transport = transport
        """`udp` or `tcp`."""
        self.src = src
        """"address:port"."""
        self.dst = dst
        self.protocol = protocol
        """None for an unknown protocol."""
        self.dialect = dialect
        self.length = length
        """Length of the payload, bytes."""
        self.frames = frames
        """All frames that the bytes came from; empty for a UDP datagram in a single frame."""
        self.stream = stream
        """For TCP: key of the direction, ordinal of the TCP connection between these endpoints, and
        offset of the bytes in the stream.
        """
        self.payload = payload
        self._dissection = dissection
        self._messages: list[MessageRecord] = [] if messages is None else messages
        self.findings = findings
        """What the tracker found on this datagram, including repeated findings."""
        self.facts = facts
        """State of the connection when the record was created."""
        self.kinds = kinds
        """Kinds of the copies of units in the datagram; None if only its messages have them."""
        self.faults = faults
        """Catalogue codes of faults below the protocol (IP, UDP, TCP, snap length)."""
        self.decode: Callable[[DatagramRecord], None] | None = None
        """Sets `dissection` and `messages` on first use; None once they are set."""

    def _decoded(self) -> None:
        decode = self.decode
        if decode is not None:
            decode(self)
            # Not before: if decoding raises, the next access raises too instead of showing an
            # empty record.
            self.decode = None

    @property
    def dissection(self) -> Dissection | None:
        """Return the field tree; None for an unknown protocol."""
        self._decoded()
        return self._dissection

    @dissection.setter
    def dissection(self, dissection: Dissection | None) -> None:
        self._dissection = dissection

    @property
    def messages(self) -> list[MessageRecord]:
        """Return the messages; a known protocol has at least one."""
        self._decoded()
        return self._messages

    @messages.setter
    def messages(self, messages: list[MessageRecord]) -> None:
        self._messages = messages

    def with_time(self, time_ns: int) -> DatagramRecord:
        """Return a copy of the record with another time."""
        copy = self.with_endpoints(self.src, self.dst)
        copy.time_ns = time_ns
        return copy

    def with_endpoints(self, source: str, target: str) -> DatagramRecord:
        """Return a copy of the record with other endpoints."""
        return DatagramRecord(
            self.frame, self.time_ns, self.connection, self.direction, self.transport, source,
            target, self.protocol, self.dialect, self.length, self.frames, self.stream,
            self.payload, self.dissection, self.messages, self.findings, self.facts, self.kinds,
            self.faults,
        )  # fmt: skip


class FrameNote(NamedTuple):
    """What is known of a frame of a capture, in words."""

    frame: int
    text: str
    """Empty if nothing is known of the datagram but that it is there."""
    mark: bool = False
    """True if it only says what the frame has part in, after what the frame is."""
    streams: tuple[tuple[tuple[FlowKey, int], str], ...] = ()
    """Of a TCP connection, for each direction: (its key and ordinal, words before what its frames
    are).
    """


def assign_annotations(notes: Sequence[Annotation], messages: Sequence[MessageRecord]) -> None:
    """Append each finding to the message that contains its position, or else to the first one."""
    places = sorted(
        (message.buffer, 8 * message.offset, 8 * (message.offset + message.length), message.index)
        for message in messages
        if message.length
    )
    for note in notes:
        # Infinity is above every end: a finding at the first bit of a message belongs to it.
        at = bisect_right(places, (note.buffer, note.bit_offset, inf)) - 1
        inside = at >= 0 and places[at][0] == note.buffer and note.bit_offset < places[at][2]
        messages[places[at][3] if inside else 0].annotations.append(note)
