"""Counts the units of one space per span of time, for `stats`, instead of recording them. Only a
unit that comes again before it is acknowledged gets a record.
"""

from __future__ import annotations

from typing import Final

from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import SpaceRule
from netdissect.model.reports import ConnectionEvent, Copy, UnitRecord
from netdissect.track.context import SpaceContext
from netdissect.track.outcomes import KIND, record_acked
from netdissect.track.recorder import MAX_COPIES, ConnectionRecorder, SpaceRecorder
from netdissect.track.totals import SpaceTotals, undecided
from netdissect.track.unit import Carried, Unit

MAX_LATE_ONES: Final = 256
"""Units of a space whose round trips wait until their copies are decided."""
_UNIT: Final = UnitRecord(0, 0, "", 0, 0, None, [], None, None, None, False, "unknown", None)
_NEW: Final = (_UNIT, Copy(0, 0, "original"))
_AGAIN: Final = (_UNIT, Copy(0, 0, "retransmission"))
"""Entries of `ConnectionRecorder.touched`: for units that are counted, only new or not matters."""


def summed(parent: ConnectionRecorder | None, direction: int, space: str) -> SpaceTotals | None:
    """Return the totals of a space; None if its units are recorded, or nobody needs them."""
    if parent is None or parent.sums is None:
        return None
    sums = SpaceTotals(direction, space, parent.sums.place_of)
    parent.sums.add_totals(parent.connection, sums)
    return sums


def space_recorder(parent: ConnectionRecorder, direction: int, rule: SpaceRule) -> SpaceRecorder:
    """Return the recorder of a space, which records its units or only counts them."""
    sums = summed(parent, direction, rule.name)
    if sums is None:
        return SpaceRecorder(parent, direction, rule)
    return TotallingRecorder(parent, sums, rule)


