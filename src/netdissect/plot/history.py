"""What plots can show of one connection, gathered while its capture is read: bounded series of
points, each with its frame. Nothing is drawn here.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from netdissect.model.native import i64
from netdissect.model.packets import SIDES, Direction
from netdissect.model.reports import Anomaly, ConnectionEvent, ConnectionReport, Copy, UnitRecord
from netdissect.plot.thin import MAX_POINTS, PointList

MAX_SLOWEST = 200
"""Slowest units of a connection that are kept in full."""
MAX_WINDOW = 200
"""Units of a space that are kept in full: around the slowest one, or in the requested span."""
MAX_FINDINGS = 400
"""Findings, and events, of a connection that are kept."""
MAX_BINS = 6000
"""Intervals of a rate; when there are more, neighbouring ones are merged."""
MAX_SILENCES = 500
"""Silences of one direction that are kept, the longest."""
MAX_GAPS = 4096
"""Gaps of a connection that are kept open for numbers that arrive late."""

_WIDTHS_NS = tuple(
    1_000_000 * ms for ms in (10, 50, 100, 500, 1000, 5000, 10_000, 60_000, 300_000, 600_000)
)
"""Widths of the intervals of a rate; each is a multiple of the previous one."""
_SMOOTHING = 1 / 8
"""Weight of a new round trip in the smoothed one. *Source:* RFC 6298 section 2.3."""
_SILENCE_NS = 1_000_000_000
"""No shorter silence is shown."""
_SILENCE_FACTOR = 5
"""A silence is at least this many times as long as the median interval between datagrams."""
_BUCKETS_PER_OCTAVE = 8  # percentiles within 9%
_NEVER_NS = 1 << 63
_BELOW = "tcp"
"""Space of the TCP segments that carry the messages of a stream. Only the messages count as units.
"""


class UnitPoint(NamedTuple):
    """A unit as a point."""

    time_ns: int
    """When it was first sent."""
    frame: int
    seq: int
    took_ms: float | None
    """From its first copy to its acknowledgement; None = never acknowledged, or unknown."""
    mark: str
    """"" one copy; `again` several copies, so that the acknowledged one is unknown; `lost` never
    acknowledged; `unknown`; `plain` not acknowledged, and not sent again by design.
    """
    timer_ms: float | None
    """Resend timer of its sender when it sent the last copy; None = it has none."""
    rtt_ms: float | None
    """A round-trip time: that of a unit with one copy."""
    smooth_ms: float | None
    """Smoothed round-trip time after this unit."""
    copies: int

    @property
    def height(self) -> float | None:
        """The value that thinning looks at."""
        return self.took_ms


class Sample(NamedTuple):
    """A round trip that a probe measured."""

    time_ns: int
    frame: int | None
    ms: float
    mark: str = ""

    @property
    def height(self) -> float:
        """The value that thinning looks at."""
        return self.ms


class Step(NamedTuple):
    """How many units are unacknowledged from this moment on."""

    time_ns: int
    waiting: int
    frame: int | None
    mark: str = ""

    @property
    def height(self) -> float:
        """The value that thinning looks at."""
        return float(self.waiting)


class Silence(NamedTuple):
    """A time in which one side sent nothing."""

    start_ns: int
    end_ns: int
    frame: int
    """The frame that ended it; of a silence to the end, the last one before it."""


class Bin(NamedTuple):
    """What one direction did in one interval."""

    start_ns: int
    end_ns: int
    frame: int | None
    """Its first frame."""
    units: int
    again: int
    lost: int
    """Units that never arrived, as far as the capture proves it from where it was taken."""
    datagrams: int
    octets: int


class Track:
    """The units of one space in one direction."""

    def __init__(self, direction: int, space: str, limit: int) -> None:
        self.direction = direction
        self.space = space
        self.points: PointList[UnitPoint] = PointList(limit)
        self.waits: PointList[Step] = PointList(limit)
        self.repeats = False
        """Whether its units are sent again until they are acknowledged."""
        self.window: list[UnitRecord] = []
        """Units in full: around the slowest one, or in the requested span."""
        self._recent: deque[UnitRecord] = deque(maxlen=MAX_WINDOW // 2)
        self._missing = 0
        """How many units after the slowest one `window` still lacks."""
        self._worst_ms = -1.0
        self._smooth_ms: float | None = None
        self._ends: list[tuple[int, int]] = []
        """A heap: when each unit stops waiting for its acknowledgement, and the frame of that; of
        one that is given up, the frame of its last copy; 0 = unknown.
        """
        self._now_ns = 0

    def add(self, unit: UnitRecord, span: tuple[int, int] | None) -> None:
        """Process a unit; units come in the order of their first copies."""
        first = unit.copies[0]
        self.repeats = self.repeats or unit.next_resend_due_ns is not None or _resent(unit)
        took = took_ms(unit)
        if unit.rtt_ms is not None:
            before = self._smooth_ms
            step = 0.0 if before is None else unit.rtt_ms - before
            self._smooth_ms = unit.rtt_ms if before is None else before + _SMOOTHING * step
        timer = None
        if unit.next_resend_due_ns is not None:
            sent = [copy.time_ns for copy in unit.copies if copy.kind != "duplicate"]
            timer = (unit.next_resend_due_ns - sent[-1]) / 1e6
        self.points.add(
            UnitPoint(
                first.time_ns, first.frame, unit.seq, took, _mark(unit), timer, unit.rtt_ms,
                self._smooth_ms, len(unit.copies),
            )
        )  # fmt: skip
        self._wait(unit)
        self._keep(unit, took, span)

    def _wait(self, unit: UnitRecord) -> None:
        first = unit.copies[0]
        now = max(self._now_ns, first.time_ns)
        self._drain(now)
        acked = unit.outcome == "acked"
        end = unit.acked_time_ns if acked else unit.settled_ns
        if end is None or end > now:
            frame = unit.acked_frame if acked else unit.copies[-1].frame
            heapq.heappush(self._ends, (_NEVER_NS if end is None else end, frame or 0))
            self.waits.add(Step(now, len(self._ends), first.frame))
        self._now_ns = now

    def _drain(self, now_ns: int) -> None:
        while self._ends and self._ends[0][0] <= now_ns:
            left_ns, frame = heapq.heappop(self._ends)
            self.waits.add(Step(left_ns, len(self._ends), frame or None))

    def finish(self, end_ns: int) -> None:
        """Process the acknowledgements that came after the last unit was sent."""
        self._drain(end_ns)

    def _keep(self, unit: UnitRecord, took: float | None, span: tuple[int, int] | None) -> None:
        """Keep a unit in full if it is in the span, or near the slowest unit so far."""
        if span is not None:
            inside = span[0] <= unit.copies[0].time_ns <= span[1]
            if inside and len(self.window) < MAX_WINDOW:
                self.window.append(unit)
            return
        self._recent.append(unit)
        waited = span_ms(unit) if took is None and unit.failed else took
        if waited is not None and waited > self._worst_ms:
            self._worst_ms = waited
            self.window = list(self._recent)
            self._missing = MAX_WINDOW - len(self.window)
        elif self._missing > 0:
            self.window.append(unit)
            self._missing -= 1


def _resent(unit: UnitRecord) -> bool:
    return any(copy.kind == "retransmission" for copy in unit.copies)


def took_ms(unit: UnitRecord) -> float | None:
    """Return the time from the first copy of a unit to its acknowledgement; None = none."""
    if unit.acked_time_ns is None or not unit.copies:
        return None
    return (unit.acked_time_ns - unit.copies[0].time_ns) / 1e6


def span_ms(unit: UnitRecord) -> float:
    """Return the time from the first copy of a unit to its last one."""
    return (unit.copies[-1].time_ns - unit.copies[0].time_ns) / 1e6


def _mark(unit: UnitRecord) -> str:
    if unit.outcome == "acked":
        return "again" if unit.rtt_ambiguous or _resent(unit) else ""
    if not unit.failed:
        return "plain"
    return "unknown" if unit.outcome == "unknown" else "lost"


class _Bins:
    """Counts of one direction per interval. The intervals become longer when there are too many."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.level = 0
        self._newest: tuple[int, int, list[int]] = (0, 0, [])
        """Start, end and counts of the interval that was used last."""
        self.rows: dict[int, list[int]] = {}
        """Number of an interval -> units, retransmissions, reported losses, skipped numbers,
        datagrams, bytes, first frame.
        """

    def row(self, time_ns: int) -> list[int]:
        """Return the counts of the interval that contains a moment."""
        newest = self._newest
        if newest[0] <= time_ns < newest[1]:
            return newest[2]
        index = max(0, time_ns - self.start_ns) // _WIDTHS_NS[self.level]
        while index >= MAX_BINS and self.level + 1 < len(_WIDTHS_NS):
            self._coarsen()
            index = max(0, time_ns - self.start_ns) // _WIDTHS_NS[self.level]
        index = min(index, MAX_BINS - 1)
        found = self.rows.get(index)
        if found is None:
            found = self.rows[index] = [0] * 7
        width: i64 = _WIDTHS_NS[self.level]
        start = self.start_ns + index * width
        self._newest = (start, start + width, found)
        return found

    def _coarsen(self) -> None:
        times = _WIDTHS_NS[self.level + 1] // _WIDTHS_NS[self.level]
        self.level += 1
        self._newest = (0, 0, [])
        self.rows = _merged(self.rows, times)


