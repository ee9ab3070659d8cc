"""Checks with the tracker that the target's answers follow the rules of the protocol.

The traffic of all links is tracked as if it had been captured. Only what the target sends is
judged, against what it was actually sent, mutants included.
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
from netdissect.pipeline.observer import Datagram
from netdissect.protocols import registry
from netdissect.protocols.base import Protocol

WAITING_LIMIT = 65_536
"""Maximum number of payloads that wait to be judged; beyond this, the oldest are dropped."""
_FRAMES_LIMIT = 1_000_000
"""Payloads after which the tracker starts over, to forget sessions of long ago."""
_CONNECTIONS_LIMIT = 1024
_NUMBERS_LIMIT = 65_536
"""Maximum number of sent numbers remembered per connection; beyond this, its acknowledgements are
not judged."""
_NUMBER_AT = {Ev.UNIT: 3, Ev.PLAIN_UNIT: 3, Ev.NUMBER: 2, Ev.NUMBERED: 3}
"""Event -> index of its number, which follows the name of the space."""
_RESENT = "resend-beyond-limit"
_UNSENT = "ack-of-unsent"
_RULES = {
    _UNSENT: "acknowledged a number that it was never sent",
    _RESENT: "sent a unit again more often than the protocol permits",
}
"""Findings that break the rules, whatever the target was sent."""


_SENT = frozenset({"original", "retransmission"})
"""Kinds of copies certainly made by their sender."""


class RulesMonitor(Monitor):
    """Tracks the traffic and returns a `rule` verdict for each kind of violation."""

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
        """Subscribe to the traffic of all links."""
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
        """Judge the traffic since the last call; return one violation per call."""
        while self._waiting and self._packets is not None:
            each = self._waiting.popleft()
            for octets in self._packets.of(each):
                self._frames += 1
                frame = (self._frames, each.time_ns, LINKTYPE_RAW, octets, len(octets))
                for packet in self._decapsulator.take([frame]):
                    self._pipeline.feed(packet)
            for _ in self._recorder.ready(self._pipeline.now_ns):
                # The timeline is not used and must not grow.
                continue
        if self._frames > _FRAMES_LIMIT:
            self._begin()
        if not self._found:
            return None
        code = next(iter(self._found))
        return Verdict("rule", self._found.pop(code), code)

    # --- called by the pipeline ---------------------------------------------------------------

    def reads_events(self, protocol: Protocol) -> bool:
        """Return True."""
        del protocol
        return True

    def seen(self, item: Datagram) -> None:
        """Judge one datagram, given what the tracker has found about it."""
        findings = {code for code, frame in self._findings if frame == item.frame}
        self._findings.clear()
        if item.connection is None:
            return
        number = item.connection.number
        if item.direction != Direction.S2C:
            self._note_sent(number, item.events)
            return
        if self._is_known(number, item.events):
            # The tracker sees an acknowledgement beyond the newest number, but a mutant that jumps
            # was sent.
            findings.discard(_UNSENT)
        for code in findings & _RULES.keys():
            self._found.setdefault(code, f"{_RULES[code]} ({code})")
        for record, copy in item.touched:
            sent = sum(each.kind in _SENT for each in record.copies)
            limit = self._attempts.get(record.space)
            if limit and sent > limit and copy.kind in _SENT:
                self._found.setdefault(_RESENT, f"{_RULES[_RESENT]}: {sent} of {limit} times")

    def _note_sent(self, connection: int, events: list[Event]) -> None:
        """Remember the numbers sent, even those that no sender would use. The target may read a
        message that we cannot read in full, and acknowledge a number that is not known here.
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
        """Return whether every acknowledged number was sent, or is no longer remembered."""
        sent = self._sent.get(connection)
        if not sent or len(sent) >= _NUMBERS_LIMIT:
            return True
        # Senders that have received nothing yet acknowledge 0.
        acks = [(event[1], event[2]) for event in events if event[0] == Ev.ACK and event[2]]
        return all(ack in sent for ack in acks)

    def other(self, packet: Packet) -> None:
        """Ignore a datagram of another protocol."""

    def finding(self, code: str, severity: Severity, frame: int | None) -> None:
        """Note a finding about the next datagram."""
        del severity
        self._findings.append((code, frame))
