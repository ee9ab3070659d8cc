"""Connects the stages: packets of a claimed flow go to its handlers, all others to the recogniser.
Connections begin and end here. Time comes from the packets, so that a file and a live interface
give the same results.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from netdissect.flow.codes import CAPTURE_DUPLICATE
from netdissect.flow.stats import FlowStats
from netdissect.model.annotations import CodeRow, shared_rows
from netdissect.model.claims import Claim, Hints
from netdissect.model.packets import FlowKey, Packet, PacketKind, flow_texts, reverse_key
from netdissect.model.reports import CaptureInfo
from netdissect.model.segments import TcpSegment
from netdissect.model.sinks import PacketSink
from netdissect.model.units import Placement
from netdissect.pipeline.anomalies import Anomalies
from netdissect.pipeline.aside import LonePacket
from netdissect.pipeline.doubts import Doubts
from netdissect.pipeline.handlers import (
    Flow,
    Name,
    Restarts,
    add_answers,
    add_last_findings,
    name_of,
)
from netdissect.pipeline.numbering import ConnectionNumbers, common_numbers
from netdissect.pipeline.observer import Observer
from netdissect.pipeline.options import UNKNOWN_PLACEMENT, Analysis, Options
from netdissect.pipeline.recogniser import Recogniser
from netdissect.pipeline.reports import Reports
from netdissect.pipeline.servers import Servers
from netdissect.pipeline.streams import StreamPort
from netdissect.pipeline.table import FlowTable, place_of
from netdissect.protocols import registry
from netdissect.protocols.base import Assembler, Protocol
from netdissect.track.conclusion import conclude, conclude_placement
from netdissect.track.connection import Connection
from netdissect.track.findings import Findings
from netdissect.track.recorder import Recorder
from netdissect.track.unit import MADE

if TYPE_CHECKING:
    from mypy_extensions import i64

_log = logging.getLogger(__name__)

MAX_REPORTS = 1_000_000
"""Reports collected, nearly all of them in a file. Further ones are only counted;
`Options.on_report` gets all of them.
"""
_UDP: Final = int(PacketKind.UDP)
_TCP: Final = int(PacketKind.TCP)


class Pipeline(PacketSink):
    """Tracks the connections in a sequence of packets; `finish` ends all of them."""

    def __init__(
        self,
        options: Options | None = None,
        *,
        recorder: Recorder | None = None,
        observer: Observer | None = None,
        servers: Servers | None = None,
        shares: int = 1,
    ) -> None:
        """Create a pipeline.

        Args:
            options: decode-as rules and so on.
            recorder: records units and events; None = nothing is recorded.
            observer: is shown every datagram.
            servers: servers that are known already.
            shares: number of processes that share the flows of the capture.

        """
        self.options = options or Options()
        self.recorder = recorder
        self.observer = observer
        self.protocols = registry.protocols(self.options.without)
        self.reports = Reports(lines=self.options.lines)
        self.near: dict[int, Placement] = {}
        """See `Options.placing`."""
        self.repeated: set[int] | None = set() if self.options.placing else None
        self.counts: dict[str, dict[str, int]] = {}
        """Protocol -> datagrams and connections."""
        self.limits_hit: dict[str, int] = {}
        # If reports are passed on at once, connections cannot be renumbered at the end.
        kept = self.options.reported and (self.options.on_report is None or shares > 1)
        self.begun = ConnectionNumbers(self.options.begins, kept=kept)
        self.now_ns = 0
        """Time of the newest packet."""
        self._table = FlowTable(self._hit, shares, self.options.together)
        self._streams: dict[FlowKey, StreamPort] = {}
        """Flow key -> handler of its TCP segments."""
        self._rows: dict[str, CodeRow] = shared_rows()
        for protocol in self.protocols:
            for row in protocol.codes:
                self._rows.setdefault(row.code, row)
        malformed = frozenset(row.code for row in self._rows.values() if row.group == "malformed")
        self._doubts = Doubts(
            self.options, self.protocols, self._table, malformed, feed=self.feed,
            renew=self._renew, replaced=self._replace, unable=self._unable, hit=self._hit,
        )  # fmt: skip
        self._intake = Restarts(
            strict=self.options.strict, renew=self._renew, refuse=self._refuse,
            doubt=self._doubts.malformed, malformed=malformed, hit=self._hit,
        )  # fmt: skip
        self._findings = Findings(None, self._rows, self.options.on_anomaly)
        """Findings about flows that are not connections yet."""
        self.recogniser = Recogniser(
            self.options, self.protocols, self._table, servers or Servers(),
            begin=self._claim, alone=self._brief, other=None if observer is None else self._other,
            hit=self._hit, unable=self._unable, shares=shares,
        )  # fmt: skip

    @property
    def most_flows(self) -> tuple[int, int]:
        """Return how many claimed flows there were at once, and how many waited."""
        return self._table.most, self.recogniser.most

    @property
    def late(self) -> bool:
        """Return whether housekeeping was put off, as it depends on the number of flows."""
        return self._table.late

    # -- input -------------------------------------------------------------------------------------

    def run(self, packets: Iterable[Packet]) -> None:
        """Process packets."""
        for packet in packets:
            self.packet(packet)

    def ipv4_datagram(
        self, frame: i64, time_ns: i64, addresses: i64, ports: i64, payload: bytes
    ) -> bool:
        """Process an IPv4 UDP datagram if its handler was looked up lately, else return False."""
        table = self._table
        if time_ns > table.due_ns or MADE.count > table.due_units:  # `datagram` tidies up
            return False
        handler = table.handlers.at[place_of(addresses, ports)]
        if handler is None or handler.ports != ports or handler.addresses != addresses:
            return False
        if time_ns > self.now_ns:  # noqa: PLR1730 - the builtin would take longer than the rest
            self.now_ns = time_ns
        handler.take(frame, time_ns, payload)
        return True

    def datagram(self, frame: i64, time_ns: i64, key: FlowKey, payload: bytes) -> None:
        """Process a UDP datagram without faults."""
        self.tick(frame, time_ns)
        handler = self._table.handlers.get(key)
        if handler is not None:
            handler.take(frame, time_ns, payload)
        else:
            self._udp((PacketKind.UDP, frame, time_ns, key, payload, None, ()))

    def segment(
        self, frame: i64, time_ns: i64, key: FlowKey, payload: bytes, segment: TcpSegment
    ) -> None:
        """Process a TCP segment without faults."""
        self.tick(frame, time_ns)
        port = self._streams.get(key)
        if port is None or not port.take(frame, time_ns, segment):
            self.feed((PacketKind.TCP, frame, time_ns, key, payload, segment, ()))

    def packet(self, packet: Packet) -> None:
        """Process a packet as `feed` does, but faster if it is an ordinary one. The observer is not
        shown such datagrams of unknown flows.
        """
        kind, frame, time_ns, key, payload, segment, faults = packet
        if not faults:
            if kind == _UDP:
                self.datagram(frame, time_ns, key, payload)
                return
            if kind == _TCP and segment is not None:
                self.segment(frame, time_ns, key, payload, segment)
                return
        self.feed(packet)

    def tick(self, frame: i64, time_ns: i64) -> None:
        """Advance the time to that of a packet, also of one that another process tracks."""
        if time_ns > self._table.due_ns or MADE.count > self._table.due_units:
            self._tidy(frame, time_ns)
        if time_ns > self.now_ns:  # noqa: PLR1730 - as above
            self.now_ns = time_ns

    def feed(self, packet: Packet) -> None:
        """Process one packet."""
        kind, frame, time_ns, _, _, segment, faults = packet
        self.tick(frame, time_ns)
        if CAPTURE_DUPLICATE in faults:
            self._capture_duplicate(packet)
            return
        if kind == _UDP:
            self._udp(packet)
        elif segment is not None:
            self._tcp(packet, segment)
        elif kind == PacketKind.ICMP_UNREACHABLE:
            self._icmp(packet)

    def finish(self, end_ns: int | None = None) -> None:
        """Judge the remaining flows, and report the remaining connections.

        Args:
            end_ns: time of the newest frame of the capture, of whatever kind; None = unknown.

        """
        self.now_ns = max(self.now_ns, end_ns or 0)
        self._doubts.finish()
        self.recogniser.finish()
        for flow in sorted(self._table.flows(), key=_first_frame):
            self._end(flow, self.now_ns)
        self._table.handlers.clear()

    def analysis(self, info: CaptureInfo, anomalies: Anomalies, flow: FlowStats) -> Analysis:
        """Return the result after `finish`; `flow` has the counts of the decapsulator."""
        anomalies.settle(self.limits_hit)
        return Analysis(
            info=info,
            connections=self.reports,
            begins=array("q", sorted(self.begun.frames)),
            late=self.recogniser.late,
            near=self.near,
            repeated=self.repeated,
            anomalies=anomalies.listed(),
            protocols=self.counts,
            other_datagrams=self.other_datagrams,
            limits_hit=self.limits_hit,
            flow=flow,
        )

    def renumber(self) -> array[int] | None:
        """Renumber all connections in the order of their first frames, after `finish`; return the
        new number of connection n at n - 1, or None if no number has changed.
        """
        if self.options.begins is not None or self.begun.in_order:
            return None
        numbers = common_numbers([self.begun])[0]
        self.reports.store.renumber(numbers)
        self.near = {numbers[number - 1]: near for number, near in self.near.items()}
        if self.repeated is not None:
            self.repeated = {numbers[number - 1] for number in self.repeated}
        return numbers

    @property
    def other_datagrams(self) -> int:
        """Return the number of UDP datagrams of unknown protocols."""
        return self.recogniser.other_datagrams

    @property
    def oldest_sampled(self) -> int | None:
        """Return the oldest frame whose flow waits for recognition; None without any."""
        return self._doubts.older(self.recogniser.oldest)

    def _capture_duplicate(self, packet: Packet) -> None:
        """Count a packet that was captured twice. It is not tracked, because it was neither sent
        nor delivered twice.
        """
        kind, frame, time_ns, key, _, segment, faults = packet
        name = name_of("udp" if kind == _UDP else "tcp", key)
        flow, sampled = self._table.get(name), self.recogniser.sampled(name)
        if sampled is not None:
            self.recogniser.hold(sampled, packet, [])
        elif flow is None:
            if kind == _UDP:
                self._udp(packet)
        elif flow.connection is not None:
            connection = flow.connection
            direction = (0 if key == flow.key else 1) ^ flow.client
            connection.lanes[direction].add("capture_duplicates", 1)
            if kind == _UDP:
                self._intake.faulty(flow, packet)
                return
            for code in faults:
                connection.findings.add(code, frame, time_ns, direction)
            if segment is not None and segment.payload_length:
                # Its bytes were counted with the first sighting.
                connection.segment(direction, frame, time_ns, 0)

    def undecided(self) -> bool:
        """Return whether datagrams are held until it is known if they begin a connection."""
        return bool(self._doubts) or self._table.holds()

    def tracked(self) -> list[Connection]:
        """Return the tracked connections in any order."""
        return [flow.connection for flow in self._table.flows() if flow.connection is not None]

    # -- flows -------------------------------------------------------------------------------------

    def _udp(self, packet: Packet) -> None:
        _, frame, time_ns, key, payload, _, faults = packet
        flow = self._table.get(key)
        handler = self._table.handlers.get(key)
        if flow is None and handler is None:
            way = reverse_key(key)
            held = self.recogniser.sampled(key, way)
            handler = self.recogniser.stranger(key, way) if held is None else None
            if handler is None:
                self._hold(held, key, packet, [payload])
                return
        if flow is not None and handler is None:
            self._doubts.hold(flow, packet)
        elif flow is not None and faults:
            self._intake.faulty(flow, packet)
        elif handler is not None:
            handler.take(frame, time_ns, payload)
            if flow is None and self.observer is not None:
                self._other(packet)

    def _other(self, packet: Packet) -> None:
        """Show the observer a packet of an unknown protocol, unless it does not need them."""
        if self.observer is not None and self.options.others:
            self.observer.other(packet)

    def _hold(self, flow: Flow | None, name: Name, packet: Packet, pieces: list[bytes]) -> None:
        """Pass a packet of an unclaimed flow to the recogniser; `flow` is None if it is new."""
        kind, frame, time_ns, key, payload, segment, faults = packet
        if flow is None:
            lone = LonePacket(kind, frame, time_ns, key, payload, segment, faults)
            if self.recogniser.set_aside(name, lone, pieces):
                return
            transport = "udp" if segment is None else "tcp"
            flow = self.recogniser.new_flow(transport, key, self.now_ns)
        if segment is not None:
            flow.ordinal = segment.connection
        self.recogniser.hold(flow, packet, pieces)

    def _tcp(self, packet: Packet, segment: TcpSegment) -> None:
        name = name_of("tcp", packet[3])
        flow, way = self._table.get(name), None
        if flow is None:
            way = reverse_key(name)
            flow = self.recogniser.sampled(name, way)
        if flow is not None and segment.connection != flow.ordinal:
            self._leave(flow)
            flow = None
        if flow is None and segment.connection == 1 and self.recogniser.is_other(name, way):
            return
        if flow is not None and flow.connection is not None:
            self._streams[packet[3]].segment(packet, segment)
            return
        if flow is None and packet[1] < self._table.looked_at:
            return  # bytes released behind a gap of a connection that has left the table
        self._hold(flow, name, packet, [piece.data for piece in segment.stream])

    def _icmp(self, packet: Packet) -> None:
        """Process an ICMP error that quotes a datagram or segment."""
        transport, _, reason = packet[4].decode().partition(" ")
        flow = self._table.get(name := name_of(transport, packet[3]))
        if flow is not None and flow.connection is not None:
            way = int(packet[3] != flow.key) ^ flow.client
            flow.connection.icmp_unreachable(way, packet[1], packet[2], reason)
        else:
            self.recogniser.hold_error(name, packet)

    def _claim(self, flow: Flow, roles_from: str) -> None:
        """Begin a connection on a flow that was claimed, and process the packets held."""
        claim, protocol = flow.claim, flow.protocol
        if claim is None or protocol is None:
            return
        hints = protocol.initial_hints(flow.claimed(claim))
        self._begin(flow, hints, roles_from, flow.packets[0][1][1])
        packets, flow.packets, flow.sample = flow.packets, [], []
        for _, packet in packets:
            self.feed(packet)

    def _replace(self, flow: Flow, other: Flow, claim: Claim) -> None:
        """End a flow, and begin a connection of another protocol in its place."""
        self._end(flow, self.now_ns)
        self._claim(other, self.recogniser.settle(other, claim))

    def _unable(self, protocol: Protocol, bug: Exception) -> None:
        """Report an exception in the recognition of a protocol."""
        if self.options.strict:
            raise bug
        _log.info("fault in the recognition of %s", protocol.name, exc_info=bug)
        text = f"recognition of {protocol.name}: {type(bug).__name__}: {bug}"
        self._findings.add("dissector-bug", None, None, None, text)

    # -- connections -------------------------------------------------------------------------------

    def _begin(self, flow: Flow, hints: Hints, flow_roles: str, frame: int) -> None:
        """Begin a connection on a claimed flow; `frame` is its first frame."""
        protocol, claim = flow.protocol, flow.claim
        if protocol is None or claim is None:
            return
        if self.options.reading is not None:
            hints = protocol.informed(hints, self.options.reading)
        number = self.begun.add(frame)
        endpoints = flow_texts(flow.key_of(0))
        if self.options.named is not None:
            number = self.options.named(endpoints, frame, number)
        wanted = self._wanted(number, flow)
        recorder = self.recorder if wanted else None
        observer = self.observer if wanted else None
        findings = Findings(number, self._rows, self.options.on_anomaly, self.options.limits)
        connection = Connection(
            number,
            protocol=protocol.name,
            transport=flow.transport,
            policy_of=protocol.policy,
            hints=hints,
            endpoints=endpoints,
            roles_from=flow_roles,
            findings=findings,
            recorder=None if recorder is None else recorder.of(number, findings),
            explain=(f"score {claim.score}", *claim.reasons),
            forced=claim.forced,
        )
        findings.late = self.options.on_late
        if observer is not None:
            findings.every = observer.finding
        self._place(connection)
        flow.connection = connection
        flow.assembler = protocol.assembler()
        self._count(protocol.name, 0)
        self._intake.open(flow, protocol, connection, observer)
        self._table.add(flow, frame)
        for direction, port in enumerate(flow.ways):
            key = flow.key_of(direction)
            if flow.transport == "udp":
                self._table.handlers.put(key, port)
            else:
                framer = protocol.framer(hints.dialects[direction], direction)
                self._streams[key] = StreamPort(port, framer)
        for idle in self._table.overflowing(self.now_ns):
            self._end(idle, self.now_ns)

    def _wanted(self, number: int, flow: Flow) -> bool:
        """Return whether a connection, or one that continues beside it, is to be observed."""
        only = self.options.only
        if only is None or number in only:
            return True
        return any(connection.number in only for connection, _ in flow.earlier)

    def _count(self, protocol: str, datagrams: int) -> None:
        counts = self.counts.setdefault(protocol, {"datagrams": 0, "connections": 0})
        counts["connections"] += 1
        counts["datagrams"] += datagrams

    def _brief(self, protocol: str, datagrams: int) -> None:
        """Count a brief connection that is not reported because of a flood."""
        self._count(protocol, datagrams)
        self._hit("MAX_BRIEF")

    def _refuse(self, flow: Flow) -> bool:
        """Return `FlowTable.merges`, and count the connection; an observer sees all of them."""
        merged = self.observer is None and self._table.merges(flow)
        if merged and flow.connection is not None:
            self._brief(flow.connection.protocol, 0)
        return merged

    def _place(self, connection: Connection) -> None:
        """Set the placement of a connection, if a first pass has found it."""
        if self.options.near is not None:
            connection.place(self.options.near.get(connection.number, UNKNOWN_PLACEMENT))

    def _renew(self, flow: Flow, frame: int, time_ns: int, told: Hints | None) -> None:
        """Report the connection of a claimed flow, and begin a new one on the same flow."""
        connection, protocol = flow.connection, flow.protocol
        if connection is None or protocol is None:
            return
        self._report(flow, time_ns, protocol.lives - 1)
        hints = told or protocol.next_hints(connection.hints)
        if connection.forced:
            hints = Hints(connection.hints.dialects, hints.extra)
        self._begin(flow, hints, connection.roles_from, frame)

    # -- ends --------------------------------------------------------------------------------------

    def _report(self, flow: Flow, end_ns: int, kept: int = 0) -> None:
        """Conclude the connections of a flow, except the last `kept`, which continue beside a new
        one.
        """
        connection = flow.connection
        if connection is not None:
            if flow.transport == "tcp":
                for direction in (0, 1):
                    self._streams.pop(flow.key_of(direction)).finish()
            flow.connection = None
            flow.earlier.append((connection, flow.assembler))
        while len(flow.earlier) > kept:
            self._conclude(*flow.earlier.pop(0), end_ns)

    def _placed(self, connection: Connection) -> None:
        """Store the results of a first pass for a connection that has ended."""
        placement = conclude_placement(connection)
        if placement != UNKNOWN_PLACEMENT and len(self.near) < MAX_REPORTS:
            self.near[connection.number] = placement
        if self.repeated is not None and connection.findings.repeated:
            self.repeated.add(connection.number)
            if len(self.repeated) > MAX_REPORTS:
                self.repeated = None

    def _conclude(self, connection: Connection, assembler: Assembler | None, end_ns: int) -> None:
        """Conclude a connection, and store or pass on its report."""
        add_last_findings(connection, assembler, end_ns)
        self._table.ended(connection)
        if self.options.placing:
            self._placed(connection)
            return
        if not self.options.reported and connection.recorder is None:
            connection.release()
            return
        report = conclude(connection, end_ns)
        add_answers(report, connection.findings, self.options.limits, end_ns)
        if not self.options.reported:
            return  # it was concluded for what the observer sees of it
        self.counts[connection.protocol]["datagrams"] += sum(report.datagrams)
        if self.options.on_report is not None:
            self.options.on_report(report)
        elif len(self.reports) < MAX_REPORTS:
            self.reports.append(report)
        else:
            self._hit("MAX_REPORTS")

    def _end(self, flow: Flow, end_ns: int) -> None:
        """Report the connections of a flow, and remove the flow from the table."""
        for direction in (0, 1):
            self._intake.release(flow, direction)
        self._report(flow, end_ns)
        flow.ways.clear()  # breaks a reference cycle, so that no garbage collection is needed
        self._table.remove(flow)
        for packet in self._doubts.ended(flow):
            self.feed(packet)

    def _leave(self, flow: Flow) -> None:
        """End a flow because another TCP connection uses the same endpoints."""
        if flow.connection is None:
            self.recogniser.judge(flow, final=True)
        if flow.connection is not None:
            self._end(flow, self.now_ns)

    def _tidy(self, frame: int, now_ns: int) -> None:
        """Do the housekeeping: report the connections that have to leave the table."""
        self.now_ns = max(self.now_ns, now_ns)
        for flow in self._table.overloading():
            self._end(flow, now_ns)
        if now_ns > self._table.doze_ns:
            self._table.doze(frame, now_ns)
        if now_ns <= self._table.round_ns:
            return
        for flow in self._table.leaving(frame, now_ns):
            self._end(flow, now_ns)
        self.recogniser.forget_quiet(frame)

    def _hit(self, limit: str, times: int = 1) -> None:
        self.limits_hit[limit] = self.limits_hit.get(limit, 0) + times


def _first_frame(flow: Flow) -> int:
    return flow.connection.lifetime.first_frame if flow.connection else 0
