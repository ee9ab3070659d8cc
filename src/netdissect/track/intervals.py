"""Counts per span of time and direction, for `stats`. Bounded; fed by datagrams and by settled
units.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Container, Iterable
from typing import Any, TypeAlias

from netdissect.model.intervals import Interval
from netdissect.model.native import ABSENT
from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionEvent, ConnectionReport, UnitRecord
from netdissect.track.totals import (
    COUNTS,
    MAX_SAMPLES,
    NEVER,
    SpaceTotals,
    SpanTotals,
    by_place,
    first_of,
    moment_ns,
)  # fmt: skip

__all__ = ["LATE_NS", "MAX_INTERVALS", "MAX_SAMPLES", "MAX_WAITING", "Intervals", "Sums"]

MAX_INTERVALS = 100_000
"""Spans kept; what is later counts into the last one."""
MAX_ALL_SAMPLES = 1 << 19
"""Round trips kept of all spans; of many spans each keeps fewer, but `MIN_SAMPLES`."""
MIN_SAMPLES = 16
_TIDY = 1024
"""After so many further spans it is looked what is too much."""
MAX_WAITING = 16_384
"""Units that wait for late copies, and as many with copies that hang on where the capture was
taken; beyond, they count as they stand.
"""
_Lane: TypeAlias = tuple[int, int, str]
"""(connection, direction, space)."""
_Packed: TypeAlias = "tuple[array[int], array[float]]"
"""Frames of units, and their round trips in ms: a tenth of the memory of pairs."""
Sums: TypeAlias = tuple[list[Interval], dict[tuple[int, int], _Packed], bool, int]
LATE_NS = 120_000_000_000
"""Copies of a unit that come later than this after its first one are not counted."""


class Intervals:
    """Sums up a capture span by span."""

    def __init__(self, span_ns: int, *, partial: bool = False) -> None:
        """Take the length of a span in ns, and whether only some of the units are told, so that
        their numbers do not show which never came.
        """
        self.span_ns = span_ns
        self.partial = partial
        self.start_ns: int | None = None
        """Start of the first span: the time of the first datagram."""
        self.overflowed = False
        """True once something came later than the last span kept."""
        self.early = 0
        """Units that were counted before all was known of their copies."""
        self._rows: dict[tuple[int, int], Interval] = {}
        self._lately: list[Interval | None] = [None, None]
        """Direction -> the row asked for last."""
        self._rtts: dict[tuple[int, int], _Packed] = {}
        self._timed_row: Interval | None = None
        """Of what span and direction the last round trip was; its key, what is kept of it, and the
        last frame of which more is wanted.
        """
        self._timed_key = (0, 0)
        self._frames, self._times = array("q"), array("d")
        self._enough = NEVER
        self._most = MAX_SAMPLES
        """Round trips kept of a span now."""
        self._newest_kept: dict[tuple[int, int], int] = {}
        """Frame of the last of the round trips of a span that are enough."""
        self._newest: dict[_Lane, tuple[int, int]] = {}
        """Lane -> its newest number, and what that is more than on the wire."""
        self._newest_gap: dict[_Lane, tuple[int, int]] = {}
        """The same as gaps alone tell it: for lanes whose numbers are skipped in normal
        operation.
        """
        self._skipping: set[_Lane] = set()
        """Lanes whose numbers are skipped in normal operation."""
        self._repeating: set[_Lane] = set()
        """Lanes that send again what is lost: they have, or have a timer for it, or are TCP's."""
        self._copies: dict[_Lane, dict[int, int]] = {}
        """Lane -> copies per span, while it is not known to be one of them."""
        self._judged_late: dict[int, list[tuple[UnitRecord, Container[int] | None]]] = {}
        """Connection -> units with copies whose kinds hang on where it was captured, while that is
        not known.
        """
        self._late_count = 0
        self._placed: set[int] = set()
        """Connections of which it is known where the capture was made."""
        self._open: dict[int, dict[_Lane, dict[int, SpanTotals]]] = {}
        """Connection -> what it counts, one way or the other, while that is not known."""
        self._sums: dict[int, list[SpaceTotals]] = {}
        """Connection -> what is summed up of its spaces."""
        self._last = 0
        self._waiting: deque[tuple[UnitRecord | ConnectionEvent, Container[int] | None]] = deque()
        self._oldest_ns = 0
        """Moment of the first of them."""
        self._near: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
        """(connection, direction) captured next to its receiver -> (space, last number, time of the
        connection's last packet) of its spaces.
        """

    def datagram(
        self, direction: int, time_ns: int, octets: int, *, repeated: bool = False
    ) -> None:
        """Count one datagram; `repeated` where all units in it were sent before."""
        row = self._row(direction, time_ns)
        row.datagrams += 1
        row.octets += octets
        if repeated:
            row.repeated_octets += octets

    def count(
        self,
        _number: int,
        _protocol: str,
        direction: int,
        time_ns: int,
        octets: int,
        repeated: bool,  # noqa: FBT001 - as in `Count`
    ) -> None:
        """Count one datagram of whatever connection."""
        self.datagram(direction, time_ns, octets, repeated=repeated)

    def place(self, reports: Iterable[ConnectionReport], *, over: bool = True) -> None:
        """Take connections: where the capture was made decides what units and gaps tell. The sooner
        it is known, the less is kept; but what is summed up counts when they are over.
        """
        for report in reports:
            self._placed.add(report.connection)
            for space in report.spaces:
                lane = report.connection, space.direction, space.space
                if report.transport == "tcp" or space.timer_ms is not None or space.retransmissions:
                    self._repeats(lane)
                else:
                    self._copies.pop(lane, None)
            for way in (0, 1):
                if report.vantage == SIDES[1 - way] and not report.misses_frames:
                    spaces = [space for space in report.spaces if space.direction == way]
                    self._near[report.connection, way] = [
                        (space.space, space.last_seq, report.last_time_ns)
                        for space in spaces
                        if space.last_seq is not None and space.consecutive
                    ]
                    self._skipping |= {
                        (report.connection, way, space.space)
                        for space in spaces
                        if not space.consecutive
                    }
            if over:
                self._settle_sums(report.connection)
            self._settle(report.connection)

    def tell(
        self, item: UnitRecord | ConnectionEvent, frames: Container[int] | None = None
    ) -> None:
        """Take a unit or an event, of which only gaps count; in the order of time.

        It counts later, with the copies that have come until then.
        """
        if not item.copies if isinstance(item, UnitRecord) else item.event != "gap":
            return
        waiting = self._waiting
        newest_ns = moment_ns(item)
        if not waiting:
            self._oldest_ns = newest_ns
        waiting.append((item, frames))
        while newest_ns - self._oldest_ns > LATE_NS:
            self._leave()
        if len(waiting) > MAX_WAITING:
            self.early += 1
            self._leave()

    def _leave(self) -> None:
        """Count what has waited longest; there is more behind it."""
        item, frames = self._waiting.popleft()
        self._count(item, frames)
        self._oldest_ns = moment_ns(self._waiting[0][0])

    def _count(self, item: UnitRecord | ConnectionEvent, frames: Container[int] | None) -> None:
        arrived: bool | None = None
        if item.connection in self._placed:
            arrived = (item.connection, item.direction) in self._near
        if isinstance(item, UnitRecord):
            self.unit(item, arrived=arrived, frames=frames)
        elif arrived is not False:
            self.gap(item, placed=arrived is not None)

    def unit(
        self,
        record: UnitRecord,
        *,
        arrived: bool | None = False,
        frames: Container[int] | None = None,
    ) -> None:
        """Count one unit that is settled, in the span of its first copy, and each of its copies in
        the span of its own. Units and gaps are told in the order of time.

        Args:
            record: the unit.
            arrived: whether the capture was made next to its receiver, so that what is in it came;
                None = not known yet.
            frames: frames of which copies count; None = all.

        """
        if not record.copies:
            return
        lane = record.connection, record.direction, record.space
        extra = record.extra
        late = arrived is None and by_place(record)
        if late and self._late_count < MAX_WAITING:
            self._late_count += 1
            self._judged_late.setdefault(record.connection, []).append((record, frames))
            timed = None
        else:
            self.early += late
            self._count_copies(lane, record, frames)
            timed = record.rtt_ms
        if extra and "continued" in extra:
            return
        time_ns = record.copies[0].time_ns
        row = self._row(record.direction, time_ns)
        row.units += 1
        if record.outcome == "unacked" or record.outcome == "given_up":  # noqa: PLR1714 - compiled
            row.unacked += 1
        lost = record.lost or (bool(extra) and extra.get("reported") == "lost")
        known = lost or record.outcome == "acked"
        if arrived is False:  # by far the usual one
            row.decided += 1 if known else 0
            row.lost += 1 if lost else 0
            if timed is not None:
                row.rtt_samples += 1
                self._timed(row, record.copies[0].frame, timed)
            return
        span = SpanTotals()
        if arrived is None:
            span.decided, span.lost = int(known), int(lost)
            if timed is not None:
                span.took(record.copies[0].frame, timed, 1)
        if not self.partial:
            span.each, span.arrived = 1, self._arrived(lane, record)
        self._add(lane, self._index(time_ns), span, arrived=arrived)

    def _count_copies(self, lane: _Lane, record: UnitRecord, frames: Container[int] | None) -> None:
        known = lane in self._repeating
        again = record.space == "tcp" or record.next_resend_due_ns is not None
        first_ns = record.copies[0].time_ns
        for copy in record.copies:
            late = copy.time_ns - first_ns > LATE_NS
            if not late and (frames is None or copy.frame in frames):
                row = self._row(record.direction, copy.time_ns)
                row.copies += 1
                row.retransmissions += copy.kind == "retransmission"
                again = again or copy.kind == "retransmission"
                if known:
                    row.reliable_copies += 1
                else:
                    spans = self._copies.setdefault(lane, {})
                    index = self._index(copy.time_ns)
                    spans[index] = spans.get(index, 0) + 1
        if again and not known:
            self._repeats(lane)

    def _repeats(self, lane: _Lane) -> None:
        """Count the copies of a lane, now that it sends again what is lost."""
        self._repeating.add(lane)
        for index, copies in self._copies.pop(lane, {}).items():
            self._rows[index, lane[1]].reliable_copies += copies

    def gap(self, event: ConnectionEvent, *, placed: bool = True) -> None:
        """Count numbers that were skipped next to their receiver, in the span of the next one.

        Args:
            event: the gap.
            placed: whether it is known that the capture was made there.

        """
        if event.direction is None or self.partial:
            return
        first, last = event.data["first_seq"], event.data["last_seq"]
        step = event.data.get("step")
        lost = (last - first) // (step or 1) + 1 - event.came
        # The number after the gap has come: its sight is what told of the gap.
        lane = event.connection, event.direction, event.data["space"]
        span = SpanTotals(lost)
        if step is None:
            span.arrived = self._advance(self._newest, lane, last + 1, before=first - 1)
            span.each = self._advance(self._newest_gap, lane, last + 1, before=first - 1)
        self._row(event.direction, event.time_ns)
        self._add(lane, self._index(event.time_ns), span, arrived=True if placed else None)

    def sum_up(self, connection: int, sums: SpaceTotals) -> None:
        """Count the sums of a space with those of its connection."""
        self._sums.setdefault(connection, []).append(sums)

    def leave_out(self, connection: int) -> None:
        """Count nothing of what was summed up of a connection."""
        self._sums.pop(connection, None)

    def place_of(self, time_ns: int) -> tuple[int, int, int]:
        """Return by what `SpaceTotals.spans` are looked up at a time, and from when to when."""
        if self.start_ns is None:
            return -1 - time_ns, time_ns, time_ns + 1
        index = self._index(time_ns)
        start_ns = self._start(index)
        end_ns = start_ns + self.span_ns
        inside = start_ns <= time_ns < end_ns
        return (index, start_ns, end_ns) if inside else (index, time_ns, time_ns + 1)

    def _settle_sums(self, connection: int) -> None:
        """Count what was summed up of a connection now that it is known what counts."""
        if self.start_ns is None:
            return
        for sums in self._sums.pop(connection, ()):
            way = sums.direction
            lane = connection, way, sums.space
            arrived = lane[:2] in self._near
            repeating = sums.repeating or lane in self._repeating
            for record in sums.late:
                if record.rtt_ms is not None:
                    first = record.copies[0]
                    late = sums.spans.setdefault(self.place_of(first.time_ns)[0], SpanTotals())
                    late.took(first.frame, record.rtt_ms, 1)
            for index, span in sums.spans.items():
                row = self._row(way, -1 - index if index < 0 else self._start(index))
                row.units += span.units
                row.copies += span.copies
                row.retransmissions += span.retransmissions
                row.reliable_copies += span.copies if repeating else 0
                row.unacked += span.unacked
                self._write(lane, row, span, arrived=arrived)
            if arrived and sums.newest != ABSENT:
                self._newest[lane] = sums.newest, sums.start

    def forget(self, report: ConnectionReport) -> None:
        """Forget a connection that was placed: nothing of it is told any more."""
        self._reached(report.connection)
        self._settle(report.connection)
        self._placed.discard(report.connection)
        for space in report.spaces:
            lane = report.connection, space.direction, space.space
            self._repeating.discard(lane)
            self._skipping.discard(lane)
            self._copies.pop(lane, None)
            self._newest.pop(lane, None)
            self._newest_gap.pop(lane, None)

    def _reached(self, connection: int) -> None:
        """Count the numbers up to the last ones of a connection's spaces."""
        for way in (0, 1):
            for name, last_seq, last_ns in self._near.pop((connection, way), ()):
                self.reach((connection, way, name), last_seq, last_ns)

    def reach(self, lane: _Lane, seq: int, time_ns: int) -> None:
        """Count the numbers up to the last of a space whose receiver is near."""
        if lane in self._newest:
            further = self._advance(self._newest, lane, seq, before=seq)
            self._row(lane[1], time_ns).decided += further

    def _add(self, lane: _Lane, index: int, span: SpanTotals, *, arrived: bool | None) -> None:
        """Count in the span of a direction, or keep until it is known what counts."""
        if arrived is not None:
            self._write(lane, self._rows[index, lane[1]], span, arrived=arrived)
            return
        spans = self._open.setdefault(lane[0], {}).setdefault(lane, {})
        kept = spans.setdefault(index, span)
        if kept is not span:
            kept.add(span)

    def _write(self, lane: _Lane, row: Interval, span: SpanTotals, *, arrived: bool) -> None:
        """Count what counts where the capture was made."""
        if arrived:
            row.decided += span.each if lane in self._skipping else span.arrived
            row.lost += span.skipped
            return
        row.decided += span.decided
        row.lost += span.lost
        row.rtt_samples += span.samples
        for frame, rtt_ms in span.round_trips():
            self._timed(row, frame, rtt_ms)

    def _timed(self, row: Interval, frame: int, rtt_ms: float) -> None:
        """Remember a round trip of a span and direction, if it is one of the first."""
        if row is not self._timed_row:
            self._timed_row, self._timed_key = row, (self._index(row.start_ns), row.direction)
            self._frames, self._times = self._samples(self._timed_key)
            self._enough = self._newest_kept.get(self._timed_key, NEVER)
        frames, times = self._frames, self._times
        if frame <= self._enough:
            frames.append(frame)
            times.append(rtt_ms)
        if len(frames) > 2 * self._most:
            first_of(frames, times, self._most)
            self._enough = self._newest_kept[self._timed_key] = frames[-1]

    def _samples(self, key: tuple[int, int]) -> _Packed:
        """Return the round trips of a span and direction."""
        samples = self._rtts.get(key)
        if samples is None:
            samples = self._rtts[key] = array("q"), array("d")
            spans = len(self._rtts)
            # Whoever has seen fewer spans keeps no fewer, so that the first ones of several
            # processes are those of one.
            self._most = min(MAX_SAMPLES, max(MIN_SAMPLES, MAX_ALL_SAMPLES // spans))
            if not spans % _TIDY and self._most < MAX_SAMPLES:
                for frames, times in self._rtts.values():
                    first_of(frames, times, self._most)
        return samples

    def _settle(self, connection: int) -> None:
        """Count what was kept of a connection now that it is known what counts."""
        late = self._judged_late.pop(connection, [])
        self._late_count -= len(late)
        for record, frames in late:
            lane = connection, record.direction, record.space
            self._count_copies(lane, record, frames)
            if record.rtt_ms is not None and "continued" not in record.extra:
                timed = SpanTotals()
                timed.took(record.copies[0].frame, record.rtt_ms, 1)
                row = self._row(record.direction, record.copies[0].time_ns)
                self._write(lane, row, timed, arrived=lane[:2] in self._near)
        for lane, spans in self._open.pop(connection, {}).items():
            for index, span in spans.items():
                row = self._rows[index, lane[1]]
                self._write(lane, row, span, arrived=lane[:2] in self._near)

    def _arrived(self, lane: _Lane, record: UnitRecord) -> int:
        """Return of how many numbers more it is known that they came, now that a unit did."""
        if lane in self._skipping or "apart" in record.extra:
            return 1
        start = record.seq - record.wire_seq
        before, old = self._newest.get(lane, (record.seq - 1, start))
        if start != old and record.seq - before > (start - old) // 2:
            # Its sender numbers afresh: extended numbers go on at a multiple of all.
            before = record.seq - 1
        self._newest[lane] = before, start
        return self._advance(self._newest, lane, record.seq, before=before)

    @staticmethod
    def _advance(
        newest: dict[_Lane, tuple[int, int]], lane: _Lane, seq: int, *, before: int
    ) -> int:
        """Return how many numbers further a lane is; `before` was its last so far, where none is
        known. Not every number need be that of a unit.
        """
        last, start = newest.get(lane, (before, 0))
        newest[lane] = max(last, seq), start
        return max(0, seq - last)

    def _index(self, time_ns: int) -> int:
        if self.start_ns is None:
            self.start_ns = time_ns
        index = max(0, (time_ns - self.start_ns) // self.span_ns)
        if index >= MAX_INTERVALS:
            self.overflowed = True
            return MAX_INTERVALS - 1
        return index

    def _row(self, direction: int, time_ns: int) -> Interval:
        lately = self._lately[direction]
        if lately is not None and 0 <= time_ns - lately.start_ns < self.span_ns:
            return lately
        index = self._index(time_ns)
        row = self._rows.get((index, direction))
        if row is None:
            start = self._start(index)
            row = self._rows[index, direction] = Interval(start, self.span_ns, direction)
            self._last = max(self._last, index)
        self._lately[direction] = row
        return row

    def _start(self, index: int) -> int:
        wide: Any = index  # a large product: see ARCHITECTURE.md
        return (self.start_ns or 0) + int(wide * self.span_ns)

    def rows(self) -> list[Interval]:
        """Return every span of both directions in time, empty ones included. Ends the counting."""
        from statistics import median  # noqa: PLC0415 - a hundredth of a second, for `stats` alone

        self._end()
        if self.start_ns is None:
            return []
        found = []
        for index in range(self._last + 1):
            for direction in (0, 1):
                row = self._rows.get((index, direction))
                if row is None:
                    row = Interval(self._start(index), self.span_ns, direction)
                samples = self._rtts.get((index, direction))
                if samples is not None:
                    first_of(*samples, self._most)
                    row.rtt_ms = median(samples[1])
                found.append(row)
        return found

    def sums(self) -> Sums:
        """Return what was counted, for `add` of another process. Ends the counting."""
        self._end()
        return list(self._rows.values()), self._rtts, self.overflowed, self.early

    def add(self, sums: Sums) -> None:
        """Add what was counted of other connections, in spans that begin where these do."""
        rows, rtts, overflowed, early = sums
        self.overflowed = self.overflowed or overflowed
        self.early += early
        for row in rows:
            mine = self._row(row.direction, row.start_ns)
            for name in COUNTS:
                setattr(mine, name, getattr(mine, name) + getattr(row, name))
        for key, (frames, times) in rtts.items():
            mine_frames, mine_times = self._samples(key)
            mine_frames.extend(frames)
            mine_times.extend(times)

    def _end(self) -> None:
        """Count what has waited until all of the capture is known."""
        while self._waiting:
            item, frames = self._waiting.popleft()
            self._count(item, frames)
        if self.start_ns is None:
            return
        for connection in {*self._open, *self._judged_late, *self._sums}:
            self._settle_sums(connection)
            self._settle(connection)
        for connection in {number for number, _ in self._near}:
            self._reached(connection)
