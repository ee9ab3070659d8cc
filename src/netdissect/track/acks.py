"""Which units the acknowledgements of one space name, and what feedback tells of them."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import AckRule
from netdissect.track.answers import Answers
from netdissect.track.feedback import Feedback
from netdissect.track.kept import Kept
from netdissect.track.numbers import Numbers
from netdissect.track.setting import Setting
from netdissect.track.unit import Units

__all__ = ["Acks"]

_BITS_BEFORE: Final = AckRule.BITS_BEFORE
_BITS_AFTER: Final = AckRule.BITS_AFTER
_CUMULATIVE: Final = AckRule.CUMULATIVE


class Acks:
    """Reads what the other direction says of the units of a space, and has them settled."""

    __slots__ = (
        "_answers", "_covered", "_kept", "_named", "_numbers", "_setting", "feedback", "goes_on",
        "rule",
    )  # fmt: skip

    def __init__(self, setting: Setting, numbers: Numbers, kept: Kept, answers: Answers) -> None:
        self._setting = setting
        self._numbers = numbers
        self._kept = kept
        self._answers = answers
        self._covered = -1
        """Newest number that a cumulative acknowledgement has named while others were missing."""
        self._named = -1
        """What was acknowledged first while nothing of the space was seen; -1 = nothing."""
        self.goes_on = False
        """True once something else was acknowledged then: its sender is there, and not captured."""
        self.feedback: Feedback | None = None
        self.rule: AckRule | None = setting.rule.ack
        """How acknowledgements name units; None: the connection is over, nothing is taken."""

    def take(self, units: Units, base: i64, bits: int, frame: int, time_ns: int) -> None:
        """Take an acknowledgement as the rule of the space reads it."""
        rule = self.rule
        if rule is _BITS_BEFORE:
            self._before(units, base, bits, frame, time_ns)
        elif rule is _CUMULATIVE:
            self._cumulative(units, base, frame, time_ns)
        elif rule is _BITS_AFTER:
            self._after(units, base, bits, frame, time_ns)
        elif rule is not None:
            self._exact(units, base, frame, time_ns)

    def name_unheard(self, base: int) -> None:
        """Take an acknowledgement while nothing of the space was seen."""
        if self._named < 0:
            self._named = base
        self.goes_on = self.goes_on or base != self._named

    def unsent(self, base: int, frame: int, time_ns: int) -> None:
        """Report the acknowledgement of a number beyond the newest."""
        setting = self._setting
        setting.findings.misses = True
        setting.find(
            "ack-of-unsent", frame, time_ns, 1 - setting.direction,
            f"{base} is acknowledged, and no copy of it was seen before", wire_seq=base,
        )  # fmt: skip

    def unseen(self, seq: int, frame: int, time_ns: int) -> None:
        """Report the acknowledgement of a number that was skipped."""
        setting = self._setting
        if "ack-of-unseen" not in setting.rule.remarks:
            setting.findings.misses = True  # else its programs do so without having it
        setting.find(
            "ack-of-unseen", frame, time_ns, 1 - setting.direction,
            f"{seq & self._numbers.mask} is acknowledged, and no copy of it was seen", seq=seq,
        )  # fmt: skip

    def _exact(self, units: Units, base: i64, frame: int, time_ns: int) -> None:
        numbers = self._numbers
        if numbers.newest == ABSENT:
            self.name_unheard(base)
            return
        seq = numbers.extend(base)
        unit = self._kept.take_out(seq)
        if unit is not None:
            units.settle(seq, unit, frame, time_ns)
        elif seq > numbers.newest:
            units.unsent(base, frame, time_ns)
        elif numbers.consecutive and seq in numbers.missing:
            self.unseen(seq, frame, time_ns)

    def _before(self, units: Units, base: i64, bits: int, frame: int, time_ns: int) -> None:
        numbers = self._numbers
        last = numbers.newest
        if last == ABSENT:
            self.name_unheard(base)
            self._unbegun(units, base, frame, time_ns)
            return
        ahead = (base - last) & numbers.mask
        seq = last + ahead
        if ahead > numbers.half:
            seq -= numbers.modulus
        elif ahead:
            units.unsent(base, frame, time_ns)
        kept = self._kept
        unit = kept.take_out(seq)
        if unit is not None:
            units.settle(seq, unit, frame, time_ns)
        if bits and (kept.outstanding or numbers.missing.size):
            self._bits(units, bits, seq, frame, time_ns)

    def _after(self, units: Units, base: i64, bits: int, frame: int, time_ns: int) -> None:
        self._exact(units, base, frame, time_ns)
        numbers, kept = self._numbers, self._kept
        if numbers.newest == ABSENT:
            return
        seq = numbers.extend(base)
        missing = numbers.missing
        gaps = missing.size > 0 and numbers.consecutive
        gaps = gaps and missing.touches(int(seq) + 1, int(seq) + 1 + bits.bit_length())
        while bits:
            seq += 1
            if bits & 1:
                unit = kept.take_out(seq)
                if unit is not None:
                    units.settle(seq, unit, frame, time_ns)
                elif gaps and seq in missing:
                    self.unseen(seq, frame, time_ns)
            bits >>= 1

    def _bits(self, units: Units, bits: i64, base: i64, frame: int, time_ns: int) -> None:
        """Settle what the bit field before `base` covers."""
        outstanding, missing = self._kept.outstanding, self._numbers.missing
        width = self._setting.rule.ack_bits
        low = int(base) - width
        if not outstanding:
            covered: list[int] = []
        elif len(outstanding) > width:
            covered = [seq for seq in range(low, int(base)) if seq in outstanding]
        else:
            covered = [seq for seq in outstanding if low <= seq < base]
        for seq in covered:
            if bits >> (base - 1 - seq) & 1:
                unit = self._kept.take_out(seq)
                if unit is not None:
                    units.settle(seq, unit, frame, time_ns)
        if missing.size:
            for seq in missing.within(low, int(base)):
                if bits >> (base - 1 - seq) & 1:
                    self.unseen(seq, frame, time_ns)

    def _cumulative(self, units: Units, base: i64, frame: int, time_ns: int) -> None:
        numbers = self._numbers
        last = numbers.newest
        if last == ABSENT:
            self.name_unheard(base)
            return
        seq = numbers.extend(base)
        if seq > last:
            units.unsent(base, frame, time_ns)
            return
        if seq > self._covered and numbers.consecutive and numbers.missing.size:
            # Its receiver takes units in order: it has them all.
            low = max(numbers.first, self._covered + 1)
            for number in numbers.missing.within(low, int(seq) + 1):
                self.unseen(number, frame, time_ns)
            self._covered = seq
        outstanding = self._kept.outstanding
        if outstanding:
            for covered in [other for other in outstanding if other <= seq]:
                unit = self._kept.take_out(covered)
                if unit is not None:
                    units.settle(covered, unit, frame, time_ns)

    def _unbegun(self, units: Units, base: int, frame: int, time_ns: int) -> None:
        """Take an acknowledgement where its sender has sent nothing yet in this capture."""
        first, numbers = self._setting.rule.first_seq, self._numbers
        if not self._setting.started or first is None or numbers.spans is not None:
            return
        if (base - first) & int(numbers.mask) < numbers.half:
            units.unsent(base, frame, time_ns)

    # -- feedback ----------------------------------------------------------------------------------

    def nack(self, units: Units, base: i64, bits: int, frame: int, time_ns: int) -> None:
        """Take feedback that tells once and for all what was delivered."""
        numbers = self._numbers
        last = numbers.newest
        if last == ABSENT:
            self.name_unheard(base)
            self._unbegun(units, base, frame, time_ns)
            return
        seq = numbers.extend(base)
        if seq > last:
            units.unsent(base, frame, time_ns)
            return
        feedback = self.feedback
        if feedback is None:
            start = self._setting.rule.first_seq if self._setting.started else None
            newest = numbers.first - 1 if start is None else min(start, numbers.first) - 1
            feedback = self.feedback = Feedback(newest)
        newest = feedback.newest
        if seq <= newest:
            return
        feedback.newest = seq
        quality = self._answers.loss_quality
        sound = quality is not None and quality.broken_ns is None
        if seq - newest > 1:
            self._told_before(units, feedback, newest, seq, bits, frame, time_ns)
        self._told(units, feedback, seq, True, frame, time_ns)
        if quality is not None and sound and quality.broken_ns is not None:
            # Its sender takes the header to its end, and nothing after it.
            feedback.mark()
            quality.mark()

    def _told_before(
        self, units: Units, feedback: Feedback, newest: int, base: int, bits: int, frame: int,
        time_ns: int,
    ) -> None:  # fmt: skip
        """Take what the feedback says of the units between the last base and this one."""
        edge = max(base - self._setting.rule.ack_bits, newest + 1)
        feedback.assumed_lost += edge - newest - 1
        outstanding = self._kept.outstanding
        if edge - newest <= len(outstanding):
            passed = [seq for seq in range(newest + 1, edge) if seq in outstanding]
        else:
            passed = [seq for seq in outstanding if newest < seq < edge]
        for number in passed:
            units.end(number, outstanding.pop(number), seen=False)
        for number in range(edge, base):
            delivered = bool(bits >> (base - 1 - number) & 1)
            self._told(units, feedback, number, delivered, frame, time_ns)

    def _told(
        self, units: Units, feedback: Feedback, number: int, delivered: bool, frame: int,  # noqa: FBT001
        time_ns: int,
    ) -> None:  # fmt: skip
        """Take what the sender is told of one unit."""
        unit = self._kept.take_out(number)
        if delivered:
            feedback.delivered += 1
            if unit is not None:
                units.settle(number, unit, frame, time_ns)
            elif number in self._numbers.missing:
                self.unseen(number, frame, time_ns)
        else:
            feedback.lost += 1
            if unit is not None:
                units.told_lost(number, unit)
        quality = self._answers.loss_quality
        if quality is None:
            return
        if delivered and quality.calm:
            quality.keep(0)
        else:
            self._answers.outcome(quality, 0 if delivered else 1, frame, time_ns)

    def close_silently(self) -> None:
        """Take back what was counted after its sender had closed the connection."""
        quality = self._answers.loss_quality
        if self.feedback is not None and quality is not None:
            self.feedback.revert()
            quality.revert()