def _merged(rows: dict[int, list[int]], times: int) -> dict[int, list[int]]:
    """Return the counts of intervals that are `times` as long."""
    merged: dict[int, list[int]] = {}
    for index, counts in sorted(rows.items()):
        row = merged.setdefault(index // times, [0] * 7)
        for place in range(6):
            row[place] += counts[place]
        row[6] = row[6] or counts[6]
    return merged


class _Pauses:
    """The longest silences of one direction, and the median interval between its datagrams."""

    def __init__(self) -> None:
        self.last_ns: int | None = None
        self.last_frame = 0
        self.longest: list[tuple[int, Silence]] = []
        self.total = 0
        self._distances: dict[int, int] = {}

    def add(self, time_ns: int, frame: int) -> None:
        """Process a datagram."""
        last, self.last_ns, self.last_frame = self.last_ns, time_ns, frame
        if last is None or time_ns <= last:
            return
        pause = time_ns - last
        octave = pause.bit_length() - 1
        part = int((pause / (1 << octave) - 1) * _BUCKETS_PER_OCTAVE)
        place = octave * _BUCKETS_PER_OCTAVE + part
        self._distances[place] = self._distances.get(place, 0) + 1
        if pause >= _SILENCE_NS:
            self.total += 1
            heapq.heappush(self.longest, (pause, Silence(last, time_ns, frame)))
            if len(self.longest) > MAX_SILENCES:
                heapq.heappop(self.longest)

    def usual_ns(self) -> int:
        """Return the median interval between datagrams, rounded down to an eighth of an octave; 0 =
        unknown.
        """
        left = sum(self._distances.values()) // 2
        for place in sorted(self._distances):
            left -= self._distances[place]
            if left < 0:
                octave, part = divmod(place, _BUCKETS_PER_OCTAVE)
                return (1 << octave) + (part << octave) // _BUCKETS_PER_OCTAVE
        return 0


class History:
    """The data of all plots of one connection."""

    def __init__(
        self,
        connection: int,
        *,
        limit: int = MAX_POINTS,
        slowest: int = MAX_SLOWEST,
        span: tuple[int, int] | None = None,
    ) -> None:
        """Take the connection.

        Args:
            connection: its number.
            limit: points of one kind that are kept.
            slowest: units that are kept whole, the slowest.
            span: (from, to), ns since its first datagram: units in it are kept in full; None =
                those around the slowest.

        """
        self.connection = connection
        self.limit = limit
        self.span = span
        self._most_slowest = slowest
        self.report: ConnectionReport | None = None
        """Its final report."""
        self.first_ns: int | None = None
        """Time of its first datagram."""
        self.last_ns = 0
        self.tracks: dict[tuple[int, str], Track] = {}
        """(direction, space) -> its units."""
        self.probes: dict[tuple[int, str], PointList[Sample]] = {}
        """(direction of the question, kind) -> round trips."""
        self.findings: list[Anomaly] = []
        """The first of each code and direction, the tenth, the hundredth and so on."""
        self.events: list[ConnectionEvent] = []
        """Changes of state, timeouts, resets: everything but probes, acknowledgements and gaps."""
        self._slowest: list[tuple[tuple[int, float], int, UnitRecord]] = []
        self._worst: tuple[int, float] = (-1, 0.0)
        self._units = 0
        self._bins: list[_Bins] = []
        self._pauses = (_Pauses(), _Pauses())
        self._gaps: deque[ConnectionEvent] = deque()

    # -- gathering ---------------------------------------------------------------------------------

    def datagram(self, direction: int, time_ns: int, frame: int, octets: int) -> None:
        """Process a datagram, or a message of a stream."""
        if time_ns > self.last_ns or self.first_ns is None:
            self._begin(time_ns)
        row = self._bins[direction].row(time_ns)
        row[4] += 1
        row[5] += octets
        row[6] = row[6] or frame
        self._pauses[direction].add(time_ns, frame)

    def unit(self, unit: UnitRecord) -> bool:
        """Process a settled unit; return True if it is the slowest so far."""
        if not unit.copies:
            return False
        first = unit.copies[0]
        self._begin(first.time_ns)
        if "continued" in unit.extra:
            # Copies that came after the record of their unit had left: the unit is counted already.
            self._count_resends(unit, unit.copies)
            return False
        key = unit.direction, unit.space
        track = self.tracks.get(key)
        if track is None:
            track = self.tracks[key] = Track(unit.direction, unit.space, self.limit)
        span, zero = self.span, self.first_ns or 0
        track.add(unit, span and (zero + span[0], zero + span[1]))
        bins = self._bins[unit.direction]
        row = bins.row(first.time_ns)
        row[0] += unit.space != _BELOW
        row[2] += unit.outcome == "given_up" or unit.extra.get("reported") == "lost"
        row[6] = row[6] or first.frame
        self._count_resends(unit, unit.copies[1:])
        self.last_ns = max(self.last_ns, unit.acked_time_ns or 0)
        return self._rank(unit)

    def _count_resends(self, unit: UnitRecord, copies: Sequence[Copy]) -> None:
        bins = self._bins[unit.direction]
        for copy in copies:
            if copy.kind == "retransmission":
                row = bins.row(copy.time_ns)
                row[1] += 1
                row[6] = row[6] or copy.frame  # a segment that brings nothing new is no datagram
        self.last_ns = max(self.last_ns, unit.copies[-1].time_ns)

    def _rank(self, unit: UnitRecord) -> bool:
        waits = unit.failed and unit.next_resend_due_ns is not None
        took = took_ms(unit)
        if took is None and not unit.failed:
            return False
        self._units += 1
        rank = (2, span_ms(unit)) if waits else (1, -1.0 if took is None else took)
        if unit.space == _BELOW:
            rank = (0, rank[1])
        heap = self._slowest
        worst = not heap or rank > self._worst
        if worst:
            self._worst = rank
        if len(heap) < self._most_slowest:
            heapq.heappush(heap, (rank, -self._units, unit))
        elif rank > heap[0][0]:
            heapq.heapreplace(heap, (rank, -self._units, unit))
        return worst

    def event(self, event: ConnectionEvent) -> None:
        """Process an event."""
        self._begin(event.time_ns)
        if event.event == "probe":
            ms = event.data.get("rtt_ms")
            if ms is not None and event.direction is not None:
                # The event has the direction of the answer; the question went the other way.
                key = 1 - event.direction, str(event.data.get("kind"))
                kept = self.probes.setdefault(key, PointList(self.limit))
                kept.add(Sample(event.time_ns, event.frame, float(ms)))
        elif event.event == "gap":
            self._gaps.append(event)
            if len(self._gaps) > MAX_GAPS:
                self._skip(self._gaps.popleft())
        elif event.event != "ack" and len(self.events) < MAX_FINDINGS:
            self.events.append(event)

    def finding(self, found: Anomaly) -> None:
        """Process a finding."""
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(found)

    def finish(self, report: ConnectionReport) -> None:
        """Process the final report, once, after everything else."""
        self.report = report
        self._begin(report.first_time_ns)
        self.first_ns = min(self.first_ns or report.first_time_ns, report.first_time_ns)
        self.last_ns = max(self.last_ns, report.last_time_ns)
        for track in self.tracks.values():
            track.finish(self.last_ns)
        for gap in self._gaps:
            self._skip(gap)

    def _begin(self, time_ns: int) -> None:
        if self.first_ns is None:
            self.first_ns = time_ns
            self._bins = [_Bins(time_ns), _Bins(time_ns)]
        self.last_ns = max(self.last_ns, time_ns)

    def _skip(self, gap: ConnectionEvent) -> None:
        if gap.direction is not None:
            first, last = gap.data["first_seq"], gap.data["last_seq"]
            skipped = (last - first) // (gap.data.get("step") or 1) + 1
            self._bins[gap.direction].row(gap.time_ns)[3] += max(0, skipped - gap.came)

    # -- what is drawn -----------------------------------------------------------------------------

    def shown(self, direction: int, space: str | None = None) -> list[Track]:
        """Return the spaces of a direction to plot: the one that is named, if any. Else those whose
        units are sent again; without any, the messages of a stream; without any, all.
        """
        tracks = [track for (way, _), track in self.tracks.items() if way == direction]
        if space is not None:
            return [track for track in tracks if track.space == space]
        return (
            [track for track in tracks if track.repeats and track.space != _BELOW]
            or [track for track in tracks if track.space == "message"]
            or [track for track in tracks if track.space != "snapshot"]
            or tracks
        )

    def slowest(self) -> list[UnitRecord]:
        """Return the slowest units. First come those that were never acknowledged although their
        sender waited, last those that nobody waits for.
        """
        return [unit for _, _, unit in sorted(self._slowest, key=lambda row: row[:2], reverse=True)]

    def gaps(self) -> list[ConnectionEvent]:
        """Return the newest gaps in the sequence numbers."""
        return list(self._gaps)

    def bins(self, direction: int, width_ns: int) -> Iterator[Bin]:
        """Yield the counts of a direction in intervals of about `width_ns`, without empty ones."""
        if not self._bins:
            return
        bins = self._bins[direction]
        arrived = self.report is not None and self.report.vantage == SIDES[1 - direction]
        width: i64 = _WIDTHS_NS[bins.level]
        times = max(1, width_ns // _WIDTHS_NS[bins.level])
        step: i64 = times * width
        for index, row in _merged(bins.rows, times).items():
            start = bins.start_ns + index * step
            lost = row[3] if arrived else row[2]
            yield Bin(start, start + step, row[6] or None, row[0], row[1], lost, row[4], row[5])

    def silences(self, direction: int) -> list[Silence]:
        """Return the silences of a direction in order: at least a second long, and at least five
        times as long as the median interval between its datagrams.
        """
        pauses = self._pauses[direction]
        usual_ns: i64 = pauses.usual_ns()
        least = max(_SILENCE_NS, _SILENCE_FACTOR * usual_ns)
        found = [silence for pause, silence in pauses.longest if pause >= least]
        tail = self.last_ns - (pauses.last_ns or self.last_ns)
        if pauses.last_ns is not None and tail >= least:
            found.append(Silence(pauses.last_ns, self.last_ns, pauses.last_frame))
        return sorted(found)

    def speaks(self, direction: int) -> bool:
        """Return whether a direction has sent anything."""
        return self._pauses[Direction(direction)].last_ns is not None
