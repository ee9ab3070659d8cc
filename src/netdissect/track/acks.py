"""Acknowledgements of one space: which units they name, and what the first one of a unit means."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import AckRule
from netdissect.track.feedback import Feedback
from netdissect.track.lateness import Lateness
from netdissect.track.ledger import PAUSE_NS, Ledger
from netdissect.track.unit import Carried, Unit
from netdissect.track.vantage import MIN_ANSWERS, NEAR_NS

__all__ = ["Acknowledged"]

_BITS_BEFORE: Final = AckRule.BITS_BEFORE
_BITS_AFTER: Final = AckRule.BITS_AFTER
_CUMULATIVE: Final = AckRule.CUMULATIVE


class Acknowledged(Ledger):
    """A ledger whose units are settled by ACK and NACK events."""

    __slots__ = ()

    def ack(self, base: i64, bits: int, frame: int, time_ns: int) -> None:
        """Take an acknowledgement as the rule of the space reads it."""
        rule = self.ack_rule
        if rule is _BITS_BEFORE:
            self._ack_before(base, bits, frame, time_ns)
        elif rule is _CUMULATIVE:
            self._ack_cumulative(base, frame, time_ns)
        elif rule is _BITS_AFTER:
            self._ack_after(base, bits, frame, time_ns)
        elif rule is not None:
            self._ack_exact(base, frame, time_ns)

    def name_unheard(self, base: int) -> None:
        """Take an acknowledgement while nothing of this space was seen."""
        if self._named < 0:
            self._named = base
        self.goes_on = self.goes_on or base != self._named

    def _ack_exact(self, base: i64, frame: int, time_ns: int) -> None:
        if self.newest == ABSENT:
            self.name_unheard(base)
            return
        seq = self.extend(base)
        unit = self.take_out(seq)
        if unit is not None:
            self._settle(seq, unit, frame, time_ns)
        elif seq > self.newest:
            self._unsent(base, frame, time_ns)
        elif self.consecutive and seq in self.missing:
            self._unseen(seq, frame, time_ns)

    def _ack_before(self, base: i64, bits: int, frame: int, time_ns: int) -> None:
        last = self.newest
        if last == ABSENT:
            self.name_unheard(base)
            self._unbegun(base, frame, time_ns)
            return
        ahead = (base - last) & self._mask
        seq = last + ahead
        if ahead:
            if ahead <= self._half:
                self._unsent(base, frame, time_ns)
            else:
                seq -= self._modulus
        outstanding = self.outstanding
        unit = self.take_out(seq)
        if unit is not None:
            self._settle(seq, unit, frame, time_ns)
        if bits and (outstanding or self.missing.size):
            self._ack_bits(bits, seq, frame, time_ns)

    def _ack_after(self, base: i64, bits: int, frame: int, time_ns: int) -> None:
        self._ack_exact(base, frame, time_ns)
        if self.newest == ABSENT:
            return
        seq = self.extend(base)
        missing = self.missing
        gaps = missing.size > 0 and self.consecutive
        gaps = gaps and missing.touches(int(seq) + 1, int(seq) + 1 + bits.bit_length())
        while bits:
            seq += 1
            if bits & 1:
                unit = self.take_out(seq)
                if unit is not None:
                    self._settle(seq, unit, frame, time_ns)
                elif gaps and seq in missing:
                    self._unseen(seq, frame, time_ns)
            bits >>= 1

    def _ack_bits(self, bits: i64, base: i64, frame: int, time_ns: int) -> None:
        """Settle what the bit field before `base` covers."""
        outstanding = self.outstanding
        width = self.rule.ack_bits
        low = int(base) - width
        if not outstanding:
            covered: list[int] = []
        elif len(outstanding) > width:
            covered = [seq for seq in range(low, int(base)) if seq in outstanding]
        else:
            covered = [seq for seq in outstanding if low <= seq < base]
        for seq in covered:
            if bits >> (base - 1 - seq) & 1:
                unit = self.take_out(seq)
                if unit is not None:
                    self._settle(seq, unit, frame, time_ns)
        if self.missing.size:
            for seq in self.missing.within(low, int(base)):
                if bits >> (base - 1 - seq) & 1:
                    self._unseen(seq, frame, time_ns)

    def _ack_cumulative(self, base: i64, frame: int, time_ns: int) -> None:
        last = self.newest
        if last == ABSENT:
            self.name_unheard(base)
            return
        ahead = (base - last) & self._mask
        seq = last + ahead
        if ahead:
            if ahead <= self._half:
                self._unsent(base, frame, time_ns)
                return
            seq -= self._modulus
        if seq > self.covered and self.consecutive and self.missing.size:
            # Its receiver takes units in order: it has them all.
            for number in self.missing.within(max(self.first, self.covered + 1), int(seq) + 1):
                self._unseen(number, frame, time_ns)
            self.covered = seq
        outstanding = self.outstanding
        if outstanding:
            for covered in [other for other in outstanding if other <= seq]:
                unit = self.take_out(covered)
                if unit is not None:
                    self._settle(covered, unit, frame, time_ns)

    def _settle(  # noqa: C901 - once per unit: calls would cost as much as the work
        self, seq: i64, unit: Unit, frame: int, time_ns: int
    ) -> None:
        """Take the first acknowledgement of a unit."""
        copies = unit.copies
        if unit.last_ns > self.answered_ns:
            if unit.last_ns - self.answered_ns > PAUSE_NS:
                self.answers(unit, frame)
            self.answered_ns = unit.last_ns
        rtt = self.rtt
        quality = self._try_quality
        telling = False
        if copies == 1:
            sample = time_ns - unit.first_ns
            if sample >= 0:
                lowest = rtt.lowest
                rtt.add(sample)
                telling = sample < lowest > NEAR_NS or rtt.samples <= MIN_ANSWERS
        elif copies == self._limit and time_ns > unit.due_ns:
            # Its sender had dropped it when this acknowledgement came.
            self.end(seq, unit, seen=True)
            return
        else:
            rtt.ambiguous += 1
            self._not_in_vain(seq)
            self.came_late(seq, unit, copies, time_ns)
        self.acked += 1
        if quality is not None:
            if copies == 1 and quality.calm:
                quality.keep(1)
            elif quality.outcome(copies, time_ns):
                self._poor(frame, time_ns)
        self.remember(seq, unit)
        if self.recorder is not None:
            self.recorder.acked(unit, frame, time_ns, ambiguous=copies > 1)
        if telling:
            self._sight()  # it may turn a copy of this very unit
        self._deliver(unit, frame, time_ns)

    def came_late(self, seq: int, unit: Unit, copies: int, time_ns: int) -> None:
        """Take the acknowledgement of a unit that was sent more than once."""
        if self.lateness is None:
            self.lateness = Lateness(self.rule.name, self.findings.late_ms)
        usual_ns = self.rtt.lowest if self.rtt.samples else 0
        first = (unit.frame, unit.first_ns)
        self.lateness.take(seq, first, copies, time_ns - unit.first_ns - usual_ns)

    def delivered(self, item: Carried, frame: int, time_ns: int) -> None:
        """Take the acknowledgement of what carried these units."""
        for seq in range(item.first, item.first + item.count):
            unit = self.take_out(seq)
            if unit is not None:
                self._settle(seq, unit, frame, time_ns)

    def answers(self, unit: Unit, frame: int) -> None:
        """Tell of an answer after nothing was answered for longer than a pause."""
        if self.on_answer is not None:
            self.on_answer(self.direction, unit.last_ns, frame)

    def _sight(self) -> None:
        if self.on_sight is not None:
            self.on_sight()

    # -- feedback ----------------------------------------------------------------------------------

    def nack(self, base: i64, bits: int, frame: int, time_ns: int) -> None:
        """Take feedback that tells once and for all what was delivered."""
        last = self.newest
        if last == ABSENT:
            self.name_unheard(base)
            self._unbegun(base, frame, time_ns)
            return
        ahead = (base - last) & self._mask
        seq = last + ahead
        if ahead:
            if ahead <= self._half:
                self._unsent(base, frame, time_ns)
                return
            seq -= self._modulus
        feedback = self.feedback
        if feedback is None:
            start = self.rule.first_seq if self.started else None
            newest = self.first - 1 if start is None else min(start, self.first) - 1
            feedback = self.feedback = Feedback(newest)
        newest = feedback.newest
        if seq <= newest:
            return
        feedback.newest = seq
        quality = self._loss_quality
        sound = quality is not None and quality.broken_ns is None
        if seq - newest > 1:
            self._told_before(newest, seq, bits, frame, time_ns)
        self._told(seq, True, frame, time_ns)
        if quality is not None and sound and quality.broken_ns is not None:
            # Its sender takes the header to its end, and nothing after it.
            feedback.mark()
            quality.mark()

    def _told_before(self, newest: int, base: int, bits: int, frame: int, time_ns: int) -> None:
        """Take what the feedback says of the units between the last base and this one."""
        edge = max(base - self.rule.ack_bits, newest + 1)
        feedback = self.feedback
        if feedback is not None:
            feedback.assumed_lost += edge - newest - 1
        outstanding = self.outstanding
        if edge - newest <= len(outstanding):
            passed = [seq for seq in range(newest + 1, edge) if seq in outstanding]
        else:
            passed = [seq for seq in outstanding if newest < seq < edge]
        for number in passed:
            self.end(number, outstanding.pop(number), seen=False)
        for number in range(edge, base):
            self._told(number, bool(bits >> (base - 1 - number) & 1), frame, time_ns)

    def _told(self, number: int, delivered: bool, frame: int, time_ns: int) -> None:  # noqa: FBT001
        """Take what the sender is told of one unit."""
        feedback = self.feedback
        if feedback is None:
            return
        unit = self.take_out(number)
        if delivered:
            feedback.delivered += 1
            if unit is not None:
                self._settle(number, unit, frame, time_ns)
            elif number in self.missing:
                self._unseen(number, frame, time_ns)
        else:
            feedback.lost += 1
            if unit is not None:
                if self.recorder is not None:
                    self.recorder.reported(unit)
                self.end(number, unit, seen=True)
        quality = self._loss_quality
        if quality is None:
            return
        if delivered and quality.calm:
            quality.keep(0)
        elif quality.outcome(0 if delivered else 1, time_ns):
            self._poor(frame, time_ns)

    def _deliver(self, unit: Unit, frame: int, time_ns: int) -> None:
        """Take the acknowledgement of a unit as one of all that it carried."""
        item = unit.carried
        while item is not None:
            space: Ledger = item.space
            space.delivered(item, frame, time_ns)
            item = item.further

    # -- findings ----------------------------------------------------------------------------------

    def _unbegun(self, base: int, frame: int, time_ns: int) -> None:
        """Take an acknowledgement where its sender has sent nothing yet in this capture."""
        first = self.rule.first_seq
        if not self.started or first is None or self._spans is not None:
            return
        if (base - first) & int(self._mask) < self._half:
            self._unsent(base, frame, time_ns)

    def _unsent(self, base: int, frame: int, time_ns: int) -> None:
        self.findings.misses = True
        self.find(
            "ack-of-unsent", frame, time_ns, 1 - self.direction,
            f"{base} is acknowledged, and no copy of it was seen before", wire_seq=base,
        )  # fmt: skip

    def _unseen(self, seq: int, frame: int, time_ns: int) -> None:
        if "ack-of-unseen" not in self.rule.remarks:
            self.findings.misses = True  # else its programs do so without having it
        self.find(
            "ack-of-unseen", frame, time_ns, 1 - self.direction,
            f"{seq & self._mask} is acknowledged, and no copy of it was seen", seq=seq,
        )  # fmt: skip

    def _poor(self, frame: int, time_ns: int) -> None:
        self.find(
            "poor-quality", frame, time_ns, self.direction,
            "loses more than its sender tolerates",
        )  # fmt: skip
