"""One sequence space in one direction, from the first copy of a unit to the report.

`Space` receives units and acknowledgements, and delegates to its parts: `numbers` (which numbers
were used), `store` (the units under them), `acks` (which units an acknowledgement names),
`ack_stats` (how quickly they were acknowledged), `repeats` (who made further copies), `attempts`
(units given up) and `strays` (numbers far from all others).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import AckRule, SpaceRule
from netdissect.model.reports import EndHint, SpaceReport, SpaceSnapshot
from netdissect.track.acks import Acks
from netdissect.track.ackstats import AckStats
from netdissect.track.attempts import Attempts
from netdissect.track.context import Heard, SpaceContext
from netdissect.track.findings import Findings
from netdissect.track.numbers import LEAST_BURST, Numbers
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.repeats import Repeats
from netdissect.track.strays import Stray, StrayedUnits, Strays
from netdissect.track.totalling import space_recorder
from netdissect.track.unit import Carried, Unit
from netdissect.track.unitstore import CONTENT, MAX_OUTSTANDING, UnitStore
from netdissect.track.vantage import MIN_DISORDER

_MS: Final = 1_000_000
_WHERE: Final = {True: "sender", False: "receiver", None: "unknown"}


class Space(StrayedUnits):
    """The units of one space in one direction."""

    __slots__ = (
        "_keeps", "_other", "ack_stats", "acks", "attempts", "carrier", "context", "current",
        "direction", "forgotten", "held_ns", "numbers", "on_evidence", "peer", "peer_seen",
        "recorder", "renewed", "repeats", "store", "strays", "units",
    )  # fmt: skip

    def __init__(
        self, rule: SpaceRule, direction: int, findings: Findings,
        recorder: ConnectionRecorder | None,
    ) -> None:  # fmt: skip
        self.direction = direction
        self.recorder = None if recorder is None else space_recorder(recorder, direction, rule)
        self.context = SpaceContext(rule, direction, findings)
        self.numbers = Numbers(self.context)
        self.store = UnitStore()
        self.ack_stats = AckStats(self.context)
        self.acks = Acks(self.context, self.numbers, self.store, self.ack_stats)
        self.repeats = Repeats(self.context, self.numbers, self.store, self.recorder)
        self.attempts = Attempts(rule.resend)
        self.strays = Strays(self.context, self.numbers, self.store, self.recorder)
        self.units: i64 = 0
        self.forgotten = 0
        """Copies of numbers that are not remembered: first copy or further one is unknown."""
        self.carrier: Space | None = None
        """The space whose units carry those of this one."""
        self.place, self.members = 0, ()
        self.current: Unit | None = None
        """In a carrier, the unit of the current datagram."""
        self.peer: Any = None
        """`Lane` of the other direction; None = unknown."""
        self.peer_seen = False
        """Whether the capture has a datagram of the other direction."""
        self.on_evidence: Callable[[], None] | None = None
        """Called when there is new evidence of the vantage."""
        self.renewed: EndHint | None = None
        """Where its sender first showed that it had forgotten the connection."""
        self._other: tuple[int, int] | None = None
        """(number, frame) of the newest copy whose content differs from the copy before it."""
        self.obey(rule)

    def obey(self, rule: SpaceRule) -> None:
        """Apply the rules of a dialect, now that it is known."""
        self.context.rule = rule
        self.numbers.obey(rule)
        self.store.settled.limit = rule.memory
        self.acks.rule = rule.ack
        self.repeats.obey(rule)
        self.attempts.obey(rule.resend)
        self.ack_stats.obey(rule.quality)
        if self.recorder is not None:
            self.recorder.retired.resize(rule.memory)
        self._keeps = rule.ack is not AckRule.NONE
        self.held_ns = int(rule.ack_held_ms * _MS)
        """How long its receiver holds acknowledgements back at least, in ns."""
        self.context.retime(None)

    def doze(self) -> None:
        """Take less memory until the next unit."""
        self.store.doze()
        if self.recorder is not None:
            self.recorder.doze()

    @property
    def rule(self) -> SpaceRule:
        """Return the rules of the space."""
        return self.context.rule

    # -- numbers and units -------------------------------------------------------------------------

    def unit(  # noqa: C901, PLR0912, PLR0915 - hot path: calls would cost more than what they do
        self, wire_seq: i64, labelled: bool | None, content: Any, type_: str | None,  # noqa: FBT001 - as in the event
        frame: i64, time_ns: i64,
    ) -> None:  # fmt: skip
        """Process one copy of a unit that asks for an acknowledgement."""
        numbers = self.numbers
        last = numbers.newest
        again = False
        if last == ABSENT:
            last = numbers.begin(wire_seq)
            again = self.context.misses_first
        ahead = (wire_seq - last) & numbers.mask
        if ahead != 1 and self.strays.jump is not None:
            last = self.strays.check_jump(self, wire_seq)
            ahead = (wire_seq - last) & numbers.mask
        mark: i64 = hash(content)
        if ahead == 1:
            seq: i64 = last + 1
            numbers.newest = seq
            if self.repeats.counted is not None and self.repeats.counted.copies:
                self.repeats.counted.judge(0, seq, time_ns)
        else:
            if numbers.is_far(ahead, last, self.repeats.pending_copies()):
                if self._take_far(wire_seq, ahead, labelled, mark, type_, frame, time_ns):
                    return
                last = numbers.newest_or_zero()
                ahead = (wire_seq - last) & numbers.mask
            if 0 < ahead <= numbers.half:
                seq = last + ahead
                self._advance(last, seq, frame, time_ns)
            else:
                seq = last + ahead - (numbers.modulus if ahead else 0)
                if self._is_restart(seq, labelled, mark, frame, time_ns):
                    seq = numbers.begin(wire_seq) + 1
                    numbers.newest = seq
                elif self._take_older(seq, labelled, mark, type_, frame, time_ns):
                    return
                again = self.context.misses_first
            again = again or self.strays.may_have(wire_seq & numbers.mask, time_ns)
        self.units += 1
        record = None
        if self.recorder is not None:
            number = wire_seq & numbers.mask
            record = self.recorder.first(self.context, seq, number, type_, frame, time_ns)
        unit = Unit(time_ns, mark, time_ns + self.context.delay_ns, frame, record)
        # While the peer was not heard, an acknowledgement may answer a copy from before the
        # capture.
        unheard = not self.peer_seen and self.units > 1
        if unheard or labelled or (again and labelled is None):
            unit.again = True
        self.current = unit
        if self._keeps:
            outstanding = self.store.outstanding
            outstanding.add(seq, unit)
            # This walks all outstanding units, so it runs for one unit in 256 only.
            if not self.units & 255 or outstanding.count > MAX_OUTSTANDING:
                self._settle_overdue(time_ns)
        else:
            self.store.settle(seq, unit)
        if self.carrier is not None:
            self._load(Carried.of(self.place, seq))

    def plain_unit(
        self, wire_seq: int, content: Any, type_: str | None, frame: i64, time_ns: i64
    ) -> None:
        """Process one copy of a unit that is never acknowledged."""
        before = self.units
        self.unit(wire_seq, None, content, type_, frame, time_ns)
        if self.units == before:
            return
        stray = self.strays.newest
        if stray is not None and stray.unit is self.current:
            stray.plain = True
        self.store.settle_newest(self.current)

    def number(self, wire_seq: i64, frame: i64, time_ns: i64) -> None:
        """Process a number used by something that is not a unit."""
        numbers = self.numbers
        last = numbers.begin(wire_seq) if numbers.newest == ABSENT else numbers.newest
        ahead = (wire_seq - last) & numbers.mask
        if ahead != 1 and self.strays.jump is not None:
            last = self.strays.check_jump(self, wire_seq)
            ahead = (wire_seq - last) & numbers.mask
        if ahead == 1 and not self.repeats.pending_copies():
            numbers.use_otherwise(last + 1, time_ns)
            return
        if numbers.is_far(ahead, last, self.repeats.pending_copies()):
            if self._take_far(wire_seq, ahead, None, None, None, frame, time_ns):
                return
            last = numbers.newest_or_zero()
            ahead = (wire_seq - last) & numbers.mask
        if 0 < ahead <= numbers.half:
            self._advance(last, last + ahead, frame, time_ns)
            numbers.use_otherwise(last + ahead, time_ns)
            return
        seq = int(last + ahead - (numbers.modulus if ahead else 0))
        if seq in numbers.missing:
            self._arrived_late(seq, time_ns)
            numbers.skipped += 1
        elif seq < numbers.first:
            numbers.extend_back(seq)
            numbers.skipped += 1
        elif self.repeats.counted is not None:
            self.repeats.counted.note_network_copy(numbers.since_used(seq, time_ns))
        numbers.used_again(seq, time_ns)

    def _advance(self, last: i64, seq: i64, frame: i64, time_ns: i64) -> None:
        """Process a newer number; the numbers between it and `last` are missing."""
        numbers = self.numbers
        numbers.newest = seq
        missing = seq - last - 1
        lost = missing - self.repeats.judge_by(seq, missing, time_ns)
        if seq == last + 1 or not numbers.consecutive:
            return
        numbers.leap(last, seq, time_ns)
        if lost >= LEAST_BURST:
            numbers.add_burst(last, seq, lost, self._arrival_ns(last, time_ns), frame, time_ns)
        if self.recorder is not None:
            self.recorder.gap(self.context, last + 1, seq - 1, frame, time_ns)

    def _arrival_ns(self, last: int, time_ns: i64) -> int:
        """Return when `last`, the newest number so far, came; `time_ns` if that is forgotten."""
        return int(self.store.arrival_ns(last, self.numbers.other_ns_of(last, time_ns)))

    def _arrived_late(self, seq: int, time_ns: i64) -> None:
        """Process the late arrival of a skipped number."""
        self.numbers.arrived_late(seq)
        if self.strays.jump is not None:
            self.strays.jump.missing.discard(seq)
        if self.repeats.counted is not None:
            self.repeats.counted.arrived_late(seq, time_ns)
        if self.recorder is not None:
            self.recorder.arrived_late(seq)

    # -- strays ------------------------------------------------------------------------------------

    def _take_far(
        self, wire_seq: i64, ahead: i64, labelled: bool | None, mark: int | None,  # noqa: FBT001 - as in `unit`
        type_: str | None, frame: i64, time_ns: i64,
    ) -> bool:  # fmt: skip
        """Process a number far from all before; return False if it makes the strays before it and
        itself numbers like all others. `mark` is None if something that is not a unit uses it.
        """
        numbers, strays = self.numbers, self.strays
        last = numbers.newest_or_zero()
        wire_seq &= numbers.mask
        step, before = strays.step(wire_seq), strays.newest
        if step == 0 and before is not None:
            if before.unit is not None and mark is not None:
                self._copy_of_outstanding(
                    before.seq, before.unit, labelled, mark, type_, frame, time_ns
                )
            return True
        if step is not None and strays.accepts(step):
            strays.accept(self, step)
            return False
        seq = last + (ahead if ahead <= numbers.half else ahead - numbers.modulus)
        if step is None or step < 0:
            strays.report(wire_seq, seq, frame, time_ns)
        unit = None if mark is None else self._add_isolated(seq, mark, type_, frame, time_ns)
        strays.add(Stray(wire_seq, seq, last, unit, frame, time_ns), step)
        return True

    def placed(self) -> int:
        """Return how many numbers were used so far, including strays of units."""
        return self.units + self.numbers.skipped

    def jump(self, last: int, seq: int, frame: i64, time_ns: i64) -> None:
        """Process a newer number `seq` after `last`."""
        self._advance(last, seq, frame, time_ns)

    def unsent(self, base: int, frame: i64, time_ns: i64) -> None:
        """Process the acknowledgement of a stray, or of a number that was never seen."""
        stray = self.strays.find(base & self.numbers.mask)
        if stray is None:
            self.acks.report_unsent(base, frame, time_ns)
        elif stray.unit is not None and not stray.acked:
            stray.acked = True
            self.ack_stats.acked += 1
            if self.recorder is not None:
                self.recorder.acked(stray.unit, frame, time_ns, ambiguous=stray.unit.copies > 1)
            self.deliver(stray.unit, frame, time_ns)

    def _add_isolated(
        self, seq: int, content: i64, type_: str | None, frame: i64, time_ns: i64
    ) -> Unit:
        """Add a unit whose number says nothing about the numbers between it and others."""
        self.units += 1
        self.numbers.isolated += 1
        record = None
        if self.recorder is not None:
            wire_seq = seq & self.numbers.mask
            record = self.recorder.lone(self.context, seq, wire_seq, type_, frame, time_ns)
        self.current = Unit(time_ns, content, time_ns + self.context.delay_ns, frame, record)
        return self.current

    def _is_restart(
        self, seq: int, labelled: bool | None, mark: i64, frame: i64, time_ns: i64  # noqa: FBT001 - as in `unit`
    ) -> bool:
        """Return whether a used number shows that its sender has restarted its numbers, and if so
        end the epoch. It does if this number and the one before it both came with new content just
        now; the announcement of the restart may not be in the capture.
        """
        content = self.store.content_of(seq, mark)
        # The mark of a retransmission changes its content, too; a stamp is no such mark.
        if content == mark or (labelled and self.rule.ack is not AckRule.STAMPED):
            return False
        before, self._other = self._other, (seq, frame)
        # Both numbers in one datagram would be explained by one damaged header.
        if before is None or before[0] != seq - 1 or before[1] == frame:
            return False
        self.context.find_restart(frame, time_ns, seq=seq)
        self.restart()
        return True

    # -- further copies ----------------------------------------------------------------------------

    def _take_older(
        self, seq: int, labelled: bool | None, content: i64, type_: str | None,  # noqa: FBT001 - as in `unit`
        frame: i64, time_ns: i64,
    ) -> bool:  # fmt: skip
        """Process a number that is not new; return False if this is a first copy that came late."""
        numbers = self.numbers
        unit = self.store.outstanding.find(seq)
        if unit is not None:
            self._copy_of_outstanding(seq, unit, labelled, content, type_, frame, time_ns)
            return True
        slot = self.store.settled_row(seq)
        if slot >= 0:
            self._copy_of_settled(seq, slot, labelled, content, type_, frame, time_ns)
            return True
        if seq in numbers.missing:
            self._arrived_late(seq, time_ns)
        elif seq >= numbers.first and self.rule.consecutive:
            # Either it was seen, or it is older than the memory of missing numbers.
            self.context.hit("memory")
            self.forgotten += 1
            self.current = None
            return True
        elif seq < numbers.first:
            numbers.extend_back(seq)
        # If the capture begins later, this may be the retransmission of an earlier unit.
        fresh = self.context.started or (self.rule.resend is None and seq > numbers.first)
        if self.rule.consecutive and fresh:
            numbers.disorder += 1
            if numbers.disorder <= MIN_DISORDER:
                self._notify_evidence()
        numbers.out_of_order += 1
        self.context.findings.add("out-of-order", frame, time_ns, self.direction)
        self.repeats.note_late_first_copy(seq, time_ns)
        return False

    def _copy_of_outstanding(
        self, seq: int, unit: Unit, labelled: bool | None, content: i64,  # noqa: FBT001 - as in `unit`
        type_: str | None, frame: i64, time_ns: i64,
    ) -> None:  # fmt: skip
        """Process a further copy of an outstanding unit."""
        if self.repeats.is_reuse(content, unit.content):
            self._reused(seq, content, type_, frame, time_ns)
            return
        copied = self.repeats.copy_of_outstanding(seq, unit, labelled, content, frame, time_ns)
        if not copied and unit.copies == self.attempts.limit and self.peer is not None:
            self.attempts.note_exhausted(seq, unit, self.peer.last_ns)
        self.current = None if copied else unit
        if self.carrier is not None:
            self._load(Carried.of(self.place, seq))

    def _copy_of_settled(
        self, seq: int, slot: i64, labelled: bool | None, content: i64,  # noqa: FBT001 - as in `unit`
        type_: str | None, frame: i64, time_ns: i64,
    ) -> None:  # fmt: skip
        """Process a further copy of a settled unit."""
        if self.repeats.is_reuse(content, self.store.settled.cells[slot + CONTENT]):
            self._reused(seq, content, type_, frame, time_ns)
            return
        copies = self.repeats.copy_of_settled(seq, slot, labelled, content, frame, time_ns)
        self.current = None
        if 0 < self.attempts.limit <= copies:
            self.attempts.spent(time_ns, time_ns + self.context.delay_ns)

    def _reused(self, seq: int, content: i64, type_: str | None, frame: i64, time_ns: i64) -> None:
        """Process other content under a number whose units are never sent again."""
        self._add_isolated(seq, content, type_, frame, time_ns)
        self.repeats.report_reuse(seq, frame, time_ns)

    def _load(self, item: Carried) -> None:
        """Note in the current datagram's unit that it carries units of this space."""
        carrier = self.carrier
        if carrier is not None and carrier.current is not None:
            carrier.current.load(item)

    # -- acknowledgements --------------------------------------------------------------------------

    def ack(self, base: i64, bits: int, frame: i64, time_ns: i64) -> None:
        """Process an acknowledgement."""
        self.acks.take(self, base, bits, frame, time_ns)

    def nack(self, base: i64, bits: int, frame: i64, time_ns: i64) -> None:
        """Process feedback: final reports of delivered and lost units."""
        self.acks.nack(self, base, bits, frame, time_ns)

    def settle(self, seq: i64, unit: Unit, frame: i64, time_ns: i64) -> None:
        """Process the first acknowledgement of a unit."""
        copies = unit.copies
        if copies > 1:
            if copies == self.attempts.limit and time_ns > unit.due_ns:
                # Its sender had already given it up, but it was not lost.
                self.ack_stats.note_answered(unit.last_ns, frame)
                self.attempts.mark_fate_unknown(seq)
                self.settle_unacked(seq, unit, seen=True)
                return
            self.attempts.forget(seq)
        telling = self.ack_stats.add(seq, unit, frame, time_ns)
        self.store.settle(seq, unit)
        if self.recorder is not None:
            self.recorder.acked(unit, frame, time_ns, ambiguous=copies > 1 or unit.again)
        if telling:
            self._notify_evidence()  # may revise a copy of this very unit
        self.deliver(unit, frame, time_ns)

    def reported_lost(self, seq: int, unit: Unit) -> None:
        """Settle a unit that its receiver has reported lost."""
        if self.recorder is not None:
            self.recorder.reported_lost(unit)
        self.settle_unacked(seq, unit, seen=True)

    def delivered(self, item: Carried, frame: i64, time_ns: i64) -> None:
        """Process the acknowledgement of the datagram that carried these units."""
        for seq in range(item.first, item.first + item.count):
            unit = self.store.outstanding.pop(seq)
            if unit is not None:
                self.settle(seq, unit, frame, time_ns)

    def _notify_evidence(self) -> None:
        if self.on_evidence is not None:
            self.on_evidence()

    # -- ends --------------------------------------------------------------------------------------

    def settle_unacked(self, seq: int, unit: Unit, *, seen: bool) -> None:
        """Settle a unit without acknowledgement; `seen`: the capture would have shown one."""
        context, attempts = self.context, self.attempts
        seen = seen and not context.findings.misses
        given_up = attempts.exhausted(unit)
        if given_up:
            attempts.give_up(context, seq, unit)
        self.ack_stats.unacked += seen or given_up
        self.store.settle(seq, unit)
        if self.recorder is not None:
            word = "given_up" if given_up else "unacked" if seen else "unknown"
            lost = given_up and not context.receiver_near and self._peer_active_since(unit)
            lost = lost and attempts.implies_loss(context, seq, self.peer)
            self.recorder.dropped(unit, word, lost=lost)
        attempts.forget(seq)

    def _peer_active_since(self, unit: Unit) -> bool:
        """Return whether the other direction was heard after the last copy of a unit."""
        return self.peer is not None and bool(self.peer.last_ns > unit.last_ns)

    def end_all(self, heard: Heard) -> None:
        """Settle the outstanding units at the end."""
        self.strays.finish(self)
        self.repeats.judge_pending()
        self.repeats.find_common_gaps()
        for unit in self.store.outstanding.units():
            seen = self.peer_seen and heard.would_show(unit.last_ns)
            self.settle_unacked(unit.number, unit, seen=seen)
        self.store.outstanding.clear()

    def _settle_overdue(self, now_ns: int) -> None:
        """Settle the units that have waited too long and, if there are too many, a quarter."""
        leaving, over = self.store.overdue(now_ns)
        if over:
            self.context.hit("MAX_OUTSTANDING", len(leaving))
        for unit in leaving:
            self.store.outstanding.remove(unit)
            seen = not over and self._peer_active_since(unit)
            self.settle_unacked(unit.number, unit, seen=seen)

    def may_restart(self, time_ns: i64) -> bool:
        """Return whether a RESTART event at this time begins a new epoch."""
        del time_ns
        return True

    def restart(self) -> None:
        """Begin a new epoch: the sender restarts its numbers. Outstanding units become unknown."""
        if self.numbers.newest == ABSENT:
            return
        self.repeats.judge_pending()
        for unit in self.store.outstanding.units():
            self.settle_unacked(unit.number, unit, seen=False)
        self.store.outstanding.clear()
        self.ack_stats.restart(self.numbers.newest, self.numbers.modulus)
        self.numbers.restart()
        self.strays.reset()
        self.acks.feedback = self.current = self._other = None

    def release(self) -> None:
        """Drop all references that form cycles, so that no garbage collection is needed."""
        self.on_evidence = self.recorder = self.ack_stats.on_answer = None
        self.carrier = self.current = self.peer = self.acks.rule = self.strays.recorder = None
        self.members = ()
        self.repeats.release()
        self.store.outstanding.clear()

    # -- report ------------------------------------------------------------------------------------

    def report(self) -> SpaceReport:
        """Return the report; call `end_all` before."""
        first, last = self.numbers.span()
        ack_stats, repeats = self.ack_stats, self.repeats
        # By position: keywords would take as long as all the figures.
        copies = self.units + repeats.retransmissions + repeats.duplicates + repeats.undecided
        unknown = self.units - ack_stats.acked - ack_stats.unacked
        lateness, timer_ms = ack_stats.lateness, self.context.delay_ns / 1e6 or None
        acked_by_name = self.rule.ack is AckRule.EXACT and self.rule.acked_with is None
        return SpaceReport(
            self.rule.name, self.direction, self.units, copies,
            repeats.retransmissions, repeats.duplicates,
            ack_stats.acked, ack_stats.unacked, unknown,
            self.numbers.never_seen(self.units), self.numbers.out_of_order, self.attempts.given_up,
            first, last, self.store.max_copies, self.numbers.consecutive, ack_stats.rtt.summary(),
            None if lateness is None else lateness.summary(), timer_ms, tuple(self.numbers.bursts),
            self._extra(), self.numbers.skipped, self.rule.copies_take_numbers, acked_by_name,
        )  # fmt: skip

    def so_far(self) -> SpaceSnapshot:
        """Return the counts that show losses so far."""
        feedback, numbers = self.acks.feedback, self.numbers
        lost, delivered = (0, 0) if feedback is None else (feedback.lost, feedback.delivered)
        came = self.units + self.repeats.copies_with_numbers() + numbers.skipped
        return SpaceSnapshot(self.rule.name, came, self.missing(), lost, delivered)

    def missing(self) -> int:
        """Return how many units up to the newest number were not seen."""
        return self.numbers.never_seen(self.units + self.repeats.copies_with_numbers())

    def _extra(self) -> dict[str, Any]:
        counts = {"strays": self.strays.count, "undecided": self.repeats.undecided}
        counts["forgotten"] = self.forgotten
        extra: dict[str, Any] = {name: count for name, count in counts.items() if count}
        if self.rule.burst > 1 and self.rule.consecutive:
            sent = self.rule.burst * (self.units + self.numbers.never_seen(self.units))
            extra["copies_missing"] = max(0, sent - self.units - self.repeats.retransmissions)
            came = self.units + self.repeats.of_bursts
            extra["copies_missing_of_seen"] = max(0, self.rule.burst * self.units - came)
        feedback, quality = self.acks.feedback, self.ack_stats.quality
        if feedback is not None:
            extra |= feedback.counts()
            # Only next to the sender did all of this feedback reach it.
            extra["feedback_at"] = _WHERE[self.context.sender_near]
        if quality is not None and quality.peak:
            extra["poor_quality_run"] = quality.peak
        return extra
