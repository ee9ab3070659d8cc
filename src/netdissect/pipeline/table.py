"""The flow table: feeds what a protocol has claimed to the tracker, all else to the recogniser.

Time comes from the packets, so a file and a live interface give the same answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from netdissect.diagnosis import diagnose
from netdissect.diagnosis.findings import CODES as ANSWER_CODES
from netdissect.diagnosis.findings import findings_of
from netdissect.flow import FLOW_CODES
from netdissect.flow.codes import CAPTURE_DUPLICATE, SNAPPED
from netdissect.model.annotations import COMMON_CODES, CodeRow
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.model.packets import (
    FlowKey,
    Packet,
    PacketKind,
    TcpSegment,
    flow_endpoints,
    reverse_key,
)
from netdissect.model.reports import CaptureInfo, Parting
from netdissect.pipeline import streams
from netdissect.pipeline.anomalies import Anomalies
from netdissect.pipeline.numbering import Begun
from netdissect.pipeline.observer import Observer
from netdissect.pipeline.options import Analysis, Options
from netdissect.pipeline.partly import messages_alone, no_faults, nothing_new
from netdissect.pipeline.ports import Flow, Port, Taker, WatchedPort
from netdissect.pipeline.recogniser import Recogniser
from netdissect.pipeline.reports import Reports
from netdissect.pipeline.servers import Servers
from netdissect.protocols import registry
from netdissect.protocols.base import Assembler, Protocol
from netdissect.track.conclusion import conclude
from netdissect.track.connection import Connection
from netdissect.track.findings import TRACK_CODES, Findings
from netdissect.track.recorder import Recorder
from netdissect.track.stream import TCP_CODES

__all__ = ["Pipeline"]

_log = logging.getLogger(__name__)

MAX_CONNECTIONS = 20_000
"""Connections tracked at once; beyond, those idle longest are reported as they stand."""
MAX_REPORTS = 1_000_000
"""Reports collected, nearly all in a file; further ones are counted only (`Options.on_report` gets
them all)."""
MAX_HELD = 8
"""Datagrams per flow that wait for whether they begin a new connection."""
CLOSED_IDLE_NS: Final = 30_000_000_000
"""A connection that has ended and been silent for so long is reported and leaves the table."""
HOUSEKEEPING_NS: Final = 10_000_000_000
"""How often, in packet time, ended connections are looked for."""
KEYS_A_FRAME: Final = 64
"""Keys looked at for each frame in between: time may jump with every frame."""
QUIET_ROUNDS = 30
"""A connection that is not heard for so many rounds of housekeeping is quiet, whatever its state:
longer than the idle timeout of any protocol, and no single wrong time stamp makes one quiet.
"""
MAX_QUIET = 128
"""Quiet connections on the table; beyond, those quiet longest are reported as they stand."""

_AT_END: Final = 1 << 62
_UDP: Final = int(PacketKind.UDP)
_TCP: Final = int(PacketKind.TCP)


class Pipeline:
    """Takes packets one by one (`feed`) or many (`run`); `finish` ends everything."""

    def __init__(
        self,
        options: Options | None = None,
        *,
        recorder: Recorder | None = None,
        observer: Observer | None = None,
        servers: Servers | None = None,
    ) -> None:
        self.options = options or Options()
        self.recorder = recorder
        self.observer = observer
        self.protocols = registry.protocols(self.options.without)
        self.reports = Reports()
        self.counts: dict[str, dict[str, int]] = {}
        """Protocol -> datagrams and connections."""
        self.limits_hit: dict[str, int] = {}
        self.begun = Begun()
        self.now_ns = 0
        """Time of the newest packet."""
        self._table: dict[FlowKey, Taker] = {}
        """UDP key -> what takes its datagrams; flows under recognition and TCP are not in it."""
        self._claimed: dict[tuple[str, FlowKey], Flow] = {}
        """Under the key of either direction."""
        self._streams: dict[FlowKey, streams.StreamPort] = {}
        """TCP key -> what takes its segments where nobody watches."""
        self._tcp_feeder = streams.TcpFeeder(self)
        self._housekeeping_ns = self._tidied_at = 0
        self._rounds: list[int] = []
        """Times of the last rounds of housekeeping."""
        self._at = 0
        """Newest frame that did not go straight to a connection."""
        rows = (*COMMON_CODES, *FLOW_CODES, *TRACK_CODES, *TCP_CODES, *ANSWER_CODES)
        self._rows: dict[str, CodeRow] = {row.code: row for row in rows}
        for protocol in self.protocols:
            for row in protocol.codes:
                self._rows.setdefault(row.code, row)
        self._findings = Findings(None, self._rows, self.options.on_anomaly)
        """Of flows that are no connection yet."""
        self.recogniser = Recogniser(
            self.options, self.protocols, self._table, servers or Servers(),
            begin=self._claim, other=None if observer is None else observer.other,
            hit=self._hit, unable=self._unable,
        )  # fmt: skip

    # -- input -------------------------------------------------------------------------------------

    def run(self, packets: Iterable[Packet]) -> None:
        """Take packets, each as `feed` does, the usual ones by the shortest way."""
        table, tcp_ports = self._table, self._streams
        time_ns = self.now_ns
        due_ns = self._housekeeping_ns
        udp, tcp = PacketKind.UDP, PacketKind.TCP
        for packet in packets:
            kind, frame, time_ns, key, payload, segment, faults = packet
            if time_ns > due_ns:
                self._tidy(frame, time_ns)
                due_ns = self._housekeeping_ns
            if not faults:
                if kind is udp:
                    taker = table.get(key)
                    if taker is not None:
                        taker.take(frame, time_ns, payload)
                        continue
                elif kind is tcp and segment is not None:
                    port = tcp_ports.get(key)
                    if port is not None and port.take(frame, time_ns, segment):
                        continue
            self.feed(packet)
            due_ns = self._housekeeping_ns
        self.now_ns = max(self.now_ns, time_ns)

    def feed(self, packet: Packet) -> None:
        """Take one packet."""
        kind, frame, time_ns, _, _, segment, faults = packet
        self.now_ns = max(self.now_ns, time_ns)
        self._at = max(self._at, frame)
        if time_ns > self._housekeeping_ns:
            self._tidy(frame, time_ns)
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
        """Judge what is still sampled, report every connection that is left.

        Args:
            end_ns: time of the newest frame of the capture, whatever is in it; None = not known.

        """
        self.now_ns = max(self.now_ns, end_ns or 0)
        self._at = _AT_END
        self.recogniser.finish()
        for flow in sorted(self._unique(), key=_first_frame):
            self._end(flow, self.now_ns)
        self._claimed.clear()
        self._table.clear()

    def analysis(self, info: CaptureInfo, anomalies: Anomalies) -> Analysis:
        """Return what is known after `finish`."""
        anomalies.settle(self.limits_hit)
        return Analysis(
            info=info,
            connections=self.reports,
            anomalies=anomalies.listed(),
            protocols=self.counts,
            other_datagrams=self.other_datagrams,
            limits_hit=self.limits_hit,
        )

    @property
    def other_datagrams(self) -> int:
        """Return how many UDP datagrams are of no known protocol."""
        return self.recogniser.other_datagrams

    @property
    def oldest_sampled(self) -> int | None:
        """Return the oldest frame whose flow waits for recognition; None without any."""
        return self.recogniser.oldest

    def _capture_duplicate(self, packet: Packet) -> None:
        """Count a second sight of a packet, and track no more of it: it was neither sent nor
        delivered twice.
        """
        kind, frame, time_ns, key, payload, segment, faults = packet
        name = ("udp" if kind == _UDP else "tcp", key)
        flow, sampled = self._claimed.get(name), self.recogniser.sampled(name)
        if sampled is not None:
            self.recogniser.hold(sampled, packet, [])
        elif flow is None:
            if kind == _UDP:
                self._udp(packet)
        elif flow.connection is not None and flow.protocol is not None:
            connection = flow.connection
            direction = (0 if key == flow.key else 1) ^ flow.client
            self._notes(connection, direction, frame, time_ns, faults)
            connection.lanes[direction].add("capture_duplicates", 1)
            if kind == _UDP:
                self._unusual(flow, (direction, frame, time_ns, payload), messages_alone)
            elif segment is not None and segment.payload_length:
                connection.segment(direction, frame, time_ns, 0)

    def tracked(self) -> list[Connection]:
        """Return the connections on the table, in no useful order."""
        flows = self._unique()
        return [flow.connection for flow in flows if flow.connection is not None]

    # -- flows -------------------------------------------------------------------------------------

    def _udp(self, packet: Packet) -> None:
        _, frame, time_ns, key, payload, _, faults = packet
        taker = self._table.get(key)
        flow = self._claimed.get(("udp", key))
        if flow is not None and faults:
            self._faulty(flow, packet)
        elif taker is not None:
            taker.take(frame, time_ns, payload)
            if flow is None and self.observer is not None:
                self.observer.other(packet)
        else:
            self._hold(("udp", key), packet, [payload])

    def _hold(self, name: tuple[str, FlowKey], packet: Packet, pieces: list[bytes]) -> None:
        """Hand a packet of an unclaimed flow to the recogniser."""
        sampled = self.recogniser.sampled(name)
        flow = sampled or self.recogniser.new_flow(*name, self.now_ns)
        self.recogniser.hold(flow, packet, pieces)

    def _tcp(self, packet: Packet, segment: TcpSegment) -> None:
        name = ("tcp", packet[3])
        flow = self._claimed.get(name) or self.recogniser.sampled(name)
        if flow is not None and segment.connection != flow.ordinal:
            self._leave(flow)
            flow = None
        if flow is None and segment.connection == 1 and self.recogniser.is_other(name):
            return
        flow = flow or self.recogniser.new_flow(*name, self.now_ns)
        flow.ordinal = segment.connection
        if flow.connection is not None:
            self._tcp_feeder.segment(flow, packet, segment)
        else:
            self.recogniser.hold(flow, packet, [piece.data for piece in segment.stream])

    def _icmp(self, packet: Packet) -> None:
        """Take an ICMP error that quotes a datagram."""
        name = ("udp", packet[3])
        flow = self._claimed.get(name)
        if flow is not None and flow.connection is not None:
            side = 0 if packet[3] == flow.key else 1
            flow.connection.icmp_unreachable(side ^ flow.client, packet[1], packet[2])
        else:
            self.recogniser.hold_error(name, packet)

    def _claim(self, flow: Flow, roles_from: str) -> None:
        """Begin a connection on a flow that was claimed, and feed what was held of it."""
        claim, protocol = flow.claim, flow.protocol
        if claim is None or protocol is None:
            return
        hints = protocol.initial_hints(replace(claim, client=flow.client))
        self._begin(flow, hints, roles_from, (self._at, flow.packets[0][1][1]))
        packets, flow.packets, flow.sample = flow.packets, [], []
        for _, packet in packets:
            self.feed(packet)

    def _unable(self, protocol: Protocol, bug: Exception) -> None:
        """Report a fault in the recognition of a protocol."""
        if self.options.strict:
            raise bug
        _log.info("fault in the recognition of %s", protocol.name, exc_info=bug)
        text = f"recognition of {protocol.name}: {type(bug).__name__}: {bug}"
        self._findings.add("dissector-bug", None, None, None, text)

    # -- connections -------------------------------------------------------------------------------

    def _begin(self, flow: Flow, hints: Hints, flow_roles: str, moment: tuple[int, int]) -> None:
        """Begin a connection on a claimed flow."""
        protocol, claim = flow.protocol, flow.claim
        if protocol is None or claim is None:
            return
        if self.options.reading is not None:
            hints = protocol.informed(hints, self.options.reading)
        number = self.begun.add(*moment)
        first, second = flow_endpoints(flow.key)
        endpoints = (str(first), str(second)) if flow.client == 0 else (str(second), str(first))
        connection = Connection(
            number,
            protocol=protocol.name,
            transport=flow.transport,
            policy_of=protocol.policy,
            hints=hints,
            endpoints=endpoints,
            roles_from=flow_roles,
            findings=Findings(number, self._rows, self.options.on_anomaly),
            recorder=self.recorder,
            explain=(f"score {claim.score}", *claim.reasons),
            forced=claim.forced,
        )
        connection.findings.late = self.options.on_late
        if self.observer is not None:
            connection.findings.every = self.observer.finding
        self._place(connection)
        flow.connection = connection
        flow.assembler = protocol.assembler()
        counts = self.counts.setdefault(protocol.name, {"datagrams": 0, "connections": 0})
        counts["connections"] += 1
        keys = (flow.key, reverse_key(flow.key))
        for side, key in enumerate(keys):
            self._claimed[flow.transport, key] = flow
            if flow.transport == "udp":
                plain = self.observer is None and self.recorder is None
                kind = Port if plain else WatchedPort
                self._table[key] = kind(self, flow, protocol, connection, side)
        if flow.transport == "tcp":
            framers = [protocol.framer(hints.dialects[side], side) for side in (0, 1)]
            flow.framers = [framer for framer in framers if framer is not None]
            if connection.stream is not None and self.observer is None and self.recorder is None:
                for side, key in enumerate(keys):
                    self._streams[key] = streams.StreamPort(self, flow, protocol, side)
        if len(self._claimed) > 2 * MAX_CONNECTIONS:
            self._evict_claimed()

    def _place(self, connection: Connection) -> None:
        """Tell a connection where the capture was taken, if it was looked at before."""
        if self.options.near is not None:
            connection.place(self.options.near.get(connection.number, (None, None)))

    def restart(
        self,
        flow: Flow,
        direction: int,
        frame: int,
        time_ns: int,
        payload: bytes,
        events: list[Event],
    ) -> None:
        """Take a datagram that begins, or may begin, a new connection on a claimed flow."""
        connection = flow.connection
        if connection is None or flow.protocol is None:
            return
        scope = events[0][1]
        if scope == "?":
            for event in events:
                if event[0] == Ev.HINTS:
                    connection.learn(event[1])
            flow.held.append((direction, frame, time_ns, payload))
            if len(flow.held) > MAX_HELD:
                self._hit("MAX_HELD")
                self.release(flow, direction, last=1)
            return
        told = next((event[1] for event in events if event[0] == Ev.HINTS), None)
        other = told is not None and told.dialects != connection.hints.dialects
        if scope != "*" or (connection.forced and other):
            if scope == "<" and flow.earlier:
                connection = flow.earlier[-1][0]
            # Where the user knows better it is a strange datagram of the same connection.
            self._track(flow, connection, (direction, frame, time_ns, payload), events)
            return
        held, flow.held = flow.held, []
        connection.parting = Parting("superseded", direction, frame, time_ns)
        self._report(flow, time_ns, flow.protocol.lives - 1)
        hints = told or flow.protocol.next_hints(connection.hints)
        if connection.forced:
            hints = Hints(connection.hints.dialects, hints.extra)
        self._begin(flow, hints, connection.roles_from, (frame, frame))
        for item in (*held, (direction, frame, time_ns, payload)):
            self._take(flow, *item)

    def release(self, flow: Flow, direction: int, *, last: int = 0) -> None:
        """Count held datagrams of one sender where they were, as nothing new began."""
        mine = [item for item in flow.held if item[0] == direction]
        mine = mine[:last] if last else mine
        for item in mine:
            flow.held.remove(item)
            self._unusual(flow, item, nothing_new)
        if mine and self.recorder is not None:
            self.recorder.touched.clear()

    def _unusual(
        self,
        flow: Flow,
        item: tuple[int, int, int, bytes],
        kept: Callable[[list[Event]], list[Event]],
    ) -> None:
        """Scan, track and show one datagram (direction, frame, time, payload) of which only the
        events count that `kept` returns.
        """
        connection, protocol = flow.connection, flow.protocol
        if connection is None or protocol is None:
            return
        direction, frame, time_ns, payload = item
        try:
            events = protocol.scan(payload, direction, connection.hints)
            self._track(flow, connection, item, kept(events))
        except Exception as bug:  # noqa: BLE001 - as in the ports
            self.bug(connection, direction, frame, time_ns, bug)

    def _track(
        self,
        flow: Flow,
        connection: Connection,
        item: tuple[int, int, int, bytes],
        events: list[Event],
    ) -> None:
        """Track and show one datagram (direction, frame, time, payload) that takes no usual way."""
        direction, frame, time_ns, payload = item
        hints = connection.hints
        if self.recorder is not None:
            self.recorder.connection = connection.number
            self.recorder.touched.clear()
        connection.datagram(direction, frame, time_ns, payload, events)
        if events and events[-1][0] == Ev.PART and connection is flow.connection:
            flow.assemble(direction, frame, time_ns, events)
        if self.observer is not None:
            shown = (frame, time_ns, payload, ())
            self.observer.seen(flow, connection, direction, shown, events, hints)

    def _take(self, flow: Flow, direction: int, frame: int, time_ns: int, payload: bytes) -> None:
        """Feed one datagram of a claimed UDP flow, whatever its port is now."""
        key = flow.key if direction == flow.client else reverse_key(flow.key)
        self._table[key].take(frame, time_ns, payload)

    def watched(
        self, flow: Flow, direction: int, frame: int, time_ns: int, payload: bytes,
        frames: tuple[int, ...] = (), *, offset: int | None = None,
    ) -> None:  # fmt: skip
        """Scan, track, assemble and show one datagram, or the message at `offset` of a stream."""
        connection, protocol = flow.connection, flow.protocol
        if connection is None or protocol is None:
            return
        if self.recorder is not None:
            self.recorder.connection = connection.number
            self.recorder.touched.clear()
        hints = connection.hints
        try:
            events = protocol.scan(payload, direction, hints)
            if events and events[0][0] == Ev.RESTART and offset is None:
                self.restart(flow, direction, frame, time_ns, payload, events)
                return
            if flow.held:
                self.release(flow, direction)
            if offset is not None:
                connection.further(direction, frame, time_ns, events)
                span = (offset, offset + len(payload))
                events = self._tcp_feeder.numbered(flow, direction, frame, time_ns, events, span)
            else:
                connection.datagram(direction, frame, time_ns, payload, events)
            if events and events[-1][0] == Ev.PART:
                flow.assemble(direction, frame, time_ns, events)
            if self.observer is not None:
                packet = (frame, time_ns, payload, frames)
                self.observer.seen(flow, connection, direction, packet, events, hints)
        except Exception as bug:  # noqa: BLE001 - the one place that catches a fault of a protocol
            self.bug(connection, direction, frame, time_ns, bug)

    def _faulty(self, flow: Flow, packet: Packet) -> None:
        """Feed a datagram in which the layers below found something."""
        connection = flow.connection
        if connection is None:
            return
        _, frame, time_ns, key, payload, _, faults = packet
        direction = (0 if key == flow.key else 1) ^ flow.client
        self._notes(connection, direction, frame, time_ns, faults)
        if SNAPPED not in faults:
            self._take(flow, direction, frame, time_ns, payload)
            return
        self._unusual(flow, (direction, frame, time_ns, payload), no_faults)

    def _notes(
        self, connection: Connection, direction: int, frame: int, time_ns: int,
        codes: tuple[str, ...],
    ) -> None:  # fmt: skip
        for code in codes:
            connection.findings.add(code, frame, time_ns, direction)

    def bug(
        self, connection: Connection, direction: int, frame: int, time_ns: int, bug: Exception
    ) -> None:
        """Report a fault of our own; re-raise it where the user asked for that."""
        if self.options.strict:
            raise bug
        _log.info("frame %d: fault in %s", frame, connection.protocol, exc_info=bug)
        connection.findings.add(
            "dissector-bug", frame, time_ns, direction, f"{type(bug).__name__}: {bug}"
        )

    # -- ends --------------------------------------------------------------------------------------

    def _report(self, flow: Flow, end_ns: int, kept: int = 0) -> None:
        """Conclude the connections of a flow but the last `kept`, which go on beside a new one."""
        connection = flow.connection
        if connection is not None:
            self._tcp_feeder.finish(flow)
            flow.connection = None
            flow.earlier.append((connection, flow.assembler))
        while len(flow.earlier) > kept:
            self._conclude(*flow.earlier.pop(0), end_ns)

    def _conclude(self, connection: Connection, assembler: Assembler | None, end_ns: int) -> None:
        """Conclude a connection and hand its report on."""
        if assembler is not None:
            for direction, events in enumerate(assembler.finish()):
                if events:
                    at = connection.last_frame, connection.last_ns
                    connection.further(direction, *at, events)
        if self.recorder is not None:
            self.recorder.connection = connection.number
        report = conclude(connection, end_ns)
        report.diagnosis = found = diagnose(report)
        for each in findings_of(report, found):
            connection.findings.add(*each.terms, concluded_ns=end_ns if each.later else None)
        report.anomalies = connection.findings.totals()
        self.counts[connection.protocol]["datagrams"] += sum(report.datagrams)
        if self.options.on_report is not None:
            self.options.on_report(report)
        elif len(self.reports) < MAX_REPORTS:
            self.reports.append(report)
        else:
            self._hit("MAX_REPORTS")

    def _end(self, flow: Flow, end_ns: int) -> None:
        """Report a flow's connections and take the flow off the table."""
        for direction in (0, 1):
            self.release(flow, direction)
        self._report(flow, end_ns)
        for key in (flow.key, reverse_key(flow.key)):
            self._claimed.pop((flow.transport, key), None)
            if flow.transport == "udp":
                self._table.pop(key, None)
            else:
                self._streams.pop(key, None)

    def _leave(self, flow: Flow) -> None:
        """End a flow because another TCP connection uses its 4-tuple."""
        if flow.connection is None:
            self.recogniser.judge(flow, final=True)
        if flow.connection is not None:
            self._end(flow, self.now_ns)

    def _tidy(self, frame: int, now_ns: int) -> None:
        """Report connections that have ended and been silent for a while, and of those that only
        fell silent what is too many.
        """
        if frame - self._tidied_at < len(self._claimed) // KEYS_A_FRAME:
            return
        self._tidied_at = frame
        self.now_ns = max(self.now_ns, now_ns)
        self._housekeeping_ns = now_ns + HOUSEKEEPING_NS
        self._rounds.append(now_ns)
        since = self._rounds.pop(0) if len(self._rounds) > QUIET_ROUNDS else 0
        quiet: list[Flow] = []
        for flow in self._unique():
            connection = flow.connection
            if connection is None:
                continue
            last_ns = connection.last_ns or now_ns
            if connection.machine.over and now_ns - last_ns > CLOSED_IDLE_NS:
                self._end(flow, now_ns)
            elif last_ns < since:
                quiet.append(flow)
        for flow in sorted(quiet, key=self._last_ns)[:-MAX_QUIET]:
            self._hit("MAX_QUIET")
            self._end(flow, now_ns)

    def _evict_claimed(self) -> None:
        """Report the tenth of the connections that has been idle longest."""
        flows = sorted((flow for flow in self._unique() if flow.connection), key=self._last_ns)
        for flow in flows[: max(1, MAX_CONNECTIONS // 10)]:
            self._hit("MAX_CONNECTIONS")
            if flow.connection is not None:
                flow.connection.evicted = True
            self._end(flow, self.now_ns)

    def _last_ns(self, flow: Flow) -> int:
        """Return when a connection was last heard; one that has just begun counts as heard now."""
        return (flow.connection.last_ns if flow.connection else 0) or self.now_ns

    def _unique(self) -> list[Flow]:
        return [flow for (_, key), flow in self._claimed.items() if key == flow.key]

    def _hit(self, limit: str) -> None:
        self.limits_hit[limit] = self.limits_hit.get(limit, 0) + 1


def _first_frame(flow: Flow) -> int:
    return flow.connection.life.first_frame if flow.connection else 0
