"""Adds up what became of the frames: per direction of each joined conversation."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
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
)
from netdissect.model.diagnosis import Ceiling
from netdissect.model.joined import Burst, Fate, WayReport
from netdissect.track.ceiling import SECOND_NS, Second, ceiling_of
from netdissect.track.reservoir import RttReservoir

__all__ = ["EVER", "MAX_BURSTS", "add_up"]

MAX_BURSTS = 10
"""Runs of lost datagrams that are listed, the longest; all are counted."""

EVER: Final = (-(1 << 62), 1 << 62)
"""A window that holds all times."""

MAX_SECONDS = 3600
"""Seconds of a direction in which a limit of its rate is looked for."""

_HEAD: Final = 60
"""Seconds before the first datagram that is looked at: the other capture may begin earlier."""
_COLUMNS: Final = 4

_SENT: Final = {
    LOST: "lost",
    int(Fate.OUTSIDE): "outside",
    int(Fate.UNSEEN): "unseen",
    int(Fate.DOUBTFUL): "doubtful",
}


@dataclass(slots=True)
class _Way:
    """One direction of a group while it is added up."""

    report: WayReport
    delays: RttReservoir = field(default_factory=RttReservoir)
    last_delay: int | None = None
    changes: int = 0
    changed_ns: int = 0
    runs: dict[int, list[int]] = field(default_factory=dict)
    """Lane -> (first frame, last frame, datagrams, start, end) of the run of losses at hand."""
    newest: dict[int, int] = field(default_factory=dict)
    """Lane of the sender -> latest frame of it that has arrived."""
    begun_ns: int | None = None
    seconds: array[int] = field(default_factory=lambda: array("q"))
    """For each second first frame sent, datagrams that came, datagrams lost, sum of delays."""

    def second(self, common_ns: int) -> int | None:
        """Return where the columns of the second of a moment begin; None beyond the bound."""
        if self.begun_ns is None:
            self.begun_ns = common_ns - _HEAD * SECOND_NS
        index = (common_ns - self.begun_ns) // SECOND_NS
        if not 0 <= index < MAX_SECONDS + _HEAD:
            return None
        at = index * _COLUMNS
        if at >= len(self.seconds):
            self.seconds.extend([0] * (at + _COLUMNS - len(self.seconds)))
        return at


def add_up(
    tables: tuple[FateTable, FateTable],
    lanes: list[Lane],
    groups: int,
    window: tuple[int, int] = EVER,
) -> list[tuple[WayReport, WayReport]]:
    """Return, per group, what travels from the first capture to the second and back; also flag
    what came out of order.

    Args:
        tables: what became of each frame.
        lanes: the flows compared.
        groups: how many groups they are in.
        window: (from, to), common time: only what was sent then is counted.

    """
    start, end = window
    ways = [(_Way(WayReport(0)), _Way(WayReport(1))) for _ in range(groups)]
    for capture in (0, 1):
        table, other = tables[capture], tables[1 - capture]
        for frame, row in table.rows():
            lane = lanes[row[3]]
            sender = 0 if lane.toward > 0 else 1
            way = ways[lane.group][sender]
            if sender == capture:
                if start <= row[5] <= end:
                    _sent(way, frame, row)
            else:
                _arrived(way, table, other, frame, row, window)
        for pair in ways:
            for lane_number in list(pair[capture].runs):
                _end_run(pair[capture], lane_number)
    return [(_report(one), _report(other)) for one, other in ways]


def _sent(way: _Way, frame: int, row: tuple[int, int, int, int, int, int]) -> None:
    fate, flags, _, lane, _, common = row
    report = way.report
    report.sent += 1
    if fate == DELIVERED:
        report.delivered += 1
    else:
        name = _SENT[fate]
        setattr(report, name, getattr(report, name) + 1)
    report.ambiguous += flags & AMBIGUOUS
    at = way.second(common)
    if at is not None:
        way.seconds[at] = way.seconds[at] or frame
        way.seconds[at + 2] += fate == LOST
    if fate == LOST:
        run = way.runs.get(lane)
        if run is None:
            way.runs[lane] = [frame, frame, 1, common, common]
        else:
            run[1], run[2], run[4] = frame, run[2] + 1, common
    elif lane in way.runs:
        _end_run(way, lane)


def _end_run(way: _Way, lane: int) -> None:
    first, last, count, start, end = way.runs.pop(lane)
    if count < 2:  # noqa: PLR2004 - one alone is no burst
        return
    report = way.report
    report.burst_count += 1
    report.bursts.append(Burst(first, last, count, start, end))
    if len(report.bursts) > 2 * MAX_BURSTS:
        report.bursts = _longest(report.bursts)


def _longest(bursts: list[Burst]) -> list[Burst]:
    return sorted(bursts, key=lambda burst: (-burst.datagrams, burst.first_frame))[:MAX_BURSTS]


def _arrived(
    way: _Way,
    table: FateTable,
    other: FateTable,
    frame: int,
    row: tuple[int, int, int, int, int, int],
    window: tuple[int, int],
) -> None:
    fate, _, _, _, partner, common = row
    report = way.report
    sent = other.row(partner) if partner else row
    inside = window[0] <= sent[5] <= window[1]
    report.arrived += inside
    if fate == COPY:
        report.copies += inside
        return
    if fate != ARRIVED:
        report.appeared += inside and fate == APPEARED
        return
    lane = sent[3]
    # Frames of the sender's capture are in the order of sending.
    if partner < way.newest.get(lane, 0):
        report.reordered += inside
        table.flag(frame, REORDERED)
    else:
        way.newest[lane] = partner
    if not inside:
        return
    delay = common - sent[5]
    at = way.second(common)
    if at is not None:
        way.seconds[at + 1] += 1
        way.seconds[at + 3] += delay
    way.delays.add(delay)
    if way.last_delay is not None:
        way.changes += 1
        way.changed_ns += abs(delay - way.last_delay)
    way.last_delay = delay


def _report(way: _Way) -> WayReport:
    report = way.report
    report.delay = way.delays.summary()
    report.jitter_ms = way.changed_ns / way.changes / 1e6 if way.changes else None
    report.bursts = _longest(report.bursts)
    report.ceiling = _ceiling(way)
    return report


def _ceiling(way: _Way) -> Ceiling | None:
    """Return the limit of a direction's rate, in datagrams."""
    rows, begun_ns = way.seconds, way.begun_ns
    if begun_ns is None or not way.report.lost:
        return None
    seconds: list[Second] = []
    for index in range(len(rows) // _COLUMNS):
        frame, came, lost, delay_ns = rows[index * _COLUMNS : (index + 1) * _COLUMNS]
        if seconds or came or lost:
            start_ns = begun_ns + index * SECOND_NS
            mean_ns = delay_ns // came if came else 0
            seconds.append(Second(start_ns, frame, SECOND_NS, mean_ns, came, came, lost))
    return ceiling_of(seconds)
