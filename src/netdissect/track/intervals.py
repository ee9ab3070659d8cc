"""Counts per span of time and direction, for `stats`. Bounded; fed by datagrams and by settled
units.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from typing import Any

from netdissect.model.intervals import Interval
from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionEvent, ConnectionReport, UnitRecord

__all__ = ["LATE_NS", "MAX_INTERVALS", "MAX_SAMPLES", "Intervals"]

MAX_INTERVALS = 100_000
"""Spans kept; what is later counts into the last one."""
MAX_SAMPLES = 512
"""Round trips kept per span and direction for the median."""
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
        self._rows: dict[tuple[int, int], Interval] = {}
        self._rtts: dict[tuple[int, int], list[float]] = {}
        self._newest: dict[tuple[int, int, str], tuple[int, int]] = {}
        """Lane -> its newest number, and what that is more than on the wire."""
        self._skipping: set[tuple[int, int, str]] = set()
        """Lanes whose numbers are skipped in normal operation."""
        self._last = 0
        self._waiting: deque[tuple[UnitRecord | ConnectionEvent, Container[int] | None]] = deque()
        self._near: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
        """(connection, direction) captured next to its receiver -> (space, last number, time of the
        connection's last packet) of its spaces.
        """

    def datagram(
        self, direction: int, time_ns: int, octets: int, kinds: Sequence[str | None] = ()
    ) -> None:
        """Count one datagram; `kinds` are those of the copies of units that it carries."""
        row = self._row(direction, time_ns)
        row.datagrams += 1
        row.octets += octets
        if kinds and "original" not in kinds:
            row.repeated_octets += octets

    def place(self, reports: Iterable[ConnectionReport]) -> None:
        """Take the connections: where the capture was made decides what units and gaps tell."""
        for report in reports:
            for way in (0, 1):
                if report.vantage == SIDES[1 - way]:
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

    def tell(
        self, item: UnitRecord | ConnectionEvent, frames: Container[int] | None = None
    ) -> None:
        """Take a unit or a gap of a connection that has its `place`; in the order of time.

        It counts later, with the copies that have come until then.
        """
        if isinstance(item, UnitRecord) and not item.copies:
            return
        self._waiting.append((item, frames))
        newest_ns = _moment_ns(item)
        while newest_ns - _moment_ns(self._waiting[0][0]) > LATE_NS:
            self._count(*self._waiting.popleft())

    def _count(self, item: UnitRecord | ConnectionEvent, frames: Container[int] | None) -> None:
        arrived = (item.connection, item.direction) in self._near
        if isinstance(item, UnitRecord):
            self.unit(item, arrived=arrived, frames=frames)
        elif arrived:
            self.gap(item)

    def unit(
        self,
        record: UnitRecord,
        *,
        arrived: bool = False,
        frames: Container[int] | None = None,
    ) -> None:
        """Count one unit that is settled, in the span of its first copy, and each of its copies in
        the span of its own. Units and gaps are told in the order of time.

        Args:
            record: the unit.
            arrived: whether the capture was made next to its receiver, so that what is in it came.
            frames: frames of which copies count; None = all.

        """
        if not record.copies:
            return
        for copy in record.copies:
            if frames is None or copy.frame in frames:
                row = self._row(record.direction, copy.time_ns)
                row.copies += 1
                row.retransmissions += copy.kind == "retransmission"
        if "continued" in record.extra:
            return
        time_ns = record.copies[0].time_ns
        row = self._row(record.direction, time_ns)
        row.units += 1
        if record.outcome in {"unacked", "given_up"}:
            row.unacked += 1
        lost = record.lost or record.extra.get("reported") == "lost"
        if arrived and not self.partial:
            row.decided += self._arrived(record)
        elif not arrived and (lost or record.outcome == "acked"):
            row.decided += 1
            row.lost += lost
        if record.rtt_ms is not None and not arrived:
            samples = self._rtts.setdefault((self._index(time_ns), record.direction), [])
            row.rtt_samples += 1
            if len(samples) < MAX_SAMPLES:
                samples.append(record.rtt_ms)

    def gap(self, event: ConnectionEvent) -> None:
        """Count numbers that were skipped next to their receiver, in the span of the next one."""
        if event.direction is None or self.partial:
            return
        first, last = event.data["first_seq"], event.data["last_seq"]
        step = event.data.get("step")
        lost = (last - first) // (step or 1) + 1 - event.came
        row = self._row(event.direction, event.time_ns)
        row.lost += lost
        if step is not None:
            row.decided += lost
            return
        # The number after the gap has come: its sight is what told of the gap.
        lane = event.connection, event.direction, event.data["space"]
        row.decided += self._advance(lane, last + 1, before=first - 1)

    def reach(self, lane: tuple[int, int, str], seq: int, time_ns: int) -> None:
        """Count the numbers up to the last of a space whose receiver is near."""
        if lane in self._newest:
            self._row(lane[1], time_ns).decided += self._advance(lane, seq, before=seq)

    def _arrived(self, record: UnitRecord) -> int:
        """Return of how many numbers more it is known that they came, now that a unit did."""
        lane = record.connection, record.direction, record.space
        if lane in self._skipping or "apart" in record.extra:
            return 1
        start = record.seq - record.wire_seq
        before, old = self._newest.get(lane, (record.seq - 1, start))
        if start != old and record.seq - before > (start - old) // 2:
            # Its sender numbers afresh: extended numbers go on at a multiple of all.
            before = record.seq - 1
        self._newest[lane] = before, start
        return self._advance(lane, record.seq, before=before)

    def _advance(self, lane: tuple[int, int, str], seq: int, *, before: int) -> int:
        """Return how many numbers further a space (connection, direction, name) is; `before` was
        its last so far, where none is known. Not every number need be that of a unit.
        """
        last, start = self._newest.get(lane, (before, 0))
        self._newest[lane] = max(last, seq), start
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
        index = self._index(time_ns)
        row = self._rows.get((index, direction))
        if row is None:
            start = self._start(index)
            row = self._rows[index, direction] = Interval(start, self.span_ns, direction)
            self._last = max(self._last, index)
        return row

    def _start(self, index: int) -> int:
        wide: Any = index  # a large product: see ARCHITECTURE.md
        return (self.start_ns or 0) + int(wide * self.span_ns)

    def rows(self) -> list[Interval]:
        """Return every span of both directions in time, empty ones included. Ends the counting."""
        from statistics import median  # noqa: PLC0415 - a hundredth of a second, for `stats` alone

        while self._waiting:
            self._count(*self._waiting.popleft())
        if self.start_ns is None:
            return []
        for (number, way), spaces in self._near.items():
            for name, last_seq, last_ns in spaces:
                self.reach((number, way, name), last_seq, last_ns)
        found = []
        for index in range(self._last + 1):
            for direction in (0, 1):
                row = self._rows.get((index, direction))
                if row is None:
                    row = Interval(self._start(index), self.span_ns, direction)
                samples = self._rtts.get((index, direction))
                if samples:
                    row.rtt_ms = median(samples)
                found.append(row)
        return found


def _moment_ns(item: UnitRecord | ConnectionEvent) -> int:
    """Return when a unit was first seen, or a gap noticed."""
    return item.copies[0].time_ns if isinstance(item, UnitRecord) else item.time_ns