class TotallingRecorder(SpaceRecorder):
    """Counts the units of one space in one direction."""

    __slots__ = ("_newest_gap", "_reported", "_touched", "totals")

    def __init__(self, parent: ConnectionRecorder, totals: SpaceTotals, rule: SpaceRule) -> None:
        super().__init__(parent, totals.direction, rule)
        self._touched = parent.touched
        self.totals = totals
        self._newest_gap: i64 = ABSENT
        """The newest number by gaps alone."""
        self._reported: Unit | None = None
        """The last unit that its receiver has reported lost."""

    # -- sent --------------------------------------------------------------------------------------

    def run(
        self, space: SpaceContext, seq: int, wire_seq: int, count: int, frame: int, time_ns: int
    ) -> UnitRecord | None:
        """Count consecutive new units with numbers above all others."""
        del frame
        self._new(space, time_ns, count, self.totals.arrive(seq, wire_seq, count))
        return None

    def first(
        self, space: SpaceContext, seq: int, wire_seq: int, type_: str | None, frame: int,
        time_ns: int,
    ) -> UnitRecord | None:  # fmt: skip
        """Count a new unit."""
        del type_, frame
        self._new(space, time_ns, 1, self.totals.arrive(seq, wire_seq, 1))
        return None

    def lone(
        self, space: SpaceContext, seq: int, wire_seq: int, type_: str | None, frame: int,
        time_ns: int,
    ) -> UnitRecord | None:  # fmt: skip
        """Count a unit whose number says nothing about the numbers between it and others."""
        del seq, wire_seq, type_, frame
        self._new(space, time_ns, 1, 1)
        return None

    def adopt(self, unit: Unit, seq: int, wire_seq: int) -> None:
        """Count the number of an isolated unit, now that another number confirms it."""
        # Less 1: `lone` has counted the number already.
        self.totals.span(unit.first_ns).arrived += self.totals.arrive(seq, wire_seq, 1) - 1

    def further_copy(
        self, space: SpaceContext, unit: Unit, seq: int, copied: bool | None,  # noqa: FBT001
        labelled: bool | None, frame: int, time_ns: int, due_ns: int,  # noqa: FBT001
    ) -> Copy:  # fmt: skip
        """Count a further copy of an outstanding unit, which gets a record; return the copy."""
        copy = self.late_copy(space, seq, copied, labelled, frame, time_ns, due_ns)
        record = unit.record
        if record is None:
            first = Copy(unit.frame, unit.first_ns, "original")
            record = unit.record = UnitRecord(
                0, self.totals.direction, self.totals.space, 0, seq, None, [first],
                None, None, None, False, "unknown", None,
            )  # fmt: skip
        if len(record.copies) < MAX_COPIES:
            record.copies.append(copy)
        return copy

    def late_copy(
        self, space: SpaceContext, seq: int, copied: bool | None, labelled: bool | None,  # noqa: FBT001
        frame: int, time_ns: int, due_ns: int,
    ) -> Copy:  # fmt: skip
        """Count a further copy of a settled unit; return the copy."""
        del space, seq, labelled, due_ns
        copy = Copy(frame, time_ns, KIND[copied])
        self.totals.add_copies(time_ns, 1, resent=copied is False)
        self._touched.append(_AGAIN)
        return copy

    def copy_reclassified(self, copy: Copy, before: str) -> None:
        """Process a change of a copy's kind from `before`."""
        span = self.totals.span(copy.time_ns)
        span.retransmissions += copy.kind == "retransmission"
        span.retransmissions -= before == "retransmission"

    # -- settled -----------------------------------------------------------------------------------

    def acked(
        self, unit: Unit, frame: int, time_ns: int, *, ambiguous: bool, sample_ns: i64 = ABSENT
    ) -> None:
        """Count an acknowledged unit."""
        record = unit.record
        if record is None:
            if ambiguous:
                self.totals.span(unit.first_ns).decided += 1
                return
            sample: i64 = time_ns - unit.first_ns if sample_ns == ABSENT else sample_ns
            self.totals.acked(unit.first_ns, unit.frame, sample, 1)
            return
        record_acked(record, frame, time_ns, ambiguous=ambiguous)
        if sample_ns != ABSENT:
            record.rtt_ms = int(sample_ns) / 1e6
        span = self.totals.span(_first_ns(unit))
        span.decided += 1
        if undecided(record) and len(self.totals.late) < MAX_LATE_ONES:
            self.totals.late.append(record)
            return
        if record.rtt_ms is not None:
            span.took(record.copies[0].frame, record.rtt_ms, 1)

    def acked_run(self, run: Carried, frame: int, time_ns: int) -> None:
        """Count the units of a run that was acknowledged."""
        del frame
        self.totals.acked(run.sent_ns, run.frame, time_ns - run.sent_ns, run.count)

    def dropped(self, unit: Unit, outcome: str, *, lost: bool = False) -> None:
        """Count an unacknowledged unit, and whether it is known to be lost."""
        span = self.totals.span(_first_ns(unit))
        span.unacked += outcome != "unknown"
        # `reported_lost` has counted it as lost already.
        if lost and self._reported is not unit:
            span.decided += 1
            span.lost += 1

    def dropped_run(self, run: Carried, outcome: str) -> None:
        """Count the units of a run that was not acknowledged."""
        if outcome != "unknown":
            self.totals.span(run.sent_ns).unacked += run.count

    def reported_lost(self, unit: Unit) -> None:
        """Count a unit that its receiver has reported lost."""
        self._reported = unit
        span = self.totals.span(_first_ns(unit))
        span.decided += 1
        span.lost += 1

    def set_vantage(self, space: SpaceContext) -> None:
        """Do nothing: what depends on the vantage is decided at the end."""

    # -- numbers that were skipped -----------------------------------------------------------------

    def gap(
        self, space: SpaceContext, low: int, high: int, frame: int, time_ns: int, stride: int = 1
    ) -> None:
        """Count skipped numbers, `stride` apart, in the span of the next number."""
        del frame
        data = {"first_seq": low, "last_seq": high, "step": stride}
        event = ConnectionEvent(0, "gap", time_ns, None, self.totals.direction, "", data)
        self.note_gap(event, space)
        skipped: i64 = (high - low) // stride + 1
        span = self.totals.span(time_ns)
        span.skipped += skipped
        if stride > 1:
            span.arrived += skipped
            span.each += skipped
            return
        newest, newest_gap = self.totals.newest, self._newest_gap
        if newest == ABSENT:
            newest = low - 1
        if newest_gap == ABSENT:
            newest_gap = low - 1
        if high + 1 > newest:
            span.arrived += high + 1 - newest
            newest = high + 1
        if high + 1 > newest_gap:
            span.each += high + 1 - newest_gap
            newest_gap = high + 1
        self.totals.newest, self._newest_gap = newest, newest_gap

    def isolate(self, seq: int) -> None:
        """Do nothing: `retract_gaps` leaves the unit counted, and no number before it."""

    def retract_gaps(self, last: int) -> None:
        """Take back the gaps after number `last`: the numbers there were forged."""
        for gap in self._gaps.take_after(last):
            skipped: i64 = gap.data["last_seq"] - gap.data["first_seq"] + 1
            span = self.totals.span(gap.time_ns)
            span.skipped -= skipped
            span.arrived -= skipped
        self.totals.newest = last

    def arrived_late(self, seq: int) -> None:
        """Count a skipped number that has come after all."""
        gap = self._gaps.find(seq)
        if gap is not None:
            span = self.totals.span(gap.time_ns)
            span.skipped -= 1
            if gap.data["step"] > 1:
                span.arrived -= 1
                span.each -= 1

    # -- spans -------------------------------------------------------------------------------------

    def _new(self, space: SpaceContext, time_ns: i64, units: i64, arrived: i64) -> None:
        """Count new units; `arrived` more numbers are known to have arrived or not."""
        if space.delay_ns:
            self.totals.repeating = True
        self.totals.new(time_ns, units, arrived)
        self._touched.append(_NEW)


def _first_ns(unit: Unit) -> i64:
    """Return when a unit was first sent; a message that is sent again is another `Unit`."""
    return unit.first_ns if unit.record is None else unit.record.copies[0].time_ns
