"""Flows, and the processing of every datagram of a claimed flow: `DirectionHandler.take`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from netdissect.diagnosis import answer
from netdissect.flow.codes import CAPTURE_DUPLICATE, SNAPPED
from netdissect.model.claims import Claim, Hints, Sample
from netdissect.model.diagnosis import Limits
from netdissect.model.events import Ev, Event
from netdissect.model.native import i64
from netdissect.model.packets import SIDES, FlowKey, Packet, PacketKind, reverse_key
from netdissect.model.reports import ConnectionReport, EndHint
from netdissect.pipeline.observer import Datagram, Observer
from netdissect.protocols import registry
from netdissect.protocols.base import Assembler, Fault, Protocol
from netdissect.protocols.claiming import DecodeAs
from netdissect.protocols.foreign import disown
from netdissect.track.connection import Connection
from netdissect.track.findings import Findings
from netdissect.track.lane import Lane

MAX_HELD = 32
"""Datagrams per flow that may be held until it is known whether they begin a new connection: a
server may have sent many before the first answer of a client that is far away.
"""

_RESTART: Final = Ev.RESTART
_HINTS: Final = Ev.HINTS
_PART: Final = Ev.PART
_UNIT: Final = Ev.UNIT
_MESSAGE: Final = Ev.MESSAGE
_NOTE: Final = Ev.NOTE
_TYPED: Final = frozenset({_MESSAGE, _UNIT, Ev.PLAIN_UNIT, Ev.NUMBERED})
"""Events that count as a message, with its type as second item."""

_log = logging.getLogger(__name__)

Name = FlowKey
"""Key of a flow in either direction, followed by one more byte if it is a flow over TCP. As with
other keys, `reverse_key` returns that of the opposite direction.
"""


def name_of(transport: str, key: FlowKey) -> Name:
    """Return the name of a flow."""
    return key if transport == "udp" else key + b"t"


def is_udp(name: Name) -> bool:
    """Return whether a flow is one over UDP: the length of a key is even."""
    return not len(name) % 2


class Flow:
    """The packets between two endpoints over one transport. First it is sampled for recognition,
    then it is claimed by a protocol.
    """

    # Not a dataclass, whose `__init__` is not compiled: a flood creates millions of flows.
    def __init__(
        self, key: FlowKey, transport: str, ports: tuple[int, int], rule: DecodeAs | None,
        last_ns: int, looks: int,
    ) -> None:  # fmt: skip
        self.key = key
        """Key of the datagrams of endpoint 0, the sender of the first one."""
        self.name = name_of(transport, key)
        self.transport = transport
        self.ports = ports
        self.rule = rule
        """The decode-as rule that matches; None = recognition decides."""
        self.sample: list[Sample] = []
        """Payloads for recognition."""
        self.packets: list[tuple[int, Packet]] = []
        """(endpoint, packet) of everything held; processed again when the flow is claimed."""
        self.octets = 0
        """Bytes held."""
        self.known_alone: str | None = None
        """Protocol of the first packet, if it was determined during a flood."""
        self.alone = 0
        """1 if the first packet alone proves no protocol."""
        self.last_ns = last_ns
        self.looks = looks
        """How often the flow was judged before without being claimed."""
        self.waits = False
        """True while its protocol is known, but not which side is the client."""
        self.protocol: Protocol | None = None
        self.connection: Connection | None = None
        """The present connection."""
        self.claim: Claim | None = None
        self.client = 0
        """Endpoint that is the client."""
        self.assembler: Assembler | None = None
        self.ordinal = 0
        """TCP: ordinal of the present connection between these endpoints."""
        self.held: list[tuple[int, int, int, bytes]] = []
        """Datagrams (direction, frame, time, payload) that may begin a new connection."""
        self.earlier: list[tuple[Connection, Assembler | None]] = []
        """Earlier connections that may continue beside the present one, oldest first."""
        self.renewed = 0
        """Frame that began the present connection, if the flow had one before."""
        self.begun_at = 0
        """Datagrams of the present connection when another one was last merged into it."""
        self.lapsed = False
        """Whether the present connection had been given up when its next datagram came."""
        self.asleep_ns = -1
        """Time of the last packet of the connection when it was given up: there is nothing more to
        do until its next one.
        """
        self.trusted = 0
        """The last frame that belongs to the present connection without doubt."""
        self.doubted_from = 0
        """Datagrams of the present connection before which none is doubted."""
        self.ways: list[DirectionHandler] = []
        """Handlers of the present connection: (client to server, server to client)."""

    def assemble(self, direction: int, frame: int, time_ns: int, events: list[Event]) -> None:
        """Pass the parts in a datagram to the assembler; track the resulting events."""
        if self.assembler is not None and self.connection is not None:
            more = self.assembler.feed(direction, frame, time_ns, events)
            if more:
                self.connection.further(direction, frame, time_ns, more)

    @property
    def first_held(self) -> int:
        """Frame of the first packet held, 0 without one."""
        return self.packets[0][1][1] if self.packets else 0

    def claimed(self, claim: Claim) -> Claim:
        """Return the claim with `client` set to the endpoint that was determined in the end."""
        return claim if claim.client == self.client else replace(claim, client=self.client)

    def key_of(self, direction: int) -> FlowKey:
        """Return the key of a direction; 0 = client to server."""
        return self.key if direction == self.client else reverse_key(self.key)


class DatagramHandler:
    """Processes the datagrams of one direction of a UDP flow."""

    __slots__ = ("addresses", "ports")

    addresses: i64
    ports: i64
    """The flow for which `HandlerTable` returned it last, as arguments of `ipv4_datagram`."""

    def take(self, frame: i64, time_ns: i64, payload: bytes) -> None:
        """Process one datagram."""
        raise NotImplementedError


class DirectionHandler(DatagramHandler):
    """One direction of a claimed flow. Every datagram, and every message of a stream, is scanned,
    tracked, assembled and shown to the observer here.
    """

    __slots__ = (
        "_intake", "_lane", "_other", "_recorder", "connection", "direction", "flow", "observer",
        "protocol", "scan", "scanner",
    )  # fmt: skip

    def __init__(
        self, intake: Restarts, flow: Flow, protocol: Protocol, connection: Connection,
        direction: int, observer: Observer | None,
    ) -> None:  # fmt: skip
        self._intake = intake
        self.observer = observer
        self.flow = flow
        self.connection = connection
        self.direction = direction
        self._lane, self._other = connection.lanes[direction], connection.lanes[1 - direction]
        self.protocol = protocol
        self._recorder = recorder = connection.recorder
        # A timeline shows what a datagram holds in the order of its events.
        watched = (recorder is not None and recorder.events) or (
            observer is not None and observer.reads_events(protocol)
        )
        self.scan = protocol.scan
        udp = flow.transport == "udp"
        self.scanner = protocol.scanner(direction) if udp and not watched else None
        """Reports the events of datagrams by calls to the connection; None if somebody needs them
        as a list.
        """
        if self.scanner is not None:
            connection.speak(self.scanner.types, self.scanner.spaces)

    def take(self, frame: i64, time_ns: i64, payload: bytes) -> None:
        """Process one datagram."""
        connection, scanner = self.connection, self.scanner
        hints = connection.hints
        try:
            if scanner is None:
                events = self.scan(payload, self.direction, hints)
            # Held datagrams are tracked first, which a scanner that pushes its events cannot wait
            # for.
            elif self.flow.held:
                # An observer needs all events, of which a scanner may leave some out.
                watched = self.observer is not None
                events = self.scan(payload, self.direction, hints) if watched else (
                    scanner.events(payload, hints)
                )
            else:
                connection.at(self._lane, self._other, frame, time_ns, len(payload))
                if self._recorder is not None:
                    self._recorder.touched.clear()
                told = scanner.scan(connection, payload, hints)
                # The usual case: the scanner has pushed all events, and nothing is left to decide.
                if told is None:
                    follows = scanner.follows
                    if scanner.parts:
                        follows = True
                        self.flow.assemble(self.direction, frame, time_ns, scanner.parts)
                    recorder = self._recorder
                    if self.observer is not None and (
                        recorder is None or recorder.bare or recorder.touched or follows
                    ):
                        item = self._seen(connection, frame, time_ns, payload)
                        item.hints, item.scanned = hints, True
                        item.follows = follows
                        self.observer.seen(item)
                    return
                events = told
            if self._intake.turns(self, frame, time_ns, payload, events):
                return
            if self.flow.held:
                self._intake.release(self.flow, self.direction)
            scanned_with = hints if scanner is None else None
            self.track(connection, frame, time_ns, payload, events, scanned_with=scanned_with)
        except Exception as bug:  # noqa: BLE001 - the one place that catches a fault of a protocol
            self.bug(frame, time_ns, bug)

    def partly(
        self, frame: int, time_ns: int, payload: bytes, kept: Callable[[list[Event]], list[Event]]
    ) -> None:
        """Process one datagram, but track only the events that `kept` returns."""
        try:
            events = self.protocol.scan(payload, self.direction, self.connection.hints)
            self.track(self.connection, frame, time_ns, payload, kept(events))
        except Exception as bug:  # noqa: BLE001 - as above
            self.bug(frame, time_ns, bug)

    def snapped(self, frame: int, time_ns: int, payload: bytes) -> None:
        """Process a datagram that the capture has truncated, without the events that may be due to
        that. What is not in the capture may have acknowledged anything.
        """
        try:
            events = self.protocol.scan(payload, self.direction, self.connection.hints)
            kept = [event for event in events if event[0] != _NOTE]
            if len(kept) < len(events):
                self.connection.findings.misses = True
                kept = [event for event in kept if event[0] != _RESTART]
            # Only padding is missing from the datagrams that begin a Teeworlds connection.
            elif self._intake.turns(self, frame, time_ns, payload, kept):
                return
            self.track(self.connection, frame, time_ns, payload, kept)
        except Exception as bug:  # noqa: BLE001 - as above
            self.bug(frame, time_ns, bug)

    def message(
        self, frame: int, time_ns: int, octets: bytes, offset: int,
        frames: tuple[int, ...] = (), faults: tuple[Fault, ...] = (),
    ) -> None:  # fmt: skip
        """Process the message at `offset` of a stream, which came in the segments `frames`."""
        try:
            events = self.scan(octets, self.direction, self.connection.hints)
            self.track(self.connection, frame, time_ns, octets, events, offset, frames, faults)
        except Exception as bug:  # noqa: BLE001 - as above
            self.bug(frame, time_ns, bug)

    def track(
        self,
        connection: Connection,
        frame: int,
        time_ns: int,
        payload: bytes,
        events: list[Event],
        offset: int = -1,
        frames: tuple[int, ...] = (),
        faults: tuple[Fault, ...] = (),
        scanned_with: Hints | None = None,
    ) -> None:
        """Track, assemble and show a datagram, or a message if `offset` is not -1.

        `connection` differs from that of the handler if an earlier connection continues.
        `scanned_with` are the hints with which a scan of the payload returned just these events.
        """
        direction, hints, recorder = self.direction, connection.hints, connection.recorder
        if recorder is not None:
            recorder.touched.clear()
        if offset < 0:
            connection.datagram(direction, frame, time_ns, payload, events)
        else:
            events = self._in_stream(frame, time_ns, events, offset, offset + len(payload))
        # Parts are the last events of a datagram; an earlier connection has no assembler any more.
        if events and events[-1][0] == _PART and connection is self.connection:
            self.flow.assemble(direction, frame, time_ns, events)
        if self.observer is not None:
            item = self._seen(connection, frame, time_ns, payload)
            item.events, item.hints, item.frames, item.faults = events, hints, frames, faults
            item.scanned = scanned_with is hints
            if offset >= 0:
                item.stream = (self.flow.key_of(direction), self.flow.ordinal, offset)
            self.observer.seen(item)

    def _seen(self, connection: Connection, frame: int, time_ns: int, payload: bytes) -> Datagram:
        """Return a datagram for the observer, without its events."""
        item = Datagram(frame, time_ns, payload)
        item.connection, item.protocol, item.direction = connection, self.protocol, self.direction
        if connection.recorder is not None:
            item.touched = tuple(connection.recorder.touched)
        return item

    def _in_stream(
        self, frame: int, time_ns: int, events: list[Event], start: int, end: int
    ) -> list[Event]:
        """Track the message of a stream; return its events, with the number assigned to it."""
        connection, direction = self.connection, self.direction
        stream = connection.stream
        type_, cell = None, None
        if stream is not None and events and events[0][0] == _MESSAGE:
            type_ = events[0][1]
            if type_ is not None and len(events) == 1:
                cell = connection.lanes[direction].messages.get(type_)
        if cell is None:
            connection.further(direction, frame, time_ns, events)
        else:
            cell.add(1, time_ns, frame)
        if type_ is None or stream is None:
            return events
        if stream.next_message(direction, start, end, time_ns):
            number = stream.messages[direction].count
        else:
            number = stream.message(direction, type_, (start, end), frame, time_ns)
        if self.observer is None:
            return events
        return [(_UNIT, type_, "message", number, None, None), *events[1:]]

    def bug(self, frame: int, time_ns: int, bug: Exception) -> None:
        """Report an exception in a protocol's code, or caused by its events, as a finding; re-raise
        it if `strict`.
        """
        if self._intake.strict:
            raise bug
        disown(self.protocol, bug)
        _log.info("frame %d: fault in %s", frame, self.protocol.name, exc_info=bug)
        text = f"{type(bug).__name__}: {bug}"
        self.connection.findings.add("dissector-bug", frame, time_ns, self.direction, text)


class Restarts:
    """Decides for all handlers where a new connection begins on a claimed flow."""

    def __init__(
        self,
        *,
        strict: bool,
        renew: Callable[[Flow, int, int, Hints | None], None],
        refuse: Callable[[Flow], bool],
        doubt: Callable[[Flow, Packet, int, list[Event]], bool],
        malformed: frozenset[str],
        hit: Callable[[str], None],
    ) -> None:
        """Create one.

        Args:
            strict: re-raise exceptions in protocols.
            renew: begins a new connection on a flow (flow, frame, time, hints).
            refuse: returns whether a flow must not get another connection, because of a flood.
            doubt: is called with a flow, a malformed datagram of it, its direction and its events;
                returns whether the datagram is held.
            malformed: the codes of findings about malformed datagrams.
            hit: called with the name of a bound when it is hit.

        """
        self.strict = strict
        self._renew = renew
        self._refuse = refuse
        self._doubt = doubt
        self._malformed = malformed
        self._hit = hit

    def open(
        self, flow: Flow, protocol: Protocol, connection: Connection, observer: Observer | None
    ) -> None:
        """Create the handlers of a new connection."""
        flow.doubted_from = 0
        flow.ways = [
            DirectionHandler(self, flow, protocol, connection, direction, observer)
            for direction in (0, 1)
        ]

    def faulty(self, flow: Flow, packet: Packet) -> None:
        """Process a datagram in which the layers below have found faults."""
        _, frame, time_ns, key, payload, _, faults = packet
        port = flow.ways[(0 if key == flow.key else 1) ^ flow.client]
        for code in faults:
            port.connection.findings.add(code, frame, time_ns, port.direction)
        if CAPTURE_DUPLICATE in faults:
            port.partly(frame, time_ns, payload, _messages_alone)
        elif SNAPPED in faults:
            port.snapped(frame, time_ns, payload)
        else:
            port.take(frame, time_ns, payload)

    def turns(
        self, port: DirectionHandler, frame: int, time_ns: int, payload: bytes, events: list[Event]
    ) -> bool:
        """Process a datagram that begins, or may begin, a new connection; return False for any
        other.
        """
        flow, direction = port.flow, port.direction
        if not flow.held and is_malformed(events, self._malformed):
            key = flow.key_of(direction)
            packet: Packet = (PacketKind.UDP, frame, time_ns, key, payload, None, ())
            if self._doubt(flow, packet, direction, events):
                return True
        if events and events[0][0] == _RESTART:
            self._restart(port, frame, time_ns, payload, events)
            return True
        return False

    def _restart(
        self, port: DirectionHandler, frame: int, time_ns: int, payload: bytes, events: list[Event]
    ) -> None:
        """Process a datagram whose events begin with RESTART."""
        flow, connection, direction = port.flow, port.connection, port.direction
        scope = events[0][1]
        if scope == "?":
            for event in events:
                if event[0] == _HINTS:
                    connection.learn(event[1])
            flow.held.append((direction, frame, time_ns, payload))
            if len(flow.held) > MAX_HELD:
                self._hit("MAX_HELD")
                self.release(flow, direction, last=1)
            return
        told = next((event[1] for event in events if event[0] == _HINTS), None)
        other = told is not None and told.dialects != connection.hints.dialects
        # A datagram begins one connection only, even if scanning it again yields a restart.
        same = scope != "*" or (connection.forced and other) or flow.renewed == frame
        # The first datagram of a flow begins the connection that its claim has opened.
        same |= not (flow.held or connection.datagrams_seen())
        if same or self._refuse(flow):
            # "<" marks a datagram of the connection before.
            if scope == "<" and flow.earlier:
                connection = flow.earlier[-1][0]
            if flow.held:
                self.release(flow, direction)
            # The dialect that the user chose says that it is a datagram of the same connection.
            port.track(connection, frame, time_ns, payload, events)
            return
        held, flow.held, flow.renewed = flow.held, [], frame
        # Whoever asked to begin has given the connection up, and not who answers.
        asker, asked, asked_ns = held[0][:3] if held else (direction, frame, time_ns)
        connection.end_hint = EndHint("superseded", asker, asked, asked_ns)
        # The new connection begins with the datagrams that were held.
        self._renew(flow, held[0][1] if held else frame, time_ns, told)
        for side, at, when, octets in (*held, (direction, frame, time_ns, payload)):
            flow.ways[side].take(at, when, octets)

    def release(self, flow: Flow, direction: int, *, last: int = 0) -> None:
        """Track the held datagrams of one sender in the present connection after all; only the
        first `last` of them if it is not 0.
        """
        held, place, done = flow.held, 0, 0
        while place < len(held) and not (last and done == last):
            if held[place][0] != direction:
                place += 1
                continue
            _, frame, time_ns, payload = held.pop(place)
            done += 1
            flow.ways[direction].partly(frame, time_ns, payload, _nothing_new)
            flow.ways[direction].connection.silence.handshake_request(direction, time_ns)


def is_malformed(events: list[Event], codes: frozenset[str]) -> bool:
    """Return whether a datagram has a finding with one of the codes, and begins no connection for
    certain.
    """
    if events and events[0][0] == _RESTART and events[0][1] != "?":
        return False
    for event in events:  # noqa: SIM110 - compiled, a loop is cheaper
        if event[0] == _NOTE and event[1] in codes:
            return True
    return False


def _messages_alone(events: list[Event]) -> list[Event]:
    """Return the messages of a datagram that was captured twice: only these count."""
    return [(_MESSAGE, event[1]) for event in events if event[0] in _TYPED and event[1]]


def _nothing_new(events: list[Event]) -> list[Event]:
    """Return the events of a datagram that did not begin a connection after all."""
    return [event for event in events if event[0] != _RESTART or event[1] != "?"]


def add_answers(
    report: ConnectionReport, findings: Findings, limits: Limits, end_ns: int
) -> None:
    """Answer the questions about a connection that has ended: in its report and by findings."""
    told: set[tuple[str, int | None]] = set()
    for each in answer(report, limits):
        key = each.code, each.direction
        findings.add(
            *each.terms,
            concluded_ns=end_ns if each.later else None,
            always=key not in told,  # once for each direction, even if the code repeats
        )
        told.add(key)
    report.anomalies = findings.totals()
    report.codes = findings.repeats


def add_last_findings(connection: Connection, assembler: Assembler | None, end_ns: int) -> None:
    """Add what only the end tells: what stays incomplete, and dialects that nothing has proven."""
    if assembler is not None:
        for direction, events in enumerate(assembler.finish()):
            if events:
                at = connection.last_frame, connection.last_ns
                connection.further(direction, *at, events)
    if not connection.started:
        _add_unproven(connection, end_ns)


def _add_unproven(connection: Connection, end_ns: int) -> None:
    protocol, hints = registry.get(connection.protocol), connection.hints
    code: str | None = None
    lanes: list[Lane] = []
    for lane in connection.lanes:
        found = protocol.unproven(hints, lane.direction) if lane.datagrams else None
        if found is not None:
            code = found
            lanes.append(lane)
    if code is not None:
        text = ", ".join(
            f"{SIDES[lane.direction]} read as {hints.dialects[lane.direction]}" for lane in lanes
        )
        direction = lanes[-1].direction if len(lanes) == 1 else None
        at = lanes[-1].last_frame, lanes[-1].last_ns
        connection.findings.add(code, *at, direction, text, concluded_ns=end_ns)
