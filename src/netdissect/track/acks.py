"""Reads the acknowledgements and the feedback for one space, and settles the units they name."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import AckRule
from netdissect.track.ackstats import AckStats
from netdissect.track.context import SpaceContext
from netdissect.track.feedback import Feedback
from netdissect.track.numbers import Numbers
from netdissect.track.unit import Units
from netdissect.track.unitstore import UnitStore

_BITS_BEFORE: Final = AckRule.BITS_BEFORE
_BITS_AFTER: Final = AckRule.BITS_AFTER
_CUMULATIVE: Final = AckRule.CUMULATIVE
MAX_UNSEEN: Final = 64
"""Numbers that are remembered as acknowledged before they were seen."""


class Acks:
    """Applies what the other direction reports about the units of a space."""

    __slots__ = (
        "_ack_stats", "_context", "_covered", "_named", "_named_ns", "_numbers", "_store",
        "feedback", "present_ns", "rule", "sender_present", "unseen",
    )  # fmt: skip

    def __init__(
        self, context: SpaceContext, numbers: Numbers, store: UnitStore, ack_stats: AckStats
    ) -> None:
        self._context = context
        self._numbers = numbers
        self._store = store
        self._ack_stats = ack_stats
        self._covered = -1
        """Newest number that a cumulative acknowledgement has named while numbers were missing."""
        self._named = -1
        """The first number acknowledged while nothing of the space was captured; -1 = none."""
        self._named_ns = 0
        """When."""
        self.sender_present = False
        """Whether different numbers were acknowledged then: the sender is active, but not captured.
        """
        self.present_ns = 0
        """For how long they were."""
        self.unseen: list[int] = []
        """The newest numbers that were acknowledged before any copy of them was seen."""
        self.feedback: Feedback | None = None
        self.rule: AckRule | None = context.rule.ack
        """How acknowledgements name units; None once the connection is over."""

    def take(self, units: Units, base: i64, bits: int, frame: i64, time_ns: i64) -> None:
        """Process an acknowledgement by the rule of the space."""
        rule = self.rule
        if rule is _BITS_BEFORE:
            self._bits_before(units, base, bits, frame, time_ns)
        elif rule is _CUMULATIVE:
            self._take_cumulative(units, base, frame, time_ns)
        elif rule is _BITS_AFTER:
            self._bits_after(units, base, bits, frame, time_ns)
        elif rule is not None:
            self._take_exact(units, base, frame, time_ns)

    def note_before_first(self, base: int, time_ns: i64) -> None:
        """Process an acknowledgement while nothing of the space was captured."""
        if self._named < 0:
            self._named, self._named_ns = base, time_ns
        elif base != self._named:
            self.sender_present = True
            self.present_ns = time_ns - self._named_ns

    def report_unsent(self, base: int, frame: i64, time_ns: i64) -> None:
        """Report the acknowledgement of a number above the newest."""
        context = self._context
        self._note_unseen(self._numbers.extend(base))
        context.findings.misses = True
        context.find(
            "ack-of-unsent", frame, time_ns, 1 - context.direction,
            f"{base} is acknowledged, and no copy of it was seen before", wire_seq=base,
        )  # fmt: skip

    def report_unseen(self, seq: int, frame: i64, time_ns: i64) -> None:
        """Report the acknowledgement of a number that is missing."""
        context = self._context
        self._note_unseen(seq)
        if "ack-of-unseen" not in context.rule.remarks:
            context.findings.misses = True  # else these programs acknowledge what they do not have
        # One datagram may acknowledge as many of them as it has bits.
        if context.findings.only_counts("ack-of-unseen", frame, time_ns, 1 - context.direction):
            return
        context.find(
            "ack-of-unseen", frame, time_ns, 1 - context.direction,
            f"{seq & self._numbers.mask} is acknowledged, and no copy of it was seen", seq=seq,
        )  # fmt: skip

    def _note_unseen(self, seq: int) -> None:
        """Remember a number, as its frame may stand behind that of the acknowledgement."""
        self.unseen.append(seq)
        if len(self.unseen) > MAX_UNSEEN:
            del self.unseen[0]

    def _take_exact(self, units: Units, base: i64, frame: i64, time_ns: i64) -> None:
        numbers = self._numbers
        if numbers.newest == ABSENT:
            self.note_before_first(base, time_ns)
            return
        seq = numbers.extend(base)
        unit = self._store.outstanding.pop(seq)
        if unit is not None:
            units.settle(seq, unit, frame, time_ns)
        elif seq > numbers.newest:
            units.unsent(base, frame, time_ns)
        elif numbers.consecutive and seq in numbers.missing:
            self.report_unseen(seq, frame, time_ns)

    def _bits_before(self, units: Units, base: i64, bits: int, frame: i64, time_ns: i64) -> None:
        numbers = self._numbers
        last = numbers.newest
        if last == ABSENT:
            self.note_before_first(base, time_ns)
            self._report_unbegun(units, base, frame, time_ns)
            return
        # `Numbers.extend`, written out because this runs for every acknowledgement.
        ahead = (base - last) & numbers.mask
        seq = last + ahead
        if ahead > numbers.half:
            seq -= numbers.modulus
        elif ahead:
            units.unsent(base, frame, time_ns)
        store = self._store
        unit = store.outstanding.pop(seq)
        if unit is not None:
            units.settle(seq, unit, frame, time_ns)
        # Most fields repeat what earlier ones have acknowledged, and then nothing is left to
        # settle.
        if bits and (store.outstanding.count or numbers.missing.size):
            self._settle_bits(units, bits, seq, frame, time_ns)

    def _bits_after(self, units: Units, base: i64, bits: int, frame: i64, time_ns: i64) -> None:
        self._take_exact(units, base, frame, time_ns)
        numbers, store = self._numbers, self._store
        if numbers.newest == ABSENT:
            return
        seq = numbers.extend(base)
        missing = numbers.missing
        gaps = missing.size > 0 and numbers.consecutive
        # One test of the whole range nearly always saves one for each bit.
        gaps = gaps and missing.touches(int(seq) + 1, int(seq) + 1 + bits.bit_length())
        while bits:
            seq += 1
            if bits & 1:
                unit = store.outstanding.pop(seq)
                if unit is not None:
                    units.settle(seq, unit, frame, time_ns)
                elif seq > numbers.newest:
                    self._note_unseen(seq)
                elif gaps and seq in missing:
                    self.report_unseen(seq, frame, time_ns)
            bits >>= 1

    def _settle_bits(self, units: Units, bits: i64, base: i64, frame: i64, time_ns: i64) -> None:
        """Settle the units that the bit field before `base` acknowledges."""
        outstanding, missing = self._store.outstanding, self._numbers.missing
        low = base - self._context.rule.ack_bits
        # Fewer units wait than the field has bits, so the units are walked instead of the bits.
        for unit in outstanding.within(low, base):
            if bits >> (base - 1 - unit.number) & 1:
                outstanding.remove(unit)
                units.settle(unit.number, unit, frame, time_ns)
        if missing.size:
            for seq in missing.within(int(low), int(base)):
                if bits >> (base - 1 - seq) & 1:
                    self.report_unseen(seq, frame, time_ns)

    def _take_cumulative(self, units: Units, base: i64, frame: i64, time_ns: i64) -> None:
        numbers = self._numbers
        last = numbers.newest
        if last == ABSENT:
            self.note_before_first(base, time_ns)
            return
        seq = numbers.extend(base)
        if seq > last:
            units.unsent(base, frame, time_ns)
            return
        if seq > self._covered and numbers.consecutive and numbers.missing.size:
            # The receiver accepts units in order only, so it has them all.
            # Only the first acknowledgement that covers a missing number reports it.
            low = max(numbers.first, self._covered + 1)
            for number in numbers.missing.within(low, int(seq) + 1):
                self.report_unseen(number, frame, time_ns)
            self._covered = seq
        outstanding = self._store.outstanding
        for unit in outstanding.within(ABSENT, seq + 1):
            outstanding.remove(unit)
            units.settle(unit.number, unit, frame, time_ns)

    def _report_unbegun(self, units: Units, base: int, frame: i64, time_ns: i64) -> None:
        """Report an acknowledgement of a unit that cannot have been sent yet."""
        first, numbers = self._context.rule.first_seq, self._numbers
        if not self._context.started or first is None or numbers.ended is not None:
            return
        if (base - first) & int(numbers.mask) < numbers.half:
            units.unsent(base, frame, time_ns)

    # -- feedback ----------------------------------------------------------------------------------

    def nack(self, units: Units, base: i64, bits: int, frame: i64, time_ns: i64) -> None:
        """Process feedback: `base` was delivered, and `bits` reports each unit before it."""
        numbers = self._numbers
        last = numbers.newest
        if last == ABSENT:
            self.note_before_first(base, time_ns)
            self._report_unbegun(units, base, frame, time_ns)
            return
        seq = numbers.extend(base)
        if seq > last:
            units.unsent(base, frame, time_ns)
            return
        feedback = self.feedback
        if feedback is None:
            start = self._context.rule.first_seq if self._context.started else None
            # Units from before the capture were reported, too, but are not counted here.
            newest = numbers.first - 1 if start is None else min(start, numbers.first) - 1
            feedback = self.feedback = Feedback(newest)
        newest = feedback.newest
        # The sender ignores a report with a base that is not newer, even if its bits have changed.
        if seq <= newest:
            return
        feedback.newest = seq
        quality = self._ack_stats.loss_quality
        sound = quality is not None and quality.broken_ns is None
        if seq - newest > 1:
            self._apply_older_feedback(units, feedback, newest, seq, bits, frame, time_ns)
        self._apply_feedback(units, feedback, seq, True, frame, time_ns)
        if quality is not None and sound and quality.broken_ns is not None:
            # The sender processes this header to its end, and nothing after it.
            feedback.mark()
            quality.mark()

    def _apply_older_feedback(
        self, units: Units, feedback: Feedback, newest: int, base: int, bits: int, frame: i64,
        time_ns: i64,
    ) -> None:  # fmt: skip
        """Process what the feedback reports about the units between the last base and this one."""
        edge = max(base - self._context.rule.ack_bits, newest + 1)
        # No later report can cover them any more.
        feedback.assumed_lost += edge - newest - 1
        outstanding = self._store.outstanding
        for unit in outstanding.within(newest + 1, edge):
            outstanding.remove(unit)
            units.settle_unacked(unit.number, unit, seen=False)
        for number in range(edge, base):
            delivered = bool(bits >> (base - 1 - number) & 1)
            self._apply_feedback(units, feedback, number, delivered, frame, time_ns)

    def _apply_feedback(
        self, units: Units, feedback: Feedback, number: int, delivered: bool, frame: i64,  # noqa: FBT001
        time_ns: i64,
    ) -> None:  # fmt: skip
        """Process the report about one unit."""
        unit = self._store.outstanding.pop(number)
        if delivered:
            feedback.delivered += 1
            if unit is not None:
                units.settle(number, unit, frame, time_ns)
            elif number in self._numbers.missing:
                self.report_unseen(number, frame, time_ns)
        else:
            feedback.lost += 1
            if unit is not None:
                units.reported_lost(number, unit)
        quality = self._ack_stats.loss_quality
        if quality is None:
            return
        if delivered and quality.calm:
            quality.remember(0)
        else:
            self._ack_stats.add_outcome(quality, 0 if delivered else 1, frame, time_ns)

    def revert_after_close(self) -> None:
        """Undo what was counted after the sender had closed the connection."""
        quality = self._ack_stats.loss_quality
        if self.feedback is not None and quality is not None:
            self.feedback.revert()
            quality.revert()
