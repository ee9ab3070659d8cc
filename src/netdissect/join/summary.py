"""Sums up the fates of frames per direction of each joined conversation."""

from __future__ import annotations

from typing import Final

from netdissect.join.matching import Lane
from netdissect.join.table import (
    AMBIGUOUS,
    APPEARED,
    ARRIVED,
    COPY,
    DELIVERED,
    LOST,
    REORDERED,
    FateTable,
    fate_of,
    flags_of,
    lane_of,
    partner_of,
)
from netdissect.model.diagnosis import Ceiling
from netdissect.model.joined import Burst, Fate, WayReport
from netdissect.model.native import ABSENT, i64, vec
from netdissect.track.ceiling import SECOND_NS, Second, ceiling_of
from netdissect.track.reservoir import RttReservoir

MAX_BURSTS = 10
"""Longest runs of lost datagrams that are listed; all are counted."""

ALL_TIME: Final = (-(1 << 62), 1 << 62)
"""A window that contains all times."""

MAX_SECONDS = 3600
"""Seconds of a direction that are searched for a limit of its rate."""

_HEAD: Final = 60
"""Seconds before the first datagram sent: the other capture may have begun earlier."""
_FATES: Final = len(Fate)


class _Second:
    """The sums of one second of a direction."""

    __slots__ = ("arrived", "delays", "frame", "lost")

    def __init__(self) -> None:
        self.frame: i64 = 0
        """The first frame sent."""
        self.arrived: i64 = 0
        """First arrivals of datagrams."""
        self.delays: i64 = 0
        """Sum of their delays, ns."""
        self.lost: i64 = 0


class _Delays:
    """One-way delays, in the order of the arrivals."""

    __slots__ = ("_changed_ns", "_changes", "_last", "kept")

    def __init__(self) -> None:
        self.kept = RttReservoir()
        self._last: i64 = ABSENT
        self._changes: i64 = 0
        self._changed_ns: i64 = 0

    def add(self, delay: i64) -> None:
        """Add the delay of a first arrival, ns."""
        self.kept.add(delay)
        if self._last != ABSENT:
            change = delay - self._last
            self._changes += 1
            self._changed_ns += -change if change < 0 else change
        self._last = delay

    def jitter_ms(self) -> float | None:
        """Return `WayReport.jitter_ms`."""
        return int(self._changed_ns) / int(self._changes) / 1e6 if self._changes else None


class _Totals:
    """The sums of one direction of a group."""

    __slots__ = (
        "_begun_ns", "_certain", "_likely", "_newest", "_newest_index", "ambiguous", "counts",
        "reordered", "report", "seconds",
    )  # fmt: skip

    def __init__(self, sender: int) -> None:
        self.report = WayReport(sender)
        self.counts = vec[i64]([0] * (2 * _FATES))
        """Datagrams sent by fate, then arrivals by fate: both may be `OUTSIDE`."""
        self.ambiguous: i64 = 0
        self.reordered: i64 = 0
        self._certain, self._likely = _Delays(), _Delays()
        """Delays of the arrivals whose datagram is known, and of the ambiguous ones."""
        self._begun_ns: i64 = ABSENT
        self.seconds: dict[int, _Second] = {}
        """Only seconds in which there is something: there may be 100,000 directions."""
        self._newest: _Second | None = None
        self._newest_index: i64 = ABSENT
        """The second asked for last, which is mostly the next one as well."""

    def second(self, common_ns: i64) -> _Second | None:
        """Return the sums of a time's second; None beyond the bound."""
        if self._begun_ns == ABSENT:
            self._begun_ns = common_ns - _HEAD * SECOND_NS
        index = (common_ns - self._begun_ns) // SECOND_NS
        if index == self._newest_index:
            return self._newest
        if not 0 <= index < MAX_SECONDS + _HEAD:
            return None
        found = self.seconds.get(index)
        if found is None:
            found = self.seconds[index] = _Second()
        self._newest, self._newest_index = found, index
        return found

    def sent(self, frame: i64, fate: i64, common_ns: i64) -> None:
        """Count a datagram sent."""
        second = self.second(common_ns)
        if second is not None:
            if not second.frame:
                second.frame = frame
            second.lost += fate == LOST

    def arrived(self, common_ns: i64, delay: i64, flags: i64) -> None:
        """Count the first arrival of a datagram."""
        second = self.second(common_ns)
        if second is not None:
            second.arrived += 1
            second.delays += delay
        (self._likely if flags & AMBIGUOUS else self._certain).add(delay)

    def finish(self) -> WayReport:
        """Return the report."""
        report, counts = self.report, self.counts
        report.delivered, report.lost = counts[DELIVERED], counts[LOST]
        report.outside = counts[int(Fate.OUTSIDE)]
        report.unseen, report.doubtful = counts[int(Fate.UNSEEN)], counts[int(Fate.DOUBTFUL)]
        report.copies, report.appeared = counts[_FATES + COPY], counts[_FATES + APPEARED]
        report.sent = sum([counts[kind] for kind in range(_FATES)])
        report.arrived = sum([counts[_FATES + kind] for kind in range(_FATES)])
        report.ambiguous, report.reordered = self.ambiguous, self.reordered
        delays = self._certain if self._certain.kept.samples else self._likely
        report.delay, report.jitter_ms = delays.kept.summary(), delays.jitter_ms()
        report.bursts = _longest(report.bursts)
        report.ceiling = self._ceiling()
        return report

    def _ceiling(self) -> Ceiling | None:
        """Return the limit of the rate, in datagrams per second, if there is one."""
        if self._begun_ns == ABSENT or not self.report.lost:
            return None
        begun_ns = int(self._begun_ns)
        seconds: list[Second] = []
        for index in range(min(self.seconds), max(self.seconds) + 1):
            one = self.seconds.get(index, _NO_SECOND)
            arrived, lost = int(one.arrived), int(one.lost)
            if seconds or arrived or lost:
                start_ns = begun_ns + index * SECOND_NS
                mean_ns = int(one.delays) // arrived if arrived else 0
                frame = int(one.frame)
                second = Second(start_ns, frame, SECOND_NS, mean_ns, arrived, arrived, lost)
                seconds.append(second)
        return ceiling_of(seconds)


