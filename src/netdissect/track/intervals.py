"""Counts per span of time and direction, for `stats`, from datagrams and settled units.

The vantage decides which counts are right: next to the receiver, a number in the capture arrived
and a gap was lost; elsewhere, acknowledgements decide. As long as the vantage is unknown, both ways
of counting are kept (`SpanTotals`), and units whose copies depend on it wait.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Container, Iterable
from typing import TypeAlias

from netdissect.model.intervals import Interval
from netdissect.model.native import ABSENT
from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionEvent, ConnectionReport, UnitRecord
from netdissect.model.units import STREAM
from netdissect.track.totals import (
    COUNTS,
    MAX_SAMPLES,
    NEVER,
    SpaceTotals,
    SpanTotals,
    first_of,
    moment_ns,
    undecided,
)  # fmt: skip

MAX_INTERVALS = 100_000
"""Spans kept; anything later counts in the last one."""
MAX_ALL_SAMPLES = 1 << 19
"""Round trips kept over all spans: with many spans, each keeps fewer."""
MIN_SAMPLES = 16
"""Round trips that each span may keep in any case."""
_TIDY = 1024
"""After this many further spans, round trips beyond the bounds are dropped."""
MAX_WAITING = 16_384
"""Units that wait for late copies, and as many whose copies depend on the vantage; beyond this,
they are counted as they are.
"""
_Key: TypeAlias = tuple[int, int, str]
"""(connection, direction, space)."""
_Packed: TypeAlias = "tuple[array[int], array[float]]"
"""Frames of units, and their round trips in ms: two arrays take a tenth of the memory of pairs."""
Sums: TypeAlias = tuple[list[Interval], dict[tuple[int, int], _Packed], bool, int]
LATE_NS = 120_000_000_000
"""Copies that come later than this after the first copy of their unit, in ns, are not counted."""


class Intervals:
    """The counts of a capture, span by span."""

    def __init__(self, span_ns: int, *, partial: bool = False) -> None:
        """Create counts for spans of `span_ns`. With `partial`, only some units are counted, so
        that gaps in their numbers show no losses.
        """
        self.span_ns = span_ns
        self.partial = partial
        self.start_ns: int | None = None
        """Start of the first span: the time of the first datagram."""
        self.overflowed = False
        """Whether anything came later than the last span."""
        self.early = 0
        """Units that were counted before all their copies were known."""
        self._rows: dict[tuple[int, int], Interval] = {}
        self._lately: list[Interval | None] = [None, None]
        """Direction -> the row used last."""
        self._rtts: dict[tuple[int, int], _Packed] = {}
        self._timed_row: Interval | None = None
        """The row of the last round trip. The next four are its key, the samples of that row, and
        the last frame of which it needs samples.
        """
        self._timed_key = (0, 0)
        self._frames, self._times = array("q"), array("d")
        self._enough = NEVER
        self._most = MAX_SAMPLES
        """Round trips that each span keeps now."""
        self._newest_kept: dict[tuple[int, int], int] = {}
        """Row -> frame of the last round trip, once it has enough."""
        self._newest: dict[_Key, tuple[int, int]] = {}
        """Space -> (newest number, difference between it and the number on the wire)."""
        self._newest_gap: dict[_Key, tuple[int, int]] = {}
        """The same by gaps alone, for spaces whose senders skip numbers in normal operation."""
        self._skipping: set[_Key] = set()
        """The spaces whose senders skip numbers in normal operation."""
        self._repeating: set[_Key] = set()
        """The spaces whose senders retransmit: they have done so, have a timer, or use TCP."""
        self._copies: dict[_Key, dict[int, int]] = {}
        """Space -> span -> copies, while it is unknown whether its sender retransmits."""
        self._judged_late: dict[int, list[tuple[UnitRecord, Container[int] | None]]] = {}
        """Connection -> units with copies whose kinds depend on the vantage, while that is
        unknown.
        """
        self._late_count = 0
        self._placed: set[int] = set()
        """Connections with a known vantage."""
        self._open: dict[int, dict[_Key, dict[int, SpanTotals]]] = {}
        """Connection -> space -> span -> both ways of counting, while the vantage is unknown."""
        self._sums: dict[int, list[SpaceTotals]] = {}
        """Connection -> totals of its spaces."""
        self._last = 0
        self._waiting: deque[tuple[UnitRecord | ConnectionEvent, Container[int] | None]] = deque()
        self._oldest_ns = 0
        """Time of the first of them."""
        self._near: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
        """(connection, direction) captured next to the receiver -> (space, last number, time of the
        connection's last packet) for each of its spaces.
        """

    def datagram(
        self, direction: int, time_ns: int, octets: int, *, repeated: bool = False
    ) -> None:
        """Count one datagram; `repeated`: all units in it were sent before."""
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
        """Count one datagram of any connection."""
        self.datagram(direction, time_ns, octets, repeated=repeated)

    def place(self, reports: Iterable[ConnectionReport], *, over: bool = True) -> None:
        """Process the vantage of connections, which decides how their units and gaps count. The
        sooner it is known, the less must wait. Totals count when the connections are `over`.
        """
        for report in reports:
            self._placed.add(report.connection)
            for space in report.spaces:
                key = report.connection, space.direction, space.space
                if report.transport == "tcp" or space.timer_ms is not None or space.retransmissions:
                    self._repeats(key)
                else:
                    self._copies.pop(key, None)
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
        """Add a unit or an event (of which only gaps count), in the order of time. It is counted
        later, with the copies that have come until then.
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
        """Count the item that has waited longest; another one waits after it."""
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
        """Count one settled unit in the span of its first copy, and each copy in the span of its
        own. Units and gaps come in the order of time.

        Args:
            record: the unit.
            arrived: whether the capture was taken next to the receiver, so that what it has
                arrived; None = unknown so far.
            frames: frames whose copies count; None = all.

        """
        if not record.copies:
            return
        key = record.connection, record.direction, record.space
        extra = record.extra
        late = arrived is None and undecided(record)
        if late and self._late_count < MAX_WAITING:
            self._late_count += 1
            self._judged_late.setdefault(record.connection, []).append((record, frames))
            timed = None
        else:
            self.early += late
            self._count_copies(key, record, frames)
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
        if arrived is False:  # the usual case
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
            span.each, span.arrived = 1, self._arrived(key, record)
        self._add(key, self._index(time_ns), span, arrived=arrived)

    def _count_copies(self, key: _Key, record: UnitRecord, frames: Container[int] | None) -> None:
        known = key in self._repeating
        # TCP always retransmits, and a unit with a timer shows that its sender does.
        again = record.space == STREAM or record.next_resend_due_ns is not None
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
                    spans = self._copies.setdefault(key, {})
                    index = self._index(copy.time_ns)
                    spans[index] = spans.get(index, 0) + 1
        if again and not known:
            self._repeats(key)

    def _repeats(self, key: _Key) -> None:
        """Count the copies of a space, now that its sender is known to retransmit."""
        self._repeating.add(key)
        for index, copies in self._copies.pop(key, {}).items():
            self._rows[index, key[1]].reliable_copies += copies

    def gap(self, event: ConnectionEvent, *, placed: bool = True) -> None:
        """Count numbers that are missing next to their receiver, in the span of the next number.

        Args:
            event: the gap.
            placed: whether it is known that the capture was taken there.

        """
        if event.direction is None or self.partial:
            return
        first, last = event.data["first_seq"], event.data["last_seq"]
        step = event.data.get("step")
        lost = (last - first) // (step or 1) + 1 - event.came
        # The number after the gap has arrived, which is why the gap is known.
        key = event.connection, event.direction, event.data["space"]
        span = SpanTotals(lost)
        if step is None:
            span.arrived = self._advance(self._newest, key, last + 1, before=first - 1)
            span.each = self._advance(self._newest_gap, key, last + 1, before=first - 1)
        self._row(event.direction, event.time_ns)
        self._add(key, self._index(event.time_ns), span, arrived=True if placed else None)

    def add_totals(self, connection: int, sums: SpaceTotals) -> None:
        """Add the totals of a space to those of its connection."""
        self._sums.setdefault(connection, []).append(sums)

    def leave_out(self, connection: int) -> None:
        """Drop the totals of a connection."""
        self._sums.pop(connection, None)

    def place_of(self, time_ns: int) -> tuple[int, int, int]:
        """Return the key of a time in `SpaceTotals.spans`, and the times between which it holds."""
        if self.start_ns is None:
            return -1 - time_ns, time_ns, time_ns + 1
        index = self._index(time_ns)
        start_ns = self._start(index)
        end_ns = start_ns + self.span_ns
        inside = start_ns <= time_ns < end_ns
        return (index, start_ns, end_ns) if inside else (index, time_ns, time_ns + 1)

    def _settle_sums(self, connection: int) -> None:
        """Count the totals of a connection, now that its vantage is known."""
        if self.start_ns is None:
            return
        for sums in self._sums.pop(connection, ()):
            way = sums.direction
            key = connection, way, sums.space
            arrived = key[:2] in self._near
            repeating = sums.repeating or key in self._repeating
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
                self._write(key, row, span, arrived=arrived)
            if arrived and sums.newest != ABSENT:
                self._newest[key] = sums.newest, sums.start

    def forget(self, report: ConnectionReport) -> None:
        """Forget a finished connection."""
        self._reached(report.connection)
        self._settle(report.connection)
        self._placed.discard(report.connection)
        for space in report.spaces:
            key = report.connection, space.direction, space.space
            self._repeating.discard(key)
            self._skipping.discard(key)
            self._copies.pop(key, None)
            self._newest.pop(key, None)
            self._newest_gap.pop(key, None)

    def _reached(self, connection: int) -> None:
        """Count the numbers up to the last one of each space of a connection."""
        for way in (0, 1):
            for name, last_seq, last_ns in self._near.pop((connection, way), ()):
                self.reach((connection, way, name), last_seq, last_ns)

    def reach(self, key: _Key, seq: int, time_ns: int) -> None:
        """Count the numbers up to the last one of a space whose receiver is near."""
        if key in self._newest:
            further = self._advance(self._newest, key, seq, before=seq)
            self._row(key[1], time_ns).decided += further

    def _add(self, key: _Key, index: int, span: SpanTotals, *, arrived: bool | None) -> None:
        """Count in the span of a direction, or keep it until the vantage is known."""
        if arrived is not None:
            self._write(key, self._rows[index, key[1]], span, arrived=arrived)
            return
        spans = self._open.setdefault(key[0], {}).setdefault(key, {})
        kept = spans.setdefault(index, span)
        if kept is not span:
            kept.add(span)

    def _write(self, key: _Key, row: Interval, span: SpanTotals, *, arrived: bool) -> None:
        """Count what the vantage makes right."""
        if arrived:
            row.decided += span.each if key in self._skipping else span.arrived
            row.lost += span.skipped
            return
        row.decided += span.decided
        row.lost += span.lost
        row.rtt_samples += span.samples
        if span.frames is None or span.times is None:
            return
        self._select(row)
        # All samples of a short span are kept, so that they can be taken over as a whole.
        if self._enough == NEVER:
            self._frames.extend(span.frames)
            self._times.extend(span.times)
            self._trim()
        else:
            for frame, rtt_ms in span.round_trips():
                self._timed(row, frame, rtt_ms)

    def _timed(self, row: Interval, frame: int, rtt_ms: float) -> None:
        """Add a round trip to its row, if it is one of the first."""
        if row is not self._timed_row:
            self._select(row)
        if frame <= self._enough:
            self._frames.append(frame)
            self._times.append(rtt_ms)
            self._trim()

    def _select(self, row: Interval) -> None:
        """Make a row that of the last round trip."""
        self._timed_row, self._timed_key = row, (self._index(row.start_ns), row.direction)
        self._frames, self._times = self._samples(self._timed_key)
        self._enough = self._newest_kept.get(self._timed_key, NEVER)

    def _trim(self) -> None:
        """Drop round trips of the last row, if it has twice as many as are kept."""
        # Selecting at twice the bound costs a constant time per sample.
        if len(self._frames) > 2 * self._most:
            first_of(self._frames, self._times, self._most)
            self._enough = self._newest_kept[self._timed_key] = self._frames[-1]

    def _samples(self, key: tuple[int, int]) -> _Packed:
        """Return the round trips of a row."""
        samples = self._rtts.get(key)
        if samples is None:
            samples = self._rtts[key] = array("q"), array("d")
            spans = len(self._rtts)
            # A process that has seen fewer spans keeps no fewer samples, so that several processes
            # together keep the same first samples as one.
            self._most = min(MAX_SAMPLES, max(MIN_SAMPLES, MAX_ALL_SAMPLES // spans))
            if not spans % _TIDY and self._most < MAX_SAMPLES:
                for frames, times in self._rtts.values():
                    first_of(frames, times, self._most)
        return samples

    def _settle(self, connection: int) -> None:
        """Count what was kept for a connection, now that its vantage is known."""
        late = self._judged_late.pop(connection, [])
        self._late_count -= len(late)
        for record, frames in late:
            key = connection, record.direction, record.space
            self._count_copies(key, record, frames)
            if record.rtt_ms is not None and "continued" not in record.extra:
                timed = SpanTotals()
                timed.took(record.copies[0].frame, record.rtt_ms, 1)
                row = self._row(record.direction, record.copies[0].time_ns)
                self._write(key, row, timed, arrived=key[:2] in self._near)
        for key, spans in self._open.pop(connection, {}).items():
            for index, span in spans.items():
                row = self._rows[index, key[1]]
                self._write(key, row, span, arrived=key[:2] in self._near)

    def _arrived(self, key: _Key, record: UnitRecord) -> int:
        """Return how many more numbers are known to have arrived or not, now that a unit has."""
        if key in self._skipping or "apart" in record.extra:
            return 1
        start = record.seq - record.wire_seq
        before, old = self._newest.get(key, (record.seq - 1, start))
        if start != old and record.seq - before > (start - old) // 2:
            # The sender has restarted: extended numbers go on at the next multiple.
            before = record.seq - 1
        self._newest[key] = before, start
        return self._advance(self._newest, key, record.seq, before=before)

    @staticmethod
    def _advance(
        newest: dict[_Key, tuple[int, int]], key: _Key, seq: int, *, before: int
    ) -> int:
        """Advance a space to `seq`, and return by how many numbers; `before` is the last number if
        none is known yet.
        """
        last, start = newest.get(key, (before, 0))
        newest[key] = max(last, seq), start
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
        # Nearly every datagram belongs to the span of the one before it.
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
        return (self.start_ns or 0) + index * self.span_ns

    def rows(self) -> list[Interval]:
        """End the counting; return the spans of both directions in time, including empty ones."""
        from statistics import median  # noqa: PLC0415 - takes 10 ms, and only `stats` needs it

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
        """End the counting; return the counts for `add` in another process."""
        self._end()
        return list(self._rows.values()), self._rtts, self.overflowed, self.early

    def add(self, sums: Sums) -> None:
        """Add the counts of other connections, whose spans begin at the same times."""
        rows, rtts, overflowed, early = sums
        self.overflowed = self.overflowed or overflowed
        self.early += early
        for row in rows:
            mine = self._row(row.direction, row.start_ns)
            for name in COUNTS:
                setattr(mine, name, getattr(mine, name) + getattr(row, name))
        for key, (frames, times) in rtts.items():
            self._select(self._rows[key])
            self._frames.extend(frames)
            self._times.extend(times)
            self._trim()

    def _end(self) -> None:
        """Count everything that still waits."""
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
