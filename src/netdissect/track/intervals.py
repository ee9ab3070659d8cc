"""Counts per span of time and direction, for `stats`. Bounded; fed by datagrams and by settled
units.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from netdissect.model.intervals import Interval
from netdissect.model.reports import UnitRecord

__all__ = ["MAX_INTERVALS", "MAX_SAMPLES", "Intervals"]

MAX_INTERVALS = 100_000
"""Spans kept; what is later counts into the last one."""
MAX_SAMPLES = 512
"""Round trips kept per span and direction for the median."""


class Intervals:
    """Sums up a capture span by span."""

    def __init__(self, span_ns: int) -> None:
        """Take the length of a span in ns."""
        self.span_ns = span_ns
        self.start_ns: int | None = None
        """Start of the first span: the time of the first datagram."""
        self.overflowed = False
        """True once something came later than the last span kept."""
        self._rows: dict[tuple[int, int], Interval] = {}
        self._rtts: dict[tuple[int, int], list[float]] = {}
        self._last = 0

    def datagram(
        self, direction: int, time_ns: int, octets: int, kinds: Sequence[str] = ()
    ) -> None:
        """Count one datagram; `kinds` are those of the copies of units that it carries."""
        row = self._row(direction, time_ns)
        row.datagrams += 1
        row.octets += octets
        if kinds:
            again = sum(kind != "original" for kind in kinds)
            row.copies += len(kinds)
            row.retransmissions += sum(kind == "retransmission" for kind in kinds)
            if again == len(kinds):
                row.repeated_octets += octets

    def unit(self, record: UnitRecord) -> None:
        """Count one unit that is settled, in the span of its first copy."""
        if not record.copies:
            return
        time_ns = record.copies[0].time_ns
        row = self._row(record.direction, time_ns)
        row.units += 1
        if record.outcome in {"unacked", "given_up"}:
            row.unacked += 1
        if record.rtt_ms is not None:
            samples = self._rtts.setdefault((self._index(time_ns), record.direction), [])
            row.rtt_samples += 1
            if len(samples) < MAX_SAMPLES:
                samples.append(record.rtt_ms)

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
            start = (self.start_ns or 0) + index * self.span_ns
            row = self._rows[index, direction] = Interval(start, self.span_ns, direction)
            self._last = max(self._last, index)
        return row

    def rows(self) -> list[Interval]:
        """Return every span of both directions in time, empty ones included."""
        if self.start_ns is None:
            return []
        found = []
        for index in range(self._last + 1):
            for direction in (0, 1):
                row = self._rows.get((index, direction))
                if row is None:
                    row = Interval(self.start_ns + index * self.span_ns, self.span_ns, direction)
                samples = self._rtts.get((index, direction))
                if samples:
                    row.rtt_ms = median(samples)
                found.append(row)
        return found
