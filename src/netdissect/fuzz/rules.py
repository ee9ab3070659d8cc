"""The tracker as a judge: what the target answers must keep the protocol's own rules.

Everything that went over the links is tracked as if it had been captured. Only what the target sent
is judged, against what it was really sent, mutants included.
"""

from __future__ import annotations

from collections import deque

from netdissect.flow import Decapsulator
from netdissect.fuzz.monitors import Monitor, Verdict, Watched
from netdissect.fuzz.pcap import LINKTYPE_RAW, Packets
from netdissect.fuzz.target import Traffic
from netdissect.model.annotations import Severity
from netdissect.model.events import Ev, Event
from netdissect.model.packets import Direction, Packet
from netdissect.pipeline import DecodeAs, Options, Pipeline, Recorder
from netdissect.pipeline.observer import Seen
from netdissect.protocols import registry

__all__ = ["RulesMonitor"]

WAITING_LIMIT = 65_536
"""Payloads that wait to be judged; of more, the oldest are not."""
_FRAMES_LIMIT = 1_000_000
"""Payloads after which the tracker begins anew: what it knows of sessions of long ago is let go."""
_CONNECTIONS_LIMIT = 1024
_NUMBERS_LIMIT = 65_536
"""Numbers of one connection that are remembered; beyond, its acknowledgements are not judged."""
_NUMBER_AT = {Ev.UNIT: 3, Ev.PLAIN_UNIT: 3, Ev.NUMBER: 2, Ev.NUMBERED: 3}
"""Event -> where its number stands, behind the name of its space."""
_RESENT = "resend-beyond-limit"
_UNSENT = "ack-of-unsent"
_RULES = {
    _UNSENT: "acknowledged a number that it was never sent",
    _RESENT: "sent a unit again more often than the protocol permits",
}
"""What breaks the rules, whatever the target was sent."""


_SENT = frozenset({"original", "retransmission"})
"""Kinds of copies that their sender surely made."""


class RulesMonitor(Monitor):
    """Tracks the traffic; a `rule` verdict for each kind of breach."""

    def __init__(self) -> None:
        self._waiting: deque[Traffic] = deque(maxlen=WAITING_LIMIT)
        self._found: dict[str, str] = {}
        self._findings: list[tuple[str, int | None]] = []
        self._recorder = Recorder()
        self._packets: Packets | None = None
        self._options: Options | None = None
        self._attempts: dict[str, int] = {}
        self._sent: dict[int, set[tuple[str, int]] | None] = {}
        self._frames = 0

    def attach(self, watch: Watched) -> None:
        """Listen to the links."""
        target, driver = watch.target, watch.driver
        self._packets = Packets(target, driver.transport)
        protocol = registry.get(driver.protocol)
        rule = DecodeAs(driver.transport, target.port, protocol, watch.dialect)
        self._options = Options(decode_as=(rule,))
        self._attempts = {
            space.name: space.resend.attempts
            for space in protocol.policy(watch.dialect).spaces
            if space.resend is not None and space.resend.attempts is not None
        }
        watch.journal.taps.append(self._waiting.append)
        self._begin()

    def _begin(self) -> None:
        self._recorder = Recorder()
        self._pipeline = Pipeline(self._options, recorder=self._recorder, observer=self)
        self._decapsulator = Decapsulator()
        self._frames = 0
        self._sent.clear()

    def check(self) -> Verdict | None:
        """Judge what came since the last time; return a breach, one a call."""
        while self._waiting and self._packets is not None:
            each = self._waiting.popleft()
            for octets in self._packets.of(each):
                self._frames += 1
                frame = (self._frames, each.time_ns, LINKTYPE_RAW, octets, len(octets))
                for packet in self._decapsulator.take([frame]):
                    self._pipeline.feed(packet)
            for _ in self._recorder.ready(self._pipeline.now_ns):
                # Nobody asks for the timeline: it must not grow.
                continue
        if self._frames > _FRAMES_LIMIT:
            self._begin()
        if not self._found:
            return None
        code = next(iter(self._found))
        return Verdict("rule", self._found.pop(code), code)

    # --- called by the pipeline ---------------------------------------------------------------

    def seen(self, item: Seen) -> None:
        """Take one datagram with what the tracker has found about it."""
        findings = {code for code, frame in self._findings if frame == item.frame}
        self._findings.clear()
        if item.connection is None:
            return
        number = item.connection.number
        if item.direction != Direction.S2C:
            self._note_sent(number, item.events)
            return
        if self._is_known(number, item.events):
            # Ahead of what was sent as its numbers go on; but mutants jump, and this one was sent.
            findings.discard(_UNSENT)
        for code in findings & _RULES.keys():
            self._found.setdefault(code, f"{_RULES[code]} ({code})")
        for record, copy in item.touched:
            sent = sum(each.kind in _SENT for each in record.copies)
            limit = self._attempts.get(record.space)
            if limit and sent > limit and copy.kind in _SENT:
                self._found.setdefault(_RESENT, f"{_RULES[_RESENT]}: {sent} of {limit} times")

    def _note_sent(self, connection: int, events: list[Event]) -> None:
        """Remember the numbers that went out, also those that no sender would use. What cannot be
        read whole may be read by the target, and then it acknowledges a number that nobody knows.
        """
        sent = self._sent.setdefault(connection, set())
        for event in events:
            at = _NUMBER_AT.get(event[0])
            if at is not None and sent is not None and len(sent) < _NUMBERS_LIMIT:
                sent.add((event[at - 1], event[at]))
        if not events or any(event[0] == Ev.NOTE for event in events):
            self._sent[connection] = None
        while len(self._sent) > _CONNECTIONS_LIMIT:
            del self._sent[next(iter(self._sent))]

    def _is_known(self, connection: int, events: list[Event]) -> bool:
        """Return whether all that is acknowledged was sent, or nobody knows any more."""
        sent = self._sent.get(connection)
        if not sent or len(sent) >= _NUMBERS_LIMIT:
            return True
        # 0 is what senders say that have received nothing yet.
        acks = [(event[1], event[2]) for event in events if event[0] == Ev.ACK and event[2]]
        return all(ack in sent for ack in acks)

    def other(self, packet: Packet) -> None:
        """Take a datagram that is not the protocol's."""

    def finding(self, code: str, severity: Severity, frame: int | None) -> None:
        """Take a finding about the datagram that comes next."""
        del severity
        self._findings.append((code, frame))
