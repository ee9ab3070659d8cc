"""One connection: processes the events of its datagrams, and knows no protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.model.native import i64
from netdissect.model.packets import PORT_UNREACHABLE
from netdissect.model.policy import Policy, TimeoutRule
from netdissect.model.reports import EndHint, TimeoutVerdict
from netdissect.model.segments import TcpSegment
from netdissect.model.units import Placement
from netdissect.track.ackstats import PAUSE_NS
from netdissect.track.carried import CarriedSpace
from netdissect.track.carrier import CarrierSpace
from netdissect.track.declared import DeclaredFacts
from netdissect.track.findings import Findings
from netdissect.track.lane import NEVER, Lane
from netdissect.track.machine import StateRunner
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.scansink import ScanSink
from netdissect.track.silence import Lifetime, SilenceDetector
from netdissect.track.stream import StreamTrack
from netdissect.track.timeouts import announced
from netdissect.track.vantage import MIN_ANSWERS, NEAR_NS, Vantage

MAX_IDENTITY = 64
"""Identity facts kept per connection."""

_UNIT: Final = Ev.UNIT
_ACK: Final = Ev.ACK
_NACK: Final = Ev.NACK
"""UNIT is 1 and MESSAGE 0: `kind <= _UNIT` are the events that count as a message."""
_PLAIN_UNIT: Final = Ev.PLAIN_UNIT
_NUMBER: Final = Ev.NUMBER
_NUMBERED: Final = Ev.NUMBERED
_RUN: Final = Ev.RUN
_COUNTER: Final = Ev.COUNTER
_TIMING: Final = Ev.TIMING
_PROBE: Final = Ev.PROBE
_REPLY: Final = Ev.REPLY
_RTT: Final = Ev.RTT
_ORDERED: Final = Ev.ORDERED
_HINTS: Final = Ev.HINTS


class Connection(ScanSink):
    """The state of one connection. Datagrams come through `datagram`, or through `at`, `begin` and
    the calls of a scanner; `conclude` gives the report.
    """

    def __init__(
        self,
        number: int,
        *,
        protocol: str,
        transport: str,
        policy_of: Callable[[str], Policy],
        hints: Hints,
        endpoints: tuple[str, str],
        roles_from: str,
        findings: Findings,
        recorder: ConnectionRecorder | None = None,
        explain: tuple[str, ...] = (),
        forced: bool = False,
    ) -> None:
        self.number = number
        self.protocol = protocol
        self.transport = transport
        self.hints = hints
        """What the decoder has learnt; HINTS events replace it."""
        self.forced = forced
        """Whether the user has chosen the dialects, so that nothing changes them."""
        self.endpoints = endpoints
        """(client, server) as "address:port"."""
        self.roles_from = roles_from
        self.findings = findings
        self.explain = explain
        self.evicted = False
        """Set by the pipeline if the connection had to leave the table before its end."""
        self.released = False
        """Whether the connection is over and reported."""
        self.mid_stream = False
        """Set by the pipeline if the transport shows that the start is missing."""
        self._policy_of = policy_of
        policies = [policy_of(dialect) for dialect in hints.dialects]
        super().__init__([Lane(policies[d], d, findings, recorder) for d in (0, 1)], recorder)
        self.lanes[0].pair(self.lanes[1])
        self.machine = StateRunner(policies[0].machine or policies[1].machine)
        streamed = transport == "tcp" and policies[0].stream
        self.vantage = Vantage(policies[0].answer_ms, by_kernel=streamed)
        self.declared = DeclaredFacts()
        self.announced: dict[int, TimeoutVerdict] = {}
        """Side -> the timeout that it announced on the wire."""
        self.end_hint: EndHint | None = None
        """The newest hint at an end that is not stated on the wire."""
        self.identity: dict[str, Any] = {}
        self.started = False
        """Whether the first datagram begins a connection."""
        self.lifetime = Lifetime()
        self.after = (0, 0)
        """(time, frame) of the last packet without messages: a TCP segment or an ICMP error."""
        self.silence = SilenceDetector(
            self.lanes, self.lifetime, findings, over_tcp=transport == "tcp"
        )
        """Finds the spans in which a side was not heard or not answered."""
        self.stream = StreamTrack(findings, recorder, self._step_in_time) if streamed else None
        """The TCP connection, if the protocol's rules ask for it."""
        if self.stream is not None:
            self.silence.watch(self.stream)
        findings.directions = (*self.lanes, *(self.stream.halves if self.stream else ()))
        judge, answered = self.judge, self.silence.check_one_way  # one object for all
        for lane in self.lanes:
            for space in lane.space_list:
                space.on_evidence = judge
                space.ack_stats.on_answer = answered
                space.context.in_stream = transport == "tcp"

    @property
    def last_ns(self) -> int:
        """Return the time of the last packet."""
        return max(max(self.lanes[0].last_ns, self.lanes[1].last_ns), self.after[0])  # noqa: PLW3301

    @property
    def last_frame(self) -> int:
        """Return the frame of the last packet."""
        return max(max(self.lanes[0].last_frame, self.lanes[1].last_frame), self.after[1])  # noqa: PLW3301 - compiled, a call if of three

    # -- input -------------------------------------------------------------------------------------

    def datagram(
        self, direction: int, frame: i64, time_ns: i64, payload: bytes, events: list[Event]
    ) -> None:
        """Process one datagram, or one framed message of a stream, with its events."""
        lane, other = self.lanes[direction], self.lanes[1 - direction]
        self.at(lane, other, frame, time_ns, len(payload))
        if lane.silent and other.silent and self.stream is None:
            machine = self.machine.machine
            begins = machine.begins if machine else frozenset()
            # TCP states its start itself (`transport_segment`), so that only datagrams need this
            # guess.
            self.started = any(event[0] == Ev.STATE and event[1] in begins for event in events)
        self.begin()
        for event in events:
            self.event(event)

    def begin(self) -> None:
        """Count the current datagram."""
        lane, frame, time_ns = self._lane, self._frame, self._time_ns
        if lane.silent:
            lane.silent = False
            self._first_datagram(lane.direction, frame, time_ns)
        elif time_ns - lane.last_ns > PAUSE_NS and self.stream is None:
            self.silence.resumed(lane.direction, frame, time_ns, (lane.last_ns, lane.last_frame))
        if time_ns >= lane.due_ns:
            self._roll_load(lane, frame, time_ns)
        lane.datagrams += 1
        lane.octets += self._octets
        lane.last_ns = time_ns
        lane.last_frame = frame

    def event(self, event: Event) -> None:  # noqa: C901, PLR0912 - hot path: compiled to jumps
        """Process one event of the current datagram."""
        lane, frame, time_ns = self._lane, self._frame, self._time_ns
        kind: int = event[0]
        if kind <= _UNIT:
            type_ = event[1]
            cell = lane.messages.get(type_)
            if cell is not None:
                cell.add(1, time_ns, frame)
            elif type_ is not None:
                lane.count(type_, time_ns, frame)
            if kind:
                _, _, space, wire_seq, labelled, content = event
                target = lane.spaces.get(space)
                if target is None:
                    target = lane.open(space)
                if target is not None:
                    target.unit(wire_seq, labelled, content, type_, frame, time_ns)
        elif kind == _ACK:
            # An acknowledgement does not create a space; only an unknown template is an error.
            acked = self._other.spaces.get(event[1])
            if acked is not None:
                acked.ack(event[2], event[3], frame, time_ns)
            else:
                lane.template(event[1])
        elif kind == _NACK:
            self._other.spaces[event[1]].nack(event[2], event[3], frame, time_ns)
        elif kind == _PLAIN_UNIT:
            self._plain_unit(event, lane, frame, time_ns)
        elif kind == _RUN:
            self.carry(lane.spaces[event[1]], event[2], event[3])
        elif kind == _NUMBERED:
            self._numbered(event, lane, frame, time_ns)
        elif kind == _COUNTER:
            lane.add(event[1], event[2])
        elif kind == _TIMING:
            lane.timing(event, frame)
        elif kind == _PROBE:
            self._probe(event, lane, frame, time_ns)
        elif kind == _REPLY:
            self._reply(event, lane, frame, time_ns)
        elif kind == _RTT:
            self._rtt(event, lane, frame, time_ns)
        elif kind == _ORDERED:
            self._ordered(event, lane, frame, time_ns)
        elif kind == _HINTS:
            self.learn(event[1])
        else:
            _HANDLERS[kind](self, event, lane, frame, time_ns)

    def _roll_load(self, lane: Lane, frame: i64, time_ns: i64) -> None:
        """Begin the next second of a direction's load, except over TCP, which adapts its rate."""
        if self.transport == "tcp":
            lane.due_ns = NEVER
            return
        if not lane.may_roll(time_ns):
            return
        client, server = self.lanes
        lane.roll(frame, time_ns, max(client.latest_ns(), server.latest_ns()))

    def further(self, direction: int, frame: i64, time_ns: i64, events: list[Event]) -> None:
        """Process events of a datagram that is already counted (assembler, TCP segments)."""
        lane = self.lanes[direction]
        # `datagram` would count the packet a second time.
        octets, datagrams = lane.octets, lane.datagrams
        last_ns, last_frame = lane.last_ns, lane.last_frame
        self.datagram(direction, frame, time_ns, b"", events)
        lane.octets, lane.datagrams = octets, datagrams
        # The packet itself has updated these.
        lane.last_ns, lane.last_frame = last_ns, last_frame

    def segment(self, direction: int, frame: i64, time_ns: i64, octets: int) -> None:
        """Count one TCP segment with data; its messages come through `further`."""
        lane = self.lanes[direction]
        self.lifetime.begin(frame, time_ns)
        # Bytes sent again end no silence: their sender waited for an answer.
        if octets and time_ns - lane.last_ns > PAUSE_NS and not lane.silent and self.stream is None:
            self.silence.resumed(direction, frame, time_ns, (lane.last_ns, lane.last_frame))
        lane.datagrams += 1
        lane.octets += octets
        lane.last_ns = time_ns
        lane.last_frame = frame

    def transport_segment(
        self, direction: int, frame: i64, time_ns: i64, segment: TcpSegment
    ) -> None:
        """Process a TCP segment, with or without data, before the messages that it completes."""
        if self.lifetime.begin(frame, time_ns):
            self.started = not segment.mid_stream
        self.after = (time_ns, frame)
        if self.stream is not None:
            self.stream.segment(direction, frame, time_ns, segment)

    def transport_end(self, direction: int, frame: i64, time_ns: i64, *, reset: bool) -> None:
        """Process the end of the transport: input `fin` or `reset` of the state machine."""
        self.after = (time_ns, frame)
        name, flag = ("reset", "RST") if reset else ("fin", "FIN")
        over = self.machine.over
        self._step(name, flag, direction, frame, time_ns)
        if self.machine.over and not over:
            self.lifetime.cut = (direction, time_ns)

    def icmp_unreachable(self, direction: int, frame: i64, time_ns: i64, reason: str) -> None:
        """Process an ICMP error that quotes a packet of `direction`."""
        self.silence.unreachable(1 - direction, frame, time_ns, reason)
        self.after = (time_ns, frame)
        endpoint = self.endpoints[1 - direction]
        code, text = "destination-unreachable", f"{endpoint} cannot be reached: {reason}"
        if reason == PORT_UNREACHABLE and self.transport == "udp":
            self._step("unreachable", reason, direction, frame, time_ns)
            code, text = "port-unreachable", f"nothing listens at {endpoint}"
        self.findings.add(code, frame, time_ns, direction, text)

    def _first_datagram(self, direction: int, frame: i64, time_ns: i64) -> None:
        """Process the first datagram of a direction."""
        other = self._other
        for space in other.space_list:
            space.peer_seen = True
        if not other.silent:
            for space in self.lanes[direction].space_list:
                # It was active before its first datagram in the capture.
                self.findings.misses |= space.acks.present_ns > PAUSE_NS
            begun = (self.lifetime.first_ns, self.lifetime.first_frame)
            self.silence.resumed(direction, frame, time_ns, begun)
            return
        self.lifetime.begin(frame, time_ns)
        for lane in self.lanes:
            for space in lane.space_list:
                space.context.begin(started=self.started)

    # -- events ------------------------------------------------------------------------------------

    def _plain_unit(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        _, type_, space, wire_seq, content = event
        if type_ is not None:
            lane.count(type_, time_ns, frame)
        target = lane.open(space)
        if target is not None:
            target.plain_unit(wire_seq, content, type_, frame, time_ns)

    def _numbered(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        _, type_, space, wire_seq = event
        cell = lane.messages.get(type_)
        if cell is None:
            lane.count(type_, time_ns, frame)
        else:
            cell.add(1, time_ns, frame)
        target = lane.open(space)
        if target is not None:
            target.number(wire_seq, frame, time_ns)

    def _number(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        target = lane.open(event[1])
        if target is not None:
            target.number(event[2], frame, time_ns)

    def _probe(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        if lane.probes[event[1]].ask(event[2], time_ns, frame) and self.recorder is not None:
            self.recorder.event(
                "probe", time_ns, frame, lane.direction, f"{event[1]} {event[2]}",
                {"kind": event[1], "id": event[2]},
            )  # fmt: skip

    def _reply(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        if lane.carrier is not None and lane.carrier.stale_frame == frame:
            return  # its receiver ignores the datagram
        asker = self.lanes[1 - lane.direction]
        track = asker.probes[event[1]]
        lowest = track.rtt.lowest
        sample = track.answer(event[2], time_ns)
        if sample is None:
            return
        asked_ns = time_ns - sample
        if asked_ns - track.answered_ns > PAUSE_NS:
            self.silence.check_one_way(asker.direction, asked_ns, frame)
        track.answered_ns = asked_ns
        if self.recorder is not None:
            self.recorder.event(
                "probe", time_ns, frame, lane.direction, f"{event[1]} {event[2]} answered",
                {"kind": event[1], "id": event[2], "rtt_ms": sample / 1e6},
            )  # fmt: skip
        asker.add_rtt(max(1.0, sample / 1e6), here=True)
        if sample < lowest > NEAR_NS or track.rtt.samples <= MIN_ANSWERS:
            self.judge()

    def _rtt(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        del frame, time_ns
        value = float(event[1])
        track = next(iter(lane.probes.values()), None)
        if track is not None and value >= 0:
            track.declared.add(int(value * 1e6))
        self.lanes[1 - lane.direction].add_rtt(value)
        lane.add_rtt(value, own=True)

    def _state(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        machine = self.machine.machine
        if machine is not None and event[1] in machine.begins:
            self.silence.handshake_request(lane.direction, time_ns)
        self._step_in_time(event[1], event[2], lane.direction, frame, time_ns)

    def _step_in_time(
        self, name: str, detail: str | None, side: int, frame: i64, time_ns: i64
    ) -> None:
        """Process an input of the state machine. The announcement of a timeout counts as one if the
        timeout is due.
        """
        rule = self.timeout_rules()[side]
        if rule is not None and rule.announces == name and not self.machine.over:
            heard = self.lanes[1 - side]
            found = announced(side, rule, heard, time_ns, self.declared.newest)
            if found is not None:
                self.announced[side] = found
                # The machine has its own transition for a timeout that is certain.
                name = "timeout"
            else:
                kind = "notice" if self.end_hint is None else "notices"
                self.end_hint = EndHint(kind, side, frame, time_ns, detail)
        self._step(name, detail, side, frame, time_ns)

    def _step(self, name: str, detail: str | None, side: int, frame: i64, time_ns: i64) -> None:
        before = self.machine.state
        target = self.machine.step(name, detail, side, frame)
        if target is not None:
            life, machine = self.lifetime, self.machine
            life.over_ns = (life.over_ns or time_ns) if machine.over else 0
            life.open_ns = life.open_ns or (time_ns if machine.word == "open" else 0)
        if target is not None and self.recorder is not None:
            self.recorder.event(
                "state", time_ns, frame, side, f"{before} -> {target}",
                {"from": before, "to": target, "input": name, "detail": detail},
            )  # fmt: skip

    def _identity(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        del frame, time_ns
        if event[1] in self.identity or len(self.identity) < MAX_IDENTITY:
            self.identity[event[1]] = event[2]
        else:
            lane.hit("MAX_IDENTITY")

    def _restart(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        space = lane.spaces.get(event[1])
        if space is None or not space.may_restart(time_ns):  # "*", "?" and "<" are for the pipeline
            return
        seen = space.numbers.seen
        if seen and not space.rule.restarts_at_will:
            space.context.find_restart(frame, time_ns)
            if space.rule.renews and space.renewed is None:
                space.renewed = EndHint("renewed", lane.direction, frame, time_ns)
        self.declared.restart(lane.direction, self.lanes)
        for other in lane.space_list:
            if other is space or other.carrier is space:
                other.restart()
        if seen and self.recorder is not None:
            self.recorder.event(
                "reset", time_ns, frame, lane.direction, f"{event[1]} numbers restart",
                {"space": event[1]},
            )  # fmt: skip

    def _tally(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        _, name, sent, received, taken = event
        evidence = self.declared.tally(
            name, sent, received, taken=taken, direction=lane.direction, lanes=self.lanes
        )
        if self.recorder is not None:
            text = (
                "states {sent} sent ({sent_seen} seen), {received} received ({received_seen} seen)"
            )
            self.recorder.event(
                "tally", time_ns, frame, lane.direction, text.format(**evidence), evidence
            )

    def _clock(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        del frame
        self.declared.clock(event[1], lane.direction, time_ns, fresh=event[2])

    def _ordered(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        _, name, numbers, count = event
        lane.add("in_order_requested", count)
        space = lane.spaces[name]
        if numbers and isinstance(space, CarriedSpace):
            space.ordered(numbers, frame, time_ns)

    def _rate(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        _, per_second, taken = event
        lane.add("rate_requests", 1)
        for space in self.lanes[1 - lane.direction].space_list:
            if isinstance(space, CarrierSpace):
                space.requested_rate = per_second
        if self.recorder is not None:
            text = f"asks for {per_second} datagrams a second"
            self.recorder.event(
                "rate", time_ns, frame, lane.direction, text if taken else f"{text}; not obeyed",
                {"per_second": per_second, "taken": taken},
            )  # fmt: skip

    def _part(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        """Ignore an event for the assembler."""

    def _note(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        detail = event[2]
        # A note has either evidence or a text.
        evidence = detail if isinstance(detail, dict) else None
        message = detail if isinstance(detail, str) else ""
        self.findings.add(event[1], frame, time_ns, lane.direction, message, evidence)

    def datagrams_seen(self) -> int:
        """Return how many datagrams, or segments with data, of both directions were seen."""
        return self.lanes[0].datagrams + self.lanes[1].datagrams

    def learn(self, hints: Hints) -> None:
        """Apply what the decoder has learnt."""
        before = self.hints.dialects
        if self.forced:
            hints = Hints(before, hints.extra)
        if hints.dialects != before:
            for lane, dialect, old in zip(self.lanes, hints.dialects, before, strict=True):
                if dialect != old:
                    lane.adopt(self._policy_of(dialect))
        self.hints = hints

    def _resend_request(self, event: Event, lane: Lane, frame: i64, time_ns: i64) -> None:
        lane.add("resend_requests", 1)
        asked = self.lanes[1 - lane.direction]
        space = asked.spaces.get(str(event[1]))
        if space is not None:
            space.repeats.request(int(time_ns))
            # Something came, behind a gap: the acknowledgements stand still, but not the path.
            space.ack_stats.note_answered(asked.last_ns, frame)
        if self.recorder is not None:
            self.recorder.event(
                "resend_request", time_ns, frame, lane.direction, f"asks for {event[1]} again",
                {"space": event[1]},
            )  # fmt: skip

    # -- conclusions -------------------------------------------------------------------------------

    def judge(self) -> None:
        """Infer the vantage again from the evidence so far."""
        client, server = self.lanes[0], self.lanes[1]  # to unpack a list takes an iterator
        late, later, near = client.disorder(), server.disorder(), self.vantage.near
        signs = late or later or client.copied() or server.copied() or self.findings.misses
        if near[0] and near[1] and not (signs or client.passed() or server.passed()):
            return  # the quickest answers only get quicker, so both sides stay near
        of_client = server.evidence(late, client)
        if self.vantage.update(of_client, client.evidence(later, server)):
            self._spread_vantage()

    def place(self, placement: Placement) -> None:
        """Apply the conclusions of a first pass over the whole capture."""
        self.findings.misses = placement.misses_frames
        self.findings.copy_gaps, self.findings.gaps_known = placement.copy_gaps, True
        self.vantage.settle(placement.near)
        self._spread_vantage()
        self.finish_vantage()

    def _spread_vantage(self) -> None:
        near = self.vantage.near
        for lane in self.lanes:
            lane.set_vantage(near[lane.direction], near[1 - lane.direction])

    def finish_vantage(self) -> None:
        """Note that the vantage is final."""
        for lane in self.lanes:
            for space in lane.space_list:
                space.context.finish_vantage()

    def timeout_rules(self) -> tuple[TimeoutRule | None, TimeoutRule | None]:
        """Return the rules (of the client, of the server) in the current state."""
        policy = self.lanes[0].policy
        return policy.state_timeouts.get(self.machine.state, policy.timeouts)

    def release(self) -> None:
        """Drop all references that form cycles, so that no garbage collection is needed."""
        for lane in self.lanes:
            for space in lane.space_list:
                space.release()
        self.stream = self.silence.stream = None
        self.findings.directions = ()
        if self.recorder is not None:
            self.recorder.end()
        self.released = True


_HANDLERS: dict[int, Callable[[Connection, Event, Lane, int, int], None]] = {
    Ev.STATE: Connection._state,
    Ev.IDENTITY: Connection._identity,
    Ev.RESTART: Connection._restart,
    Ev.NOTE: Connection._note,
    Ev.RESEND_REQUEST: Connection._resend_request,
    _NUMBER: Connection._number,
    Ev.TALLY: Connection._tally,
    Ev.CLOCK: Connection._clock,
    Ev.PART: Connection._part,
    Ev.RATE: Connection._rate,
}
"""Handlers of the rarer events; outside the class, because a compiled class body has no methods."""
