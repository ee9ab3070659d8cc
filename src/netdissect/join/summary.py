"""Adds up what became of the frames: per direction of each joined conversation."""

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
    flags_of,
    kind_of,
    lane_of,
    partner_of,
)
from netdissect.model.diagnosis import Ceiling
from netdissect.model.joined import Burst, Fate, WayReport
from netdissect.model.native import ABSENT, append, i64, vec
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
_KINDS: Final = len(Fate)


class _Way:
    """One direction of a group while it is added up."""

    __slots__ = (
        "_begun_ns", "_changed_ns", "_changes", "_last_delay", "ambiguous", "counts", "delays",
        "reordered", "report", "seconds",
    )  # fmt: skip

    def __init__(self, sender: int) -> None:
        self.report = WayReport(sender)
        self.counts = vec[i64]([0] * (2 * _KINDS))
        """Of each kind of `Fate` those sent, then of each those that arrived: both may be
        `OUTSIDE`.
        """
        self.ambiguous: i64 = 0
        self.reordered: i64 = 0
        self.delays = RttReservoir()
        self._last_delay: i64 = ABSENT
        self._changes: i64 = 0
        self._changed_ns: i64 = 0
        self._begun_ns: i64 = ABSENT
        self.seconds = vec[i64]()
        """For each second first frame sent, datagrams that came, datagrams lost, sum of delays."""

    def second(self, common_ns: i64) -> i64:
        """Return where the columns of the second of a moment begin; ABSENT beyond the bound."""
        if self._begun_ns == ABSENT:
            self._begun_ns = common_ns - _HEAD * SECOND_NS
        index = (common_ns - self._begun_ns) // SECOND_NS
        if not 0 <= index < MAX_SECONDS + _HEAD:
            return ABSENT
        at = index * _COLUMNS
        while at + _COLUMNS > len(self.seconds):
            self.seconds = append(self.seconds, 0)
        return at

    def sent(self, frame: i64, fate: i64, common_ns: i64) -> None:
        """Take a datagram that was sent."""
        at = self.second(common_ns)
        if at != ABSENT:
            seconds = self.seconds
            if not seconds[at]:
                seconds[at] = frame
            if fate == LOST:
                seconds[at + 2] += 1

    def came(self, common_ns: i64, delay: i64) -> None:
        """Take the first arrival of a datagram."""
        at = self.second(common_ns)
        if at != ABSENT:
            seconds = self.seconds
            seconds[at + 1] += 1
            seconds[at + 3] += delay
        self.delays.add(delay)
        if self._last_delay != ABSENT:
            change = delay - self._last_delay
            self._changes += 1
            self._changed_ns += -change if change < 0 else change
        self._last_delay = delay

    def reported(self) -> WayReport:
        """Return what was added up."""
        report, counts = self.report, self.counts
        report.delivered, report.lost = counts[DELIVERED], counts[LOST]
        report.outside = counts[int(Fate.OUTSIDE)]
        report.unseen, report.doubtful = counts[int(Fate.UNSEEN)], counts[int(Fate.DOUBTFUL)]
        report.copies, report.appeared = counts[_KINDS + COPY], counts[_KINDS + APPEARED]
        report.sent = sum([counts[kind] for kind in range(_KINDS)])
        report.arrived = sum([counts[_KINDS + kind] for kind in range(_KINDS)])
        report.ambiguous, report.reordered = self.ambiguous, self.reordered
        report.delay = self.delays.summary()
        changes, changed_ns = int(self._changes), int(self._changed_ns)
        report.jitter_ms = changed_ns / changes / 1e6 if changes else None
        report.bursts = _longest(report.bursts)
        report.ceiling = self._ceiling()
        return report

    def _ceiling(self) -> Ceiling | None:
        """Return the limit of a direction's rate, in datagrams."""
        if self._begun_ns == ABSENT or not self.report.lost:
            return None
        rows, begun_ns = self.seconds, int(self._begun_ns)
        seconds: list[Second] = []
        for index in range(len(rows) // _COLUMNS):
            at = index * _COLUMNS
            came, lost = int(rows[at + 1]), int(rows[at + 2])
            if seconds or came or lost:
                start_ns = begun_ns + index * SECOND_NS
                mean_ns = int(rows[at + 3]) // came if came else 0
                frame = int(rows[at])
                seconds.append(Second(start_ns, frame, SECOND_NS, mean_ns, came, came, lost))
        return ceiling_of(seconds)


class _Track:
    """One lane while it is added up."""

    __slots__ = (
        "_count", "_end_ns", "_first", "_last", "_start_ns", "newest", "sender", "way",
    )  # fmt: skip

    def __init__(self, way: _Way, sender: int) -> None:
        self.way = way
        self.sender: i64 = sender
        """Capture next to the sender."""
        self.newest: i64 = 0
        """Latest frame of it that has arrived."""
        # The run of losses at hand.
        self._first: i64 = 0
        self._last: i64 = 0
        self._count: i64 = 0
        self._start_ns: i64 = 0
        self._end_ns: i64 = 0

    def lost(self, frame: i64, common_ns: i64) -> None:
        """Take a datagram that was lost."""
        if not self._count:
            self._first, self._start_ns = frame, common_ns
        self._count += 1
        self._last, self._end_ns = frame, common_ns

    def end(self) -> None:
        """End the run of losses at hand."""
        if self._count > 1:  # one alone is no burst
            report = self.way.report
            report.burst_count += 1
            burst = Burst(self._first, self._last, self._count, self._start_ns, self._end_ns)
            report.bursts.append(burst)
            if len(report.bursts) > 2 * MAX_BURSTS:
                report.bursts = _longest(report.bursts)
        self._count = 0


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
    ways = [(_Way(0), _Way(1)) for _ in range(groups)]
    tracks = []
    for lane in lanes:
        sender = 0 if lane.toward > 0 else 1
        tracks.append(_Track(ways[lane.group][sender], sender))
    for capture in (0, 1):
        _add(capture, tables[capture], tables[1 - capture], tracks, window)
        for track in tracks:
            track.end()
    return [(one.reported(), other.reported()) for one, other in ways]


def _add(
    capture: i64, table: FateTable, other: FateTable, tracks: list[_Track], window: tuple[int, int]
) -> None:
    """Add up the frames of one capture."""
    start: i64 = window[0]
    end: i64 = window[1]
    frame = table.following(0)
    while frame:
        word, common = table.word(frame), table.common_ns(frame)
        fate, partner = kind_of(word), partner_of(word)
        track = tracks[lane_of(word)]
        way = track.way
        if track.sender == capture:
            if start <= common <= end:
                way.counts[fate] += 1
                way.ambiguous += flags_of(word) & AMBIGUOUS
                way.sent(frame, fate, common)
                if fate == LOST:
                    track.lost(frame, common)
                else:
                    track.end()
        else:
            sent_ns = other.common_ns(partner) if partner else common
            inside = start <= sent_ns <= end
            if inside:
                way.counts[_KINDS + fate] += 1
            if fate == ARRIVED:
                sender = tracks[lane_of(other.word(partner))]
                # Frames of the sender's capture are in the order of sending.
                if partner < sender.newest:
                    way.reordered += inside
                    table.flag(frame, REORDERED)
                else:
                    sender.newest = partner
                if inside:
                    way.came(common, common - sent_ns)
        frame = table.following(frame)


def _longest(bursts: list[Burst]) -> list[Burst]:
    return sorted(bursts, key=lambda burst: (-burst.datagrams, burst.first_frame))[:MAX_BURSTS]
