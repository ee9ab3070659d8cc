"""One sequence space in one direction: takes its units, has its parts keep what is to be known.

`numbers` knows which numbers were used, `kept` the units under them; `acks` reads which of them are
acknowledged, `answers` how quickly; `repeats` judges further copies, `attempts` counts them.
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
from netdissect.track.context import SpaceContext
from netdissect.track.findings import Findings
from netdissect.track.numbers import LEAST_BURST, Numbers, Stray, Strays
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.repeats import Repeats
from netdissect.track.totalling import space_recorder
from netdissect.track.unit import Carried, Unit, Units
from netdissect.track.unitstore import CONTENT, MAX_OUTSTANDING, UnitStore
from netdissect.track.vantage import MIN_DISORDER

__all__ = ["Space"]

_MS: Final = 1_000_000
_WHERE: Final = {True: "sender", False: "receiver", None: "unknown"}


class Space(Units):
    """Units of one space in one direction, from their first copy to their report."""

    __slots__ = (
        "_keeps", "_other", "ack_stats", "acks", "attempts", "carrier", "context", "current",
        "direction", "forgotten", "held_ns", "numbers", "on_evidence", "peer", "peer_seen", "plain",
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
        self.strays = Strays(self.context, self.numbers)
        self.units = self.plain = 0
        """All units, and those of them that nobody acknowledges."""
        self.forgotten = 0
        """Copies of numbers that are not remembered: what they are cannot be told."""
        self.carrier: Space | None = None
        """Space whose units carry those of this one."""
        self.current: Unit | None = None
        """As a carrier: the unit of the datagram at hand."""
        self.peer: Any = None
        """Lane of the other direction; None = not known."""
        self.peer_seen = False
        """True once the other direction has a datagram in the capture."""
        self.on_evidence: Callable[[], None] | None = None
        """Called where something new is known that tells where the capture was taken."""
        self.renewed: EndHint | None = None
        """Where its sender had forgotten the connection first."""
        self._other: tuple[int, int] | None = None
        """(number, frame) of the newest copy that held something else than the one before it."""
        self.obey(rule)

    def obey(self, rule: SpaceRule) -> None:
        """Take the rules of a dialect, now that it is known."""
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
        """How long its receiver may hold an acknowledgement back."""
        self.repeats.retime(None)

    @property
    def rule(self) -> SpaceRule:
        """Return the rules of the space."""
        return self.context.rule

    # -- numbers and units -------------------------------------------------------------------------

    def unit(  # noqa: C901, PLR0912 - hot path: calls would cost more than what they do
        self, wire_seq: i64, labelled: bool | None, content: Any, type_: str | None,  # noqa: FBT001 - as in the event
        frame: int, time_ns: int,
    ) -> None:  # fmt: skip
        """Take one copy of a unit that its sender wants acknowledged."""
        numbers = self.numbers
        last = numbers.newest
        if last == ABSENT:
            last = numbers.begin(wire_seq)
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
                seq = last + ahead
                if ahead:
                    seq -= numbers.modulus
                if self._is_restart(seq, labelled, mark, frame, time_ns):
                    seq = numbers.begin(wire_seq) + 1
                    numbers.newest = seq
                elif self._take_older(seq, labelled, mark, type_, frame, time_ns):
                    return
        self.units += 1
        record = None
        if self.recorder is not None:
            number = wire_seq & numbers.mask
            record = self.recorder.first(self.context, seq, number, type_, frame, time_ns)
        unit = Unit(time_ns, mark, time_ns + self.context.delay_ns, frame, record)
        self.current = unit
        if self._keeps:
            outstanding = self.store.outstanding
            outstanding[seq] = unit
            if not self.units & 255 or len(outstanding) > MAX_OUTSTANDING:
                self._settle_overdue(time_ns)
        else:
            self.store.settle(seq, unit)
        if self.carrier is not None:
            self._load(Carried.of(self, seq))

    def plain_unit(
        self, wire_seq: int, content: Any, type_: str | None, frame: int, time_ns: int
    ) -> None:
        """Take one copy of a unit that nobody will acknowledge."""
        before = self.units
        self.unit(wire_seq, None, content, type_, frame, time_ns)
        if self.units == before:
            return
        self.plain += 1
        stray = self.strays.newest
        if stray is not None and stray.unit is self.current:
            stray.plain = True
        self.store.settle_newest(self.current)

    def number(self, wire_seq: i64, frame: int, time_ns: int) -> None:
        """Take a number that something else than a unit has used."""
        numbers = self.numbers
        last = numbers.begin(wire_seq) if numbers.newest == ABSENT else numbers.newest
        ahead = (wire_seq - last) & numbers.mask
        if ahead == 1 and not self.repeats.pending_copies():
            numbers.newest = last + 1
            numbers.skipped += 1
            return
        if numbers.is_far(ahead, last, self.repeats.pending_copies()):
            if self._take_far(wire_seq, ahead, None, None, None, frame, time_ns):
                return
            last = numbers.newest_or_zero()
            ahead = (wire_seq - last) & numbers.mask
        if 0 < ahead <= numbers.half:
            self._advance(last, last + ahead, frame, time_ns)
            numbers.skipped += 1
            return
        seq = int(last + ahead - (numbers.modulus if ahead else 0))
        if seq in numbers.missing:
            self._arrived_late(seq, time_ns)
            numbers.skipped += 1
        elif seq < numbers.first:
            numbers.extend_back(seq)
            numbers.skipped += 1
        elif self.repeats.counted is not None:
            self.repeats.counted.network_copies = True

    def _advance(self, last: i64, seq: i64, frame: int, time_ns: int) -> None:
        """Take a newer number; note those between it and the newest one so far."""
        numbers = self.numbers
        numbers.newest = seq
        if self.repeats.counted is not None:
            self.repeats.counted.judge(seq - last - 1, seq, time_ns)
        if seq == last + 1 or not numbers.consecutive:
            return
        numbers.add_missing(last + 1, seq)
        if seq - last > LEAST_BURST:
            numbers.add_burst(last, seq, self._heard_ns(last, time_ns), frame, time_ns)
        if self.recorder is not None:
            self.recorder.gap(self.context, last + 1, seq - 1, frame, time_ns)

    def _heard_ns(self, last: int, time_ns: int) -> int:
        """Return when `last`, the newest number until now, came; now where nothing is known."""
        return int(self.store.arrival_ns(last, time_ns))

    def _arrived_late(self, seq: int, time_ns: int) -> None:
        """Take a number that was skipped."""
        self.numbers.arrived_late(seq)
        if self.repeats.counted is not None:
            self.repeats.counted.arrived_late(seq, time_ns)
        if self.recorder is not None:
            self.recorder.arrived_late(seq)

    # -- numbers that stand alone ------------------------------------------------------------------

    def _take_far(
        self, wire_seq: i64, ahead: i64, labelled: bool | None, mark: int | None,  # noqa: FBT001 - as in `unit`
        type_: str | None, frame: int, time_ns: int,
    ) -> bool:  # fmt: skip
        """Take a number far from all before; return False where it confirms the one before it, so
        that both count as the others do. `mark` is None for a number of no unit.
        """
        numbers = self.numbers
        last = numbers.newest_or_zero()
        wire_seq &= numbers.mask
        before = self.strays.newest
        if before is not None and before.last == last:
            step = (wire_seq - before.wire_seq) & numbers.mask
            if step == 0:
                if before.unit is not None and mark is not None:
                    self._copy_of_outstanding(
                        before.seq, before.unit, labelled, mark, type_, frame, time_ns
                    )
                return True
            if step <= numbers.reach:
                self._confirm(before)
                return False
        seq = last + (ahead if ahead <= numbers.half else ahead - numbers.modulus)
        self.strays.report(wire_seq, seq, frame, time_ns)
        unit = None if mark is None else self._add_isolated(seq, mark, type_, frame, time_ns)
        self.strays.add(Stray(wire_seq, seq, last, unit, frame, time_ns))
        return True

    def _confirm(self, stray: Stray) -> None:
        """Count a number with the others, now that the next one follows it."""
        numbers = self.numbers
        self.strays.confirm(stray)
        seq, unit = stray.seq, stray.unit
        if seq > stray.last:
            self._advance(stray.last, seq, stray.frame, stray.time_ns)
        else:
            self.context.find_restart(stray.frame, stray.time_ns, seq=seq)
            self.restart()
            seq = numbers.begin(stray.wire_seq) + 1
            numbers.newest = seq
        if unit is None:
            numbers.skipped += 1
            return
        numbers.isolated -= 1
        if self.recorder is not None:
            self.recorder.adopt(unit, seq, stray.wire_seq)
        if stray.plain or stray.acked or not self._keeps:
            self.store.settle(seq, unit)
        else:
            self.store.outstanding[seq] = unit

    def unsent(self, base: int, frame: int, time_ns: int) -> None:
        """Take the acknowledgement of a number that stands alone, or of none."""
        stray = self.strays.find(base & self.numbers.mask)
        if stray is None:
            self.acks.report_unsent(base, frame, time_ns)
        elif stray.unit is not None and not stray.acked:
            stray.acked = True
            self.ack_stats.acked += 1
            if self.recorder is not None:
                ambiguous = stray.unit.copies > 1
                self.recorder.acked(stray.unit, frame, time_ns, ambiguous=ambiguous)
            stray.unit.deliver(frame, time_ns)

    def _add_isolated(
        self, seq: int, content: i64, type_: str | None, frame: int, time_ns: int
    ) -> Unit:
        """Take a unit whose number is no evidence of those between it and others."""
        self.units += 1
        self.numbers.isolated += 1
        record = None
        if self.recorder is not None:
            wire_seq = seq & self.numbers.mask
            record = self.recorder.lone(self.context, seq, wire_seq, type_, frame, time_ns)
        due_ns = time_ns + self.context.delay_ns
        unit = self.current = Unit(time_ns, content, due_ns, frame, record)
        return unit

    def _is_restart(
        self, seq: int, labelled: bool | None, mark: i64, frame: int, time_ns: int  # noqa: FBT001 - as in `unit`
    ) -> bool:
        """Return whether a number that was used before shows that its sender numbers afresh, and
        end the epoch: it holds something else, and so did the one before it, just now. What says
        so may not be in the capture.
        """
        content = self.store.content_of(seq, mark)
        # What its sender marks as sent again differs by the mark; a stamp is no such mark.
        if content == mark or (labelled and self.rule.ack is not AckRule.STAMPED):
            return False
        before, self._other = self._other, (seq, frame)
        if before is None or before[0] != seq - 1 or before[1] == frame:
            return False
        self.context.find_restart(frame, time_ns, seq=seq)
        self.restart()
        return True

    # -- further copies ----------------------------------------------------------------------------

    def _take_older(
        self, seq: int, labelled: bool | None, content: i64, type_: str | None,  # noqa: FBT001 - as in `unit`
        frame: int, time_ns: int,
    ) -> bool:  # fmt: skip
        """Take a number that is not newer; return False where it is a first copy that came late."""
        numbers = self.numbers
        unit = self.store.outstanding.get(seq)
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
            # It was seen, or it is older than the memory of skipped numbers: nobody can tell.
            self.context.hit("memory")
            self.forgotten += 1
            self.current = None
            return True
        elif seq < numbers.first:
            numbers.extend_back(seq)
        # Where the capture begins later, what is sent again now may have been first sent before.
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
        type_: str | None, frame: int, time_ns: int,
    ) -> None:  # fmt: skip
        """Take a further copy of a unit that is not acknowledged."""
        if self.repeats.is_reuse(content, unit.content):
            self._reused(seq, content, type_, frame, time_ns)
            return
        copied = self.repeats.copy_of_outstanding(seq, unit, labelled, content, frame, time_ns)
        if not copied and unit.copies == self.attempts.limit and self.peer is not None:
            self.attempts.note_exhausted(seq, unit, self.peer.last_ns)
        self.current = None if copied else unit
        if self.carrier is not None:
            self._load(Carried.of(self, seq))

    def _copy_of_settled(
        self, seq: int, slot: i64, labelled: bool | None, content: i64,  # noqa: FBT001 - as in `unit`
        type_: str | None, frame: int, time_ns: int,
    ) -> None:  # fmt: skip
        """Take a further copy of a unit that is settled."""
        if self.repeats.is_reuse(content, self.store.settled.cells[slot + CONTENT]):
            self._reused(seq, content, type_, frame, time_ns)
            return
        copies = self.repeats.copy_of_settled(seq, slot, labelled, content, frame, time_ns)
        self.current = None
        if 0 < self.attempts.limit <= copies:
            self.attempts.spent_ns = time_ns + self.context.delay_ns

    def _reused(self, seq: int, content: i64, type_: str | None, frame: int, time_ns: int) -> None:
        """Take other content under a number whose units are never sent again."""
        self._add_isolated(seq, content, type_, frame, time_ns)
        self.repeats.report_reuse(seq, frame, time_ns)

    def _load(self, item: Carried) -> None:
        """Note with the unit of the datagram at hand that it carries units of this space."""
        carrier = self.carrier
        if carrier is not None and carrier.current is not None:
            carrier.current.load(item)

    # -- acknowledgements --------------------------------------------------------------------------

    def ack(self, base: i64, bits: int, frame: int, time_ns: int) -> None:
        """Take an acknowledgement."""
        self.acks.take(self, base, bits, frame, time_ns)

    def nack(self, base: i64, bits: int, frame: int, time_ns: int) -> None:
        """Take feedback that tells once and for all what was delivered."""
        self.acks.nack(self, base, bits, frame, time_ns)

    def settle(self, seq: i64, unit: Unit, frame: int, time_ns: int) -> None:
        """Take the first acknowledgement of a unit."""
        copies = unit.copies
        if copies > 1:
            if copies == self.attempts.limit and time_ns > unit.due_ns:
                # Its sender had dropped it when this acknowledgement came, but it was not lost.
                self.ack_stats.note_answered(unit.last_ns, frame)
                self.attempts.mark_fate_unknown(seq)
                self.settle_unacked(seq, unit, seen=True)
                return
            self.attempts.forget(seq)
        telling = self.ack_stats.add(seq, unit, frame, time_ns)
        self.store.settle(seq, unit)
        if self.recorder is not None:
            self.recorder.acked(unit, frame, time_ns, ambiguous=copies > 1)
        if telling:
            self._notify_evidence()  # it may turn a copy of this very unit
        unit.deliver(frame, time_ns)

    def reported_lost(self, seq: int, unit: Unit) -> None:
        """Take that the receiver has told that a unit did not come."""
        if self.recorder is not None:
            self.recorder.reported_lost(unit)
        self.settle_unacked(seq, unit, seen=True)

    def delivered(self, item: Carried, frame: int, time_ns: int) -> None:
        """Take the acknowledgement of what carried these units."""
        for seq in range(item.first, item.first + item.count):
            unit = self.store.pop_outstanding(seq)
            if unit is not None:
                self.settle(seq, unit, frame, time_ns)

    def _notify_evidence(self) -> None:
        if self.on_evidence is not None:
            self.on_evidence()

    # -- ends --------------------------------------------------------------------------------------

    def settle_unacked(self, seq: int, unit: Unit, *, seen: bool) -> None:
        """Settle a unit without acknowledgement; `seen`: one could have been seen."""
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
        if given_up:
            attempts.forget(seq)

    def _peer_active_since(self, unit: Unit) -> bool:
        """Return whether anything of the other direction came after the last copy of a unit."""
        return self.peer is not None and bool(self.peer.last_ns > unit.last_ns)

    def end_all(self, end_ns: int, patience_ns: int) -> None:
        """Settle what is open at the end: acknowledgements could have been seen until `end_ns`, and
        those of units sent within `patience_ns` before may still come.
        """
        self.repeats.judge_pending()
        for seq, unit in list(self.store.outstanding.items()):
            waited = end_ns - unit.last_ns > patience_ns
            self.settle_unacked(seq, unit, seen=self.peer_seen and waited)
        self.store.outstanding.clear()

    def _settle_overdue(self, now_ns: int) -> None:
        """Settle units that have waited too long, and a quarter where there are too many."""
        leaving, over = self.store.overdue(now_ns)
        if over:
            self.context.hit("MAX_OUTSTANDING", len(leaving))
        outstanding = self.store.outstanding
        for seq in leaving:
            unit = outstanding[seq]
            del outstanding[seq]
            self.settle_unacked(seq, unit, seen=not over and self._peer_active_since(unit))

    def may_restart(self, time_ns: int) -> bool:
        """Return whether a RESTART at this time counts."""
        del time_ns
        return True

    def restart(self) -> None:
        """Begin a new epoch: its sender numbers afresh. What is open is settled as unknown."""
        if self.numbers.newest == ABSENT:
            return
        self.repeats.judge_pending()
        for seq, unit in list(self.store.outstanding.items()):
            self.settle_unacked(seq, unit, seen=False)
        self.store.outstanding.clear()
        self.numbers.restart()
        self.acks.feedback = None
        self.strays.newest = None
        self.current = None
        self._other = None

    def release(self) -> None:
        """Let go of everything that refers back here, so that no cyclic garbage is left."""
        self.on_evidence = self.recorder = self.ack_stats.on_answer = None
        self.carrier = self.current = self.peer = None
        self.acks.rule = None
        self.repeats.release()

    # -- report ------------------------------------------------------------------------------------

    def report(self) -> SpaceReport:
        """Return the figures; call `end_all` before."""
        first, last = self.numbers.span()
        ack_stats, repeats = self.ack_stats, self.repeats
        # By place: names cost as much as all the figures.
        return SpaceReport(
            self.rule.name,
            self.direction,
            self.units,
            self.units + repeats.retransmissions + repeats.duplicates + repeats.undecided,  # copies
            repeats.retransmissions,
            repeats.duplicates,
            ack_stats.acked,
            ack_stats.unacked,
            self.units - ack_stats.acked - ack_stats.unacked,  # unknown
            self.numbers.never_seen(self.units),
            self.numbers.out_of_order,
            self.attempts.given_up,
            first,
            last,
            self.store.max_copies,
            self.rule.consecutive,
            ack_stats.rtt.summary(),
            None if ack_stats.lateness is None else ack_stats.lateness.summary(),
            self.context.delay_ns / 1e6 if self.context.delay_ns else None,  # timer, ms
            tuple(self.numbers.bursts),
            self._extra(),
            self.numbers.skipped,  # others
            self.rule.copies_take_numbers,
            self.rule.ack is AckRule.EXACT and self.rule.acked_with is None,  # by name
        )

    def so_far(self) -> SpaceSnapshot:
        """Return what is known by now of what was lost."""
        told, numbers = self.acks.feedback, self.numbers
        lost, delivered = (0, 0) if told is None else (told.lost, told.delivered)
        came = self.units + self.repeats.copies_with_numbers() + numbers.skipped
        return SpaceSnapshot(self.rule.name, came, self.missing(), lost, delivered)

    def missing(self) -> int:
        """Return how many numbers up to the newest are of units that were not seen."""
        return self.numbers.never_seen(self.units + self.repeats.copies_with_numbers())

    def _extra(self) -> dict[str, Any]:
        counts = self.strays.count(), self.repeats.undecided, self.forgotten
        named = zip(("strays", "undecided", "forgotten"), counts, strict=True)
        extra: dict[str, Any] = {name: count for name, count in named if count}
        told, quality = self.acks.feedback, self.ack_stats.quality
        if told is not None:
            extra |= told.counts()
            # Next to the sender this is what it was told; elsewhere some of it may not reach it.
            extra["feedback_at"] = _WHERE[self.context.sender_near]
        if quality is not None and quality.peak:
            extra["poor_quality_run"] = quality.peak
        return extra