_NO_SECOND: Final = _Second()


class _LaneState:
    """The state of one lane while it is summed up."""

    __slots__ = (
        "_count", "_end_ns", "_first", "_last", "_start_ns", "newest", "sender", "totals",
    )  # fmt: skip

    def __init__(self, totals: _Totals, sender: int) -> None:
        self.totals = totals
        self.sender: i64 = sender
        """Capture next to the sender."""
        self.newest: i64 = 0
        """Latest of its frames that has arrived."""
        # The current run of losses.
        self._first: i64 = 0
        self._last: i64 = 0
        self._count: i64 = 0
        self._start_ns: i64 = 0
        self._end_ns: i64 = 0

    def sent(self, frame: i64, fate: i64, common_ns: i64) -> None:
        """Count a datagram sent; a lost one extends the run of losses."""
        self.totals.counts[fate] += 1
        self.totals.sent(frame, fate, common_ns)
        if fate != LOST:
            self.end_run()
            return
        if not self._count:
            self._first, self._start_ns = frame, common_ns
        self._count += 1
        self._last, self._end_ns = frame, common_ns

    def end_run(self) -> None:
        """End the run of losses; one of two or more is a burst."""
        if self._count > 1:
            report = self.totals.report
            report.burst_count += 1
            burst = Burst(self._first, self._last, self._count, self._start_ns, self._end_ns)
            report.bursts.append(burst)
            # Sorted at twice the bound, so that this costs a constant time per burst.
            if len(report.bursts) > 2 * MAX_BURSTS:
                report.bursts = _longest(report.bursts)
        self._count = 0


def add_up(
    tables: tuple[FateTable, FateTable],
    lanes: list[Lane],
    groups: int,
    window: tuple[int, int] = ALL_TIME,
) -> list[tuple[WayReport, WayReport]]:
    """Return, per group, the report of the direction from A to B and of that from B to A; also flag
    arrivals that were reordered.

    Args:
        tables: the fates of both captures.
        lanes: the compared flows.
        groups: number of groups.
        window: (from, to), common time: only what was sent in it is counted.

    """
    totals = [(_Totals(0), _Totals(1)) for _ in range(groups)]
    states = []
    for lane in lanes:
        sender = 0 if lane.toward > 0 else 1
        states.append(_LaneState(totals[lane.group][sender], sender))
    for capture in (0, 1):
        _add(capture, tables[capture], tables[1 - capture], states, window)
        for state in states:
            state.end_run()
    states.clear()
    # The sums of each group are freed once they are reported.
    totals.reverse()
    found: list[tuple[WayReport, WayReport]] = []
    while totals:
        going, coming = totals.pop()
        found.append((going.finish(), coming.finish()))
    return found


def _add(
    capture: i64,
    table: FateTable,
    other: FateTable,
    states: list[_LaneState],
    window: tuple[int, int],
) -> None:
    """Sum up the frames of one capture."""
    start: i64 = window[0]
    end: i64 = window[1]
    frame = table.next_frame(0)
    while frame:
        word, common = table.word(frame), table.common_ns(frame)
        fate, partner = fate_of(word), partner_of(word)
        state = states[lane_of(word)]
        totals = state.totals
        # What counts is when a datagram was sent, also for an arrival.
        sends = state.sender == capture
        sent_ns = other.common_ns(partner) if partner and not sends else common
        inside = start <= sent_ns <= end
        if sends and inside:
            state.sent(frame, fate, common)
            totals.ambiguous += flags_of(word) & AMBIGUOUS
        elif not sends and inside:
            totals.counts[_FATES + fate] += 1
        if fate == ARRIVED:
            sender = states[lane_of(other.word(partner))]
            # The frames of the sender's capture are in the order of sending.
            if partner < sender.newest:
                totals.reordered += inside
                table.add_flags(frame, REORDERED)
            else:
                sender.newest = partner
            if inside:
                totals.arrived(common, common - sent_ns, flags_of(word))
        frame = table.next_frame(frame)


def _longest(bursts: list[Burst]) -> list[Burst]:
    return sorted(bursts, key=lambda burst: (-burst.datagrams, burst.first_frame))[:MAX_BURSTS]
