"""One sequence space in one direction: its numbers and units. `unit` is the hot path."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from netdissect.model.diagnosis import Burst
from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import AckRule
from netdissect.track.ledger import CONTENT, MAX_OUTSTANDING, TIME
from netdissect.track.repeats import OVERTAKEN_BY, Repeated
from netdissect.track.unit import Stray, Unit
from netdissect.track.vantage import MIN_DISORDER

__all__ = ["MAX_BURSTS", "MAX_MISSING", "MAX_STRAYS", "Space", "jump_text"]

MAX_MISSING: Final = 1024
"""Skipped numbers remembered per space, to tell a late first copy from a repeated one."""
MAX_STRAYS = 64
"""Numbers per space that stand alone, remembered for their acknowledgements."""
LEAST_BURST: Final = 2
"""Fewer numbers in a row that are missing are no burst of losses."""
MAX_BURSTS = 32
"""Bursts kept per space, the longest."""


class Space(Repeated):
    """Units of one space in one direction, from their first copy to their report."""

    __slots__ = ()

    def unit(  # noqa: C901, PLR0912 - hot path: calls would cost more than what they do
        self,
        wire_seq: i64,
        labelled: bool | None,  # noqa: FBT001 - hot path, as in the event
        content: Any,
        type_: str | None,
        frame: int,
        time_ns: int,
    ) -> None:
        """Take one copy of a unit that its sender wants acknowledged."""
        last = self.newest
        if last == ABSENT:
            last = self._begin(wire_seq)
        ahead = (wire_seq - last) & self._mask
        mark: i64 = hash(content)
        if ahead == 1:
            seq: i64 = last + 1
            self.newest = seq
            if self._counted is not None and self._counted.copies:
                self._counted.judge(0, seq, time_ns)
        else:
            if self._is_far(ahead, last):
                if self._alone(wire_seq, ahead, labelled, mark, type_, frame, time_ns):
                    return
                last = self.reached()
                ahead = (wire_seq - last) & self._mask
            if 0 < ahead <= self._half:
                seq = last + ahead
                self._advance(last, seq, frame, time_ns)
            else:
                seq = last + ahead
                if ahead:
                    seq -= self._modulus
                if self._begins_anew(seq, labelled, mark, frame, time_ns):
                    seq = self._begin(wire_seq) + 1
                    self.newest = seq
                elif self._repeats(seq, labelled, mark, type_, frame, time_ns):
                    return
        self.units += 1
        record = None
        if self.recorder is not None:
            record = self.recorder.first(self, seq, wire_seq & self._mask, type_, frame, time_ns)
        unit = Unit(time_ns, mark, time_ns + self.delay_ns, frame, record)
        self.current = unit
        if self._keeps:
            outstanding = self.outstanding
            outstanding[seq] = unit
            if not self.units & 255 or len(outstanding) > MAX_OUTSTANDING:
                self.shed(time_ns)
        else:
            self.remember(seq, unit)
        if self.carrier is not None:
            self._load(self._one(seq))

    def plain_unit(
        self, wire_seq: int, content: Any, type_: str | None, frame: int, time_ns: int
    ) -> None:
        """Take one copy of a unit that nobody will acknowledge."""
        before = self.units
        self.unit(wire_seq, None, content, type_, frame, time_ns)
        if self.units == before:
            return
        self.plain += 1
        unit = self.current
        if self._stray is not None and self._stray.unit is unit:
            self._stray.plain = True
        seq = next(reversed(self.outstanding), None)
        if seq is not None and unit is not None and self.outstanding[seq] is unit:
            del self.outstanding[seq]
            self.remember(seq, unit)

    def number(self, wire_seq: i64, frame: int, time_ns: int) -> None:
        """Take a number that something else than a unit has used."""
        last = self.newest
        if last == ABSENT:
            last = self._begin(wire_seq)
        ahead = (wire_seq - last) & self._mask
        if ahead == 1 and (self._counted is None or not self._counted.copies):
            self.newest = last + 1
            self.skipped += 1
            return
        if self._is_far(ahead, last):
            if self._alone(wire_seq, ahead, None, None, None, frame, time_ns):
                return
            last = self.reached()
            ahead = (wire_seq - last) & self._mask
        if 0 < ahead <= self._half:
            self._advance(last, last + ahead, frame, time_ns)
            self.skipped += 1
            return
        seq = int(last + ahead - (self._modulus if ahead else 0))
        if seq in self.missing:
            self._came(seq, time_ns)
            self.skipped += 1
        elif seq < self.first:
            self._lower(seq)
            self.skipped += 1

    # -- numbers -----------------------------------------------------------------------------------

    def _begin(self, wire_seq: i64) -> i64:
        """Take the first number of an epoch as base; return the number before it."""
        base = int(wire_seq & self._mask)
        if self._spans is not None:
            # Extended numbers never repeat: a new epoch starts at the next multiple of the modulus.
            base += ((self._spans[1] >> self.rule.bits) + 1) << self.rule.bits
        self.first = base
        return base - 1

    def _advance(self, last: i64, seq: i64, frame: int, time_ns: int) -> None:
        """Take a newer number; note those between it and the newest one so far."""
        self.newest = seq
        if self._counted is not None:
            self._counted.judge(seq - last - 1, seq, time_ns)
        if seq == last + 1 or not self.consecutive:
            return
        self._miss(last + 1, seq)
        if seq - last > LEAST_BURST:
            self._burst(last, seq, frame, time_ns)
        if self.recorder is not None:
            self.recorder.gap(self, last + 1, seq - 1, frame, time_ns)

    def _burst(self, last: int, seq: int, frame: int, time_ns: int) -> None:
        """Note how many numbers in a row are missing before `seq`."""
        bursts = self.bursts
        since_ns = self._heard_ns(last, time_ns)
        bursts.append(Burst(seq - last - 1, since_ns, time_ns, frame, last + 1, seq - 1))
        if len(bursts) > MAX_BURSTS:
            self.hit("MAX_BURSTS")
            bursts.remove(min(bursts, key=lambda burst: burst.count))

    def _overtaken_only(self, seq: int) -> None:
        """Take back that a number was lost with others: its sender sends nothing again."""
        for place, burst in enumerate(self.bursts):
            if burst.low <= seq <= burst.high:
                self.bursts[place] = replace(burst, count=burst.count - 1)
                return

    def _heard_ns(self, last: int, time_ns: int) -> int:
        """Return when `last`, the newest number until now, came; now where nothing is known."""
        unit, slot = self.outstanding.get(last), self.slot_of(last)
        if unit is not None:
            return unit.first_ns
        return time_ns if slot < 0 else int(self._ring.cells[slot + TIME])

    def _lower(self, seq: int) -> None:
        """Take a number below all so far: those in between are still to come."""
        if self.rule.consecutive:
            self._miss(seq + 1, self.first)
        self.first = seq

    def _came(self, seq: int, time_ns: int) -> None:
        """Take a number that was skipped."""
        self.missing.discard(seq)
        if self.rule.resend is None and self.bursts:
            self._overtaken_only(seq)
        if self._counted is not None:
            self._counted.came(seq, time_ns)
        if self.recorder is not None:
            self.recorder.came(seq)

    def _miss(self, low: int, end: int) -> None:
        """Remember the newest of the numbers from `low` to before `end` as not seen."""
        if low >= end:
            return
        self.missing.add(max(low, end - MAX_MISSING), end)
        if self.missing.size > MAX_MISSING:
            self.hit("MAX_MISSING")
            self.missing.keep(MAX_MISSING // 2)

    # -- numbers that stand alone ------------------------------------------------------------------

    def _is_far(self, ahead: i64, last: i64) -> bool:
        """Return whether a number `ahead` of the newest one is far from all that were seen."""
        if ahead <= self._half:
            # Where copies take numbers, those seen since the newest one have taken some.
            used = 0 if self._counted is None else len(self._counted.copies)
            return ahead > self.reach + used
        seq = last + ahead - self._modulus
        if self.rule.restarts_at_will and last - seq > self.rule.stride_reach:
            return True  # What says that the numbers begin anew may not be in the capture.
        if seq >= self.first:
            return False
        first = self.rule.first_seq
        if self.started and self._spans is None and first is not None and seq < first:
            return True
        return seq < self.first - self.reach

    def _alone(
        self,
        wire_seq: i64,
        ahead: i64,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        mark: int | None,
        type_: str | None,
        frame: int,
        time_ns: int,
    ) -> bool:
        """Take a number far from all before; return False where it confirms the one before it, so
        that both count as the others do. `mark` is None for a number of no unit.
        """
        last = self.reached()
        wire_seq &= self._mask
        before = self._stray
        if before is not None and before.last == last:
            step = (wire_seq - before.wire_seq) & self._mask
            if step == 0:
                if before.unit is not None and mark is not None:
                    self._again(before.seq, before.unit, labelled, mark, type_, frame, time_ns)
                return True
            if step <= self.reach:
                self._confirm(before)
                return False
        seq = last + (ahead if ahead <= self._half else ahead - self._modulus)
        if 0 < self.first - seq <= self.reach:
            self.find(
                "number-before-first", frame, time_ns, self.direction,
                f"{wire_seq} is before {self.first & self._mask}, the first", seq=seq,
            )  # fmt: skip
        else:
            self.find(
                "sequence-jump", frame, time_ns, self.direction,
                jump_text(seq - last), seq=seq, before=last,
            )  # fmt: skip
        unit = None if mark is None else self._apart(seq, mark, type_, frame, time_ns)
        self._stands(Stray(wire_seq, seq, last, unit, frame, time_ns))
        return True

    def _stands(self, stray: Stray) -> None:
        """Remember a number that stands alone, for the next one and for its acknowledgement."""
        self._stray = stray
        strays = self._strays
        strays.pop(stray.wire_seq, None)
        strays[stray.wire_seq] = stray
        if len(strays) > MAX_STRAYS:
            self.hit("MAX_STRAYS")
            del strays[next(iter(strays))]

    def _confirm(self, stray: Stray) -> None:
        """Count a number with the others, now that the next one follows it."""
        self._stray = None
        self._strays.pop(stray.wire_seq, None)
        seq, unit = stray.seq, stray.unit
        if seq > stray.last:
            self._advance(stray.last, seq, stray.frame, stray.time_ns)
        else:
            self.find(
                "numbers-restart", stray.frame, stray.time_ns, self.direction,
                "numbers start again", seq=seq,
            )  # fmt: skip
            self.restart()
            seq = self._begin(stray.wire_seq) + 1
            self.newest = seq
        if unit is None:
            self.skipped += 1
            return
        self.apart -= 1
        if self.recorder is not None:
            self.recorder.adopt(unit, seq, stray.wire_seq)
        if stray.plain or stray.acked or not self._keeps:
            self.remember(seq, unit)
        else:
            self.outstanding[seq] = unit

    def _unsent(self, base: int, frame: int, time_ns: int) -> None:
        """Take the acknowledgement of a number beyond the newest: of one that stands alone, or of
        none.
        """
        stray = self._strays.get(base & self._mask)
        if stray is None:
            super()._unsent(base, frame, time_ns)
        elif stray.unit is not None and not stray.acked:
            stray.acked = True
            self.acked += 1
            if self.recorder is not None:
                ambiguous = stray.unit.copies > 1
                self.recorder.acked(stray.unit, frame, time_ns, ambiguous=ambiguous)
            self._deliver(stray.unit, frame, time_ns)

    def _begins_anew(
        self,
        seq: int,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        mark: i64,
        frame: int,
        time_ns: int,
    ) -> bool:
        """Return whether a number that was used before shows that its sender numbers afresh, and
        end the epoch: it holds something else, and so did the one before it, just now. What says
        so may not be in the capture.
        """
        unit, slot = self.outstanding.get(seq), self.slot_of(seq)
        content = mark
        if unit is not None:
            content = unit.content
        elif slot >= 0:
            content = self._ring.cells[slot + CONTENT]
        # What its sender marks as sent again differs by the mark; a stamp is no such mark.
        if content == mark or (labelled and self.rule.ack is not AckRule.STAMPED):
            return False
        before, self._other = self._other, (seq, frame)
        if before is None or before[0] != seq - 1 or before[1] == frame:
            return False
        self.find(
            "numbers-restart", frame, time_ns, self.direction, "numbers start again", seq=seq
        )
        self.restart()
        return True

    # -- further copies ----------------------------------------------------------------------------

    def _repeats(
        self,
        seq: int,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        content: i64,
        type_: str | None,
        frame: int,
        time_ns: int,
    ) -> bool:
        """Take a number that is not newer; return False where it is a first copy that came late."""
        unit = self.outstanding.get(seq)
        if unit is not None:
            self._again(seq, unit, labelled, content, type_, frame, time_ns)
            return True
        slot = self.slot_of(seq)
        if slot >= 0:
            self._settled_again(seq, slot, labelled, content, type_, frame, time_ns)
            return True
        if seq in self.missing:
            self._came(seq, time_ns)
        elif seq >= self.first and self.rule.consecutive:
            # It was seen, or it is older than the memory of skipped numbers: nobody can tell.
            self.hit("memory")
            self.forgotten += 1
            self.current = None
            return True
        elif seq < self.first:
            self._lower(seq)
        # Where the capture begins later, what is sent again now may have been first sent before.
        fresh = self.started or (self.rule.resend is None and seq > self.first)
        if self.rule.consecutive and fresh:
            self.disorder += 1
            if self.disorder <= MIN_DISORDER:
                self._sight()
        self.out_of_order += 1
        self.findings.add("out-of-order", frame, time_ns, self.direction)
        if self.soonest_ns:
            self._late_first(seq, time_ns)
        return False

    def _late_first(self, seq: int, time_ns: int) -> None:
        """Remember how late a first copy is, as those show that were sent later and came before."""
        held_ns = 0
        outstanding = self.outstanding
        last = min(seq + OVERTAKEN_BY, int(self.newest))
        for later in range(seq + 1, last + 1):
            slot = self.slot_of(later)
            if slot >= 0:
                held_ns = max(held_ns, time_ns - int(self._ring.cells[slot + TIME]))
            elif outstanding:
                unit = outstanding.get(later)
                if unit is not None:
                    held_ns = max(held_ns, time_ns - int(unit.first_ns))
        self._hold(seq, held_ns)


def jump_text(step: int) -> str:
    """Return what a finding says of a number `step` away from the newest one."""
    way = "ahead" if step > 0 else "back"
    return f"number jumps {way} by {abs(step)}; it stands alone unless later ones confirm it"
