"""One connection: takes the events of its datagrams, concludes, and reports. Knows no protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.model.policy import Exhausted, Policy, TimeoutRule
from netdissect.model.reports import ConnectionReport, TimeoutVerdict
from netdissect.track.declared import Declared
from netdissect.track.findings import Findings
from netdissect.track.lane import Lane
from netdissect.track.machine import StateRunner
from netdissect.track.recorder import Recorder
from netdissect.track.timeouts import announced, verdict
from netdissect.track.vantage import MIN_ANSWERS, Sight, Vantage

__all__ = ["MAX_IDENTITY", "Connection"]

MAX_IDENTITY = 64
"""Identity facts kept per connection."""
REPEAT_NS = 1_000_000
"""An equal datagram within this time of the one before may be a second capture of it."""
MIN_REPEATS = 8
"""So many repeats at least before a capture is called doubled."""
MIN_PATIENCE_NS = 100_000_000
"""An acknowledgement is waited for at least so long before its absence means anything."""

_MESSAGE, _UNIT, _ACK, _NACK = int(Ev.MESSAGE), int(Ev.UNIT), int(Ev.ACK), int(Ev.NACK)
_PLAIN_UNIT, _NUMBER, _NUMBERED = int(Ev.PLAIN_UNIT), int(Ev.NUMBER), int(Ev.NUMBERED)
_SIDES = ("client", "server")


class Connection:
    """State of one connection; `datagram` takes what was captured, `finish` reports."""

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
        recorder: Recorder | None = None,
        explain: tuple[str, ...] = (),
        protocol_name: str = "",
    ) -> None:
        self.number = number
        self.protocol = protocol
        self.transport = transport
        self.hints = hints
        """What the decoder has learnt; replaced by HINTS events."""
        self.endpoints = endpoints
        """(client, server) as "address:port"."""
        self.roles_from = roles_from
        self.findings = findings
        self.recorder = recorder
        self.explain = explain
        self.evicted = False
        """Set where the connection had to leave the table before its end."""
        self.mid_stream = False
        """Set by the pipeline where the transport shows that the start is missing."""
        self._policy_of = policy_of
        policies = [policy_of(dialect) for dialect in hints.dialects]
        self.lanes = [Lane(policies[d], d, findings, recorder) for d in (0, 1)]
        self.machine = StateRunner(policies[0].machine or policies[1].machine)
        self.vantage = Vantage()
        self.declared = Declared()
        self.announced: dict[int, TimeoutVerdict] = {}
        """Side -> the timeout that it announced on the wire."""
        self.identity: dict[str, Any] = {}
        self.started = False
        """True where the first datagram is one that begins a connection."""
        self.first_frame = self.last_frame = 0
        self.first_ns = self.last_ns = 0
        self.unreachable = 0
        """ICMP port-unreachable errors that quote this connection."""
        self._handlers: dict[int, Callable[[Event, Lane, int, int], None]] = {
            int(Ev.PROBE): self._probe,
            int(Ev.REPLY): self._reply,
            int(Ev.RTT): self._rtt,
            int(Ev.STATE): self._state,
            int(Ev.IDENTITY): self._identity,
            int(Ev.COUNTER): self._counter,
            int(Ev.RESTART): self._restart,
            int(Ev.NOTE): self._note,
            int(Ev.HINTS): self._hints,
            int(Ev.RESEND_REQUEST): self._resend_request,
            _PLAIN_UNIT: self._plain_unit,
            _NUMBER: self._number,
            int(Ev.TALLY): self._tally,
            int(Ev.CLOCK): self._clock,
        }
        for lane in self.lanes:
            for space in lane.spaces.values():
                space.on_sight = self._judge
                space.in_stream = transport == "tcp"

    # -- input -------------------------------------------------------------------------------------

    def datagram(
        self, direction: int, frame: int, time_ns: int, payload: bytes, events: Sequence[Event]
    ) -> None:
        """Take one datagram, or one framed message of a stream, with its events."""
        lane = self.lanes[direction]
        if lane.silent:
            lane.silent = False
            self._first(direction, frame, time_ns, events)
        elif payload == lane.last_octets and time_ns - lane.last_ns < REPEAT_NS:
            lane.repeats += 1
        lane.datagrams += 1
        lane.octets += len(payload)
        lane.last_ns = self.last_ns = time_ns
        lane.last_frame = self.last_frame = frame
        lane.last_octets = payload
        for event in events:
            kind = event[0]
            if kind == _UNIT:
                _, type_, space, wire_seq, labelled, content = event
                if type_ is not None:
                    cell = lane.messages.get(type_)
                    if cell is None:
                        lane.count(type_, time_ns, frame)
                    else:
                        cell[0] += 1
                        cell[1] = time_ns
                        cell[2] = frame
                lane.spaces[space].unit(wire_seq, labelled, content, type_, frame, time_ns)
            elif kind == _ACK:
                self.lanes[1 - direction].spaces[event[1]].ack(event[2], event[3], frame, time_ns)
            elif kind == _MESSAGE:
                cell = lane.messages.get(event[1])
                if cell is None:
                    lane.count(event[1], time_ns, frame)
                else:
                    cell[0] += 1
                    cell[1] = time_ns
                    cell[2] = frame
            elif kind == _NUMBERED:
                _, type_, space, wire_seq = event
                cell = lane.messages.get(type_)
                if cell is None:
                    lane.count(type_, time_ns, frame)
                else:
                    cell[0] += 1
                    cell[1] = time_ns
                    cell[2] = frame
                lane.spaces[space].number(wire_seq, frame, time_ns)
            elif kind == _NACK:
                self.lanes[1 - direction].spaces[event[1]].nack(event[2], event[3], frame, time_ns)
            else:
                self._handlers[kind](event, lane, frame, time_ns)

    def further(
        self, direction: int, frame: int, time_ns: int, events: Sequence[Event]
    ) -> None:
        """Take events that belong to a datagram already counted (assembler, TCP segments)."""
        lane = self.lanes[direction]
        octets, datagrams = lane.octets, lane.datagrams
        self.datagram(direction, frame, time_ns, b"", events)
        lane.octets, lane.datagrams = octets, datagrams

    def segment(self, direction: int, frame: int, time_ns: int, octets: int) -> None:
        """Count one TCP segment with data; its messages come through `further`."""
        lane = self.lanes[direction]
        if not self.first_frame:
            self.first_frame, self.first_ns = frame, time_ns
        lane.datagrams += 1
        lane.octets += octets
        lane.last_ns = self.last_ns = time_ns
        lane.last_frame = self.last_frame = frame

    def transport_end(self, name: str, direction: int, frame: int, time_ns: int) -> None:
        """Take the end of the transport: input `fin` or `reset` of the state machine."""
        self.last_ns, self.last_frame = time_ns, frame
        self._step(name, None, direction, frame, time_ns)

    def icmp_unreachable(self, direction: int, frame: int, time_ns: int) -> None:
        """Take an ICMP error that quotes a datagram of `direction`."""
        self.unreachable += 1
        self.last_frame = max(self.last_frame, frame)
        self._step("unreachable", None, direction, frame, time_ns)
        self.findings.add(
            "port-unreachable", frame, time_ns, direction,
            f"nobody listens at {self.endpoints[1 - direction]}",
        )  # fmt: skip

    def _first(self, direction: int, frame: int, time_ns: int, events: Sequence[Event]) -> None:
        """Take the first datagram of a direction."""
        other = self.lanes[1 - direction]
        for space in other.spaces.values():
            space.peer_seen = True
        if not other.silent:
            return
        if not self.first_frame:
            self.first_frame, self.first_ns = frame, time_ns
        machine = self.machine.machine
        begins = machine.begins if machine else frozenset()
        self.started = any(event[0] == Ev.STATE and event[1] in begins for event in events)
        for lane in self.lanes:
            for space in lane.spaces.values():
                space.started = self.started

    # -- events ------------------------------------------------------------------------------------

    def _plain_unit(self, event: Event, lane: Lane, frame: int, time_ns: int) -> None:
        _, type_, space, wire_seq, content = event
        if type_ is not None:
            lane.count(type_, time_ns, frame)
        lane.spaces[space].plain_unit(wire_seq, content, type_, frame, time_ns)

    def _number(self, event: Event, lane: Lane, frame: int, time_ns: int) -> None:
        lane.spaces[event[1]].number(event[2], frame, time_ns)

    def _probe(self, event: Event, lane: Lane, frame: int, time_ns: int) -> None:
        if lane.probes[event[1]].ask(event[2], time_ns) and self.recorder is not None:
            self.recorder.event(
                "probe", time_ns, frame, lane.direction, f"{event[1]} {event[2]}",
                {"kind": event[1], "id": event[2]},
            )  # fmt: skip

    def _reply(self, event: Event, lane: Lane, frame: int, time_ns: int) -> None:
        asker = self.lanes[1 - lane.direction]
        track = asker.probes[event[1]]
        lowest = track.rtt.lowest
        sample = track.answer(event[2], time_ns)
        if sample is None:
            return
        if self.recorder is not None:
            self.recorder.event(
                "probe", time_ns, frame, lane.direction, f"{event[1]} {event[2]} answered",
                {"kind": event[1], "id": event[2], "rtt_ms": sample / 1e6},
            )  # fmt: skip
        if self.vantage.near[asker.direction] is not False:
            asker.measured(max(1.0, sample / 1e6))
        if sample < lowest or track.rtt.samples <= MIN_ANSWERS:
            self._judge()

    def _rtt(self, event: Event, lane: Lane, frame: int, time_ns: int) -> None:
        del frame, time_ns
        value = float(event[1])
        self.lanes[1 - lane.direction].measured(value)
        if self.vantage.near[lane.direction] is False:
            # Its own measurement happened out of sight; this is the first that the capture sees.
            lane.measured(value)

    def _state(self, event: Event, lane: Lane, frame: int, time_ns: int) -> None:
        name = event[1]
        side = lane.direction
        rule = self._timeout_rules()[side]
        if rule is not None and rule.announces == name and not self.machine.over:
            found = announced(side, rule, self.lanes[1 - side], time_ns)
            if found is not None:
                self.announced[side] = found
                name = "timeout"
        self._step(name, event[2], side, frame, time_ns)

    def _step(
        self, name: str, detail: str | None, direction: int, frame: int, time_ns: int
    ) -> None:
        before = self.machine.state
        target = self.machine.step(name, detail, direction, frame)
        if target is not None and self.recorder is not None:
            self.recorder.event(
                "state", time_ns, frame, direction, f"{before} -> {target}",
                {"from": before, "to": target, "input": name, "detail": detail},
            )  # fmt: skip

    def _identity(self, event: Event, lane: Lane, frame: int, time_ns: int) -> None:
        del lane, frame, time_ns
        if event[1] in self.identity or len(self.identity) < MAX_IDENTITY:
            self.identity[event[1]] = event[2]

    def _counter(self, event: Event, lane: Lane, frame: int, time_ns: int) -> None:
        del frame, time_ns
        lane.add(event[1], event[2])

    def _restart(self, event: Event, lane: Lane, frame: int, time_ns: int) -> None:
        space = lane.spaces.get(event[1])
        if space is None:  # "*" and "?" are the pipeline's
            return
        space.restart()
        if self.recorder is not None:
            self.recorder.event(
                "reset", time_ns, frame, lane.direction, f"{event[1]} numbers restart",
                {"space": event[1]},
            )  # fmt: skip

    def _tally(self, event: Event, lane: Lane, frame: int, time_ns: int) -> None:
        _, name, sent, received, taken = event
        evidence = self.declared.tally(
            name, sent, received, taken=taken, direction=lane.direction, lanes=self.lanes
        )
        if self.recorder is not None:
            text = "states {sent} sent ({sent_seen} seen), {received} received ({received_seen} seen)"
            self.recorder.event(
                "tally", time_ns, frame, lane.direction, text.format(**evidence), evidence
            )

    def _clock(self, event: Event, lane: Lane, frame: int, time_ns: int) -> None:
        del frame
        self.declared.clock(event[1], lane.direction, time_ns)

    def _note(self, event: Event, lane: Lane, frame: int, time_ns: int) -> None:
        detail = event[2]
        evidence = detail if isinstance(detail, dict) else None
        message = detail if isinstance(detail, str) else ""
        self.findings.add(event[1], frame, time_ns, lane.direction, message, evidence)

    def _hints(self, event: Event, lane: Lane, frame: int, time_ns: int) -> None:
        del lane, frame, time_ns
        hints: Hints = event[1]
        if hints.dialects != self.hints.dialects:
            for lane, dialect in zip(self.lanes, hints.dialects, strict=True):
                lane.adopt(self._policy_of(dialect))
        self.hints = hints

    def _resend_request(self, event: Event, lane: Lane, frame: int, time_ns: int) -> None:
        lane.add("resend_requests", 1)
        if self.recorder is not None:
            self.recorder.event(
                "resend_request", time_ns, frame, lane.direction, f"asks for {event[1]} again",
                {"space": event[1]},
            )  # fmt: skip

    # -- conclusions -------------------------------------------------------------------------------

    def _judge(self) -> None:
        """Conclude anew where the capture was taken."""
        client, server = self.lanes
        sights = (
            Sight(*server.answers(), client.disorder()),
            Sight(*client.answers(), server.disorder()),
        )
        if not self.vantage.update(*sights):
            return
        for lane in self.lanes:
            for space in lane.spaces.values():
                near = self.vantage.near
                space.place(near[lane.direction], near[1 - lane.direction])

    def finish(self, end_ns: int) -> ConnectionReport:
        """Conclude and report; `end_ns` is the time up to which the capture shows this flow."""
        patience = int(max(self._slowest_ms() * 1e6, MIN_PATIENCE_NS))
        spaces = [
            space.finish(end_ns, patience) for lane in self.lanes for space in lane.spaces.values()
        ]
        self._silent_close(end_ns)
        timeouts = self._timeouts(end_ns)
        state, name = self._outcome(timeouts)
        self._last_findings()
        first, second = self.lanes
        return ConnectionReport(
            connection=self.number,
            protocol=self.protocol,
            dialects=self.hints.dialects,
            transport=self.transport,
            client=self.endpoints[0],
            server=self.endpoints[1],
            roles_from=self.roles_from,
            first_frame=self.first_frame,
            last_frame=self.last_frame,
            first_time_ns=self.first_ns,
            last_time_ns=self.last_ns,
            vantage=self.vantage.word,
            vantage_basis=self.vantage.basis,
            handshake=self.machine.handshake,
            reject_reason=self.machine.reject_reason,
            state=state,
            state_name=name,
            close=self.machine.close,
            identity=self.identity,
            datagrams=(first.datagrams, second.datagrams),
            octets=(first.octets, second.octets),
            messages=(_counts(first), _counts(second)),
            spaces=[report for report in spaces if report.last_seq is not None],
            probes=[
                track.report()
                for lane in self.lanes
                for track in lane.probes.values()
                if track.sent
            ],
            timeouts=timeouts,
            counters=(first.counters, second.counters),
            anomalies=self._anomaly_counts(),
            complete=self._complete(),
            limits_hit=self._limits(),
            explain=self.explain,
            clocks=(self.declared.clocks[0].summary(), self.declared.clocks[1].summary()),
        )

    def _slowest_ms(self) -> float:
        """Return the longest usual round trip, for how long an acknowledgement may take."""
        slow = [
            track.percentile(0.95) or 0.0
            for lane in self.lanes
            for track in lane.round_trips()
        ]
        return max(slow, default=0.0)

    def _silent_close(self, end_ns: int) -> None:
        """Conclude that a side closed the connection by a rule that sends nothing."""
        if self.machine.over:
            return
        for lane in self.lanes:
            for space in lane.spaces.values():
                moment, reason = _closing_rule(space)
                if moment is None or lane.last_ns > moment or end_ns <= moment:
                    continue
                self.machine.close = {
                    "by": _SIDES[lane.direction], "reason": reason, "frame": lane.last_frame,
                }  # fmt: skip
                self.findings.add(
                    "silent-close", lane.last_frame, moment, lane.direction,
                    f"{_SIDES[lane.direction]} closed without a word: {reason}",
                )  # fmt: skip
                return

    def _timeout_rules(self) -> tuple[TimeoutRule | None, TimeoutRule | None]:
        policy = self.lanes[0].policy
        return policy.state_timeouts.get(self.machine.state, policy.timeouts)

    def _timeouts(self, end_ns: int) -> list[TimeoutVerdict]:
        verdicts = []
        for side, rule in enumerate(self._timeout_rules()):
            if rule is None:
                continue
            found = self.announced.get(side) or verdict(
                side, rule, heard=self.lanes[1 - side], own=self.lanes[side], end_ns=end_ns,
                near=self.vantage.near[side], over=self.machine.over or self.machine.close is not None,
            )  # fmt: skip
            if found is not None:
                verdicts.append(found)
                self._timeout_event(found, side)
        return verdicts

    def _timeout_event(self, found: TimeoutVerdict, side: int) -> None:
        if not found.fired:
            return
        self.findings.add(
            "timeout", found.last_heard_frame, found.due_ns, side,
            f"{found.side} heard nothing any more and gave its peer up",
            {"last_heard_ns": found.last_heard_ns, "due_ns": found.due_ns},
        )  # fmt: skip
        if self.recorder is not None and found.due_ns is not None:
            self.recorder.connection = self.number
            self.recorder.event(
                "timeout", found.due_ns, None, side, f"{found.side} gives its peer up",
                {"last_heard_ns": found.last_heard_ns, "latest_ns": found.latest_ns},
            )  # fmt: skip

    def _outcome(self, timeouts: list[TimeoutVerdict]) -> tuple[str, str]:
        """Return (contract word, the protocol's own name) of the final state."""
        word = self.machine.word
        if self.machine.close is not None and not self.machine.over:
            return "closed", self.machine.state
        if word == "open" and any(verdict.fired for verdict in timeouts):
            return "timed_out", self.machine.state
        return word, self.machine.state

    def _last_findings(self) -> None:
        for lane in self.lanes:
            bursts = any(space.rule.burst > 1 for space in lane.spaces.values())
            if not bursts and lane.repeats >= max(MIN_REPEATS, 0.4 * lane.datagrams):
                self.findings.add("capture-duplicates", None, None, lane.direction)
            for space in lane.spaces.values():
                first = space.rule.first_seq
                if self.started and first is not None and space.skipped_start(first):
                    self.findings.add(
                        "first-number-skipped", None, None, lane.direction,
                        f"{space.rule.name} starts at {space.first}; {first} was never sent",
                    )  # fmt: skip
        for name in self._limits():
            self.findings.add("limit-hit", None, None, None, f"bound {name} was reached")

    def _limits(self) -> dict[str, int]:
        hit: dict[str, int] = {}
        for lane in self.lanes:
            for space in lane.spaces.values():
                for name, count in space.limits.items():
                    hit[name] = hit.get(name, 0) + count
        return hit

    def _anomaly_counts(self) -> dict[str, int]:
        chat, note, warn, error = self.findings.by_severity
        return {"chat": chat, "note": note, "warn": warn, "error": error}

    def _complete(self) -> bool:
        both = all(lane.datagrams for lane in self.lanes) or self.unreachable > 0
        return self.started and both and not self.evicted and not self.mid_stream


def _counts(lane: Lane) -> dict[str, int]:
    return {name: cell[0] for name, cell in sorted(lane.messages.items())}


def _closing_rule(space: Any) -> tuple[int | None, str]:
    """Return (moment, reason) at which the sender of a space closed by its own rules."""
    resend = space.rule.resend
    if resend is not None and resend.exhausted is Exhausted.CLOSE and space.gave_up_ns is not None:
        return space.gave_up_ns, resend.exhausted_reason
    quality = space.quality
    if quality is not None and quality.broken_ns is not None:
        return quality.broken_ns, quality.rule.reason
    return None, ""
