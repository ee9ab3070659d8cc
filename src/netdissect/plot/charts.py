"""The kinds of plots: turns the history of a connection into charts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from netdissect.model.annotations import Severity
from netdissect.model.packets import SIDES, Direction
from netdissect.plot.axes import headroom, nice_span_ns
from netdissect.plot.chart import Band, Chart, Point, Series
from netdissect.plot.history import Bin, History, Track
from netdissect.plot.sequence import sequence
from netdissect.render.units import arrow_of, counted, duration

_BARS = 60
"""Bars of a rate at most."""
_SECOND_NS = 1_000_000_000
_FAR = 4
"""A resend timer that is this many times longer than the slowest unit is not drawn."""
_MOST_OF = 0.8
"""A finding that lasts longer than this share of a connection is about all of it, and has no band.
"""
_MAX_FLAGS = 60
"""Findings marked above a plot at most."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user has requested of a plot."""

    space: str | None = None
    """Only this space."""
    start_ns: int | None = None
    """From this time on, counted from the first frame of the connection."""
    end_ns: int | None = None
    """Up to this time."""
    interval_ns: int | None = None
    """Width of the intervals of a rate."""
    octets: bool = False
    """Whether rates count bytes."""

    def within(self, points: list[Point]) -> list[Point]:
        """Return the points in the requested span: the sentence of a chart is about these."""
        first_ns, last_ns = self.start_ns or 0, self.end_ns
        return [
            point
            for point in points
            if point.time_ns >= first_ns and (last_ns is None or point.time_ns <= last_ns)
        ]

    def since(self, zero_ns: int) -> Wanted:
        """Return the same with times since the Unix epoch."""
        start = None if self.start_ns is None else zero_ns + self.start_ns
        end = None if self.end_ns is None else zero_ns + self.end_ns
        return replace(self, start_ns=start, end_ns=end)


def charts(kind: str, history: History, wanted: Wanted | None = None) -> list[Chart]:
    """Return the charts of a kind that are not empty, the client's direction first."""
    wanted = (wanted or Wanted()).since(history.first_ns or 0)
    found = [chart for chart in KINDS[kind][0](history, wanted) if not chart.empty]
    for chart in found:
        _frame(chart, history, wanted)
    found = [chart for chart in found if not chart.empty]
    for chart in found:
        chart.bands += _spans(chart, history)
    return found


def compare(found: Sequence[Chart]) -> None:
    """Give charts of several connections equal axes, and their connections' numbers as titles."""
    for group in {(chart.kind, chart.unit) for chart in found}:
        same = [chart for chart in found if (chart.kind, chart.unit) == group]
        span = max(chart.end_ns - chart.zero_ns for chart in same)
        high = max(chart.high for chart in same)
        for chart in same:
            if chart.kind != "seq":
                chart.told_ns = chart.end_ns
                chart.end_ns, chart.high = chart.zero_ns + span, high
    for chart in found:
        chart.title = f"connection {chart.connection}  {chart.title}"


def _frame(chart: Chart, history: History, wanted: Wanted) -> None:
    """Cut a chart to the requested span, and set its heights and flags."""
    if wanted.start_ns is not None:
        chart.start_ns = max(chart.start_ns, wanted.start_ns)
    if wanted.end_ns is not None:
        chart.end_ns = min(chart.end_ns, wanted.end_ns)
    chart.end_ns = max(chart.end_ns, chart.start_ns + 1)
    chart.bands = [
        band
        for band in chart.bands
        if band.end_ns >= chart.start_ns and band.start_ns <= chart.end_ns
    ]
    for series in chart.series:
        series.points = [
            point
            for point in series.points
            if (point.until_ns or point.time_ns) >= chart.start_ns and point.time_ns <= chart.end_ns
        ]
        series.total = series.total or len(series.points)
    heights = [
        point.value for series in chart.series for point in series.points if point.value is not None
    ]
    if chart.kind != "seq":
        chart.low = min(0.0, *(heights or [0.0]))
        chart.high = max(heights, default=0.0)
        chart.high = headroom(chart.high, whole=chart.whole)
        if chart.low < 0:
            chart.high = max(chart.high, headroom(-chart.low, whole=chart.whole))
            chart.low = -chart.high
    chart.flags = list(_flags(chart, history))


def _spans(chart: Chart, history: History) -> Iterable[Band]:
    """Yield the findings that last for some time, but not for nearly all of the connection."""
    whole = history.last_ns - chart.zero_ns
    for found in history.findings:
        start, end = found.evidence.get("from_ns"), found.evidence.get("to_ns")
        if found.severity < Severity.NOTE or not isinstance(start, int) or not isinstance(end, int):
            continue
        fits = chart.direction is None or found.direction in {None, chart.direction}
        inside = end > chart.start_ns and start < chart.end_ns
        if fits and inside and end - start < _MOST_OF * whole:
            start, end = max(start, chart.start_ns), min(end, chart.end_ns)
            yield Band(start, end, "finding", found.code, found.frame, found.direction)


def _flags(chart: Chart, history: History) -> Iterable[Point]:
    worst = [found for found in history.findings if found.severity >= Severity.WARN]
    worst = worst or [found for found in history.findings if found.severity == Severity.NOTE]
    shown = 0
    for found in worst:
        inside = found.time_ns is not None and chart.start_ns <= found.time_ns <= chart.end_ns
        fits = chart.direction is None or found.direction in {None, chart.direction}
        if inside and fits and shown < _MAX_FLAGS and found.time_ns is not None:
            shown += 1
            yield Point(found.time_ns, None, found.frame, found.code)


def _chart(
    kind: str, history: History, direction: int | None, title: str, about: str, unit: str
) -> Chart:
    zero = history.first_ns or 0
    return Chart(
        kind, history.connection, title, about, unit, zero, zero, max(history.last_ns, zero + 1),
        0.0, 1.0, direction,
    )  # fmt: skip


def way(direction: int) -> str:
    """Return a direction in words: `client → server`."""
    return "client → server" if direction == Direction.C2S else "server → client"


def _local(history: History, direction: int) -> bool:
    """Return whether the capture was taken next to the receiver of a direction."""
    return history.report is not None and history.report.vantage == SIDES[1 - direction]


def _thin_note(tracks: Iterable[Track]) -> list[str]:
    kept = [track.points for track in tracks]
    if not any(points.thinned for points in kept):
        return []
    return [f"{sum(points.total for points in kept):,} units, extremes and marks kept"]


LOCAL_NOTE: Final = "captured next to the receiver: its time to answer, not a round trip"
"""Note of a chart whose units were captured next to their receiver."""


# -- acks ------------------------------------------------------------------------------------------


def _acks(history: History, wanted: Wanted) -> Iterable[Chart]:
    for direction in Direction:
        tracks = history.shown(direction, wanted.space)
        if tracks:
            yield _acked(history, wanted, direction, tracks)


def _snapshots(history: History, wanted: Wanted) -> Iterable[Chart]:
    for direction in Direction:
        tracks = history.shown(direction, "snapshot")
        if tracks:
            chart = _acked(history, wanted, direction, tracks)
            chart.kind = "snapshots"
            chart.series = [series for series in chart.series if series.shape != "probe"]
            chart.title = f"Snapshots until acknowledged, {way(direction)}"
            gaps = [
                Point(gap.time_ns, None, gap.frame, gap.text, mark="unseen")
                for gap in history.gaps()
                if gap.direction == direction and gap.data.get("space") == "snapshot"
            ]
            chart.add_lane("never seen here", "unseen", "again", gaps)
            yield chart


def _acked(history: History, wanted: Wanted, direction: int, tracks: list[Track]) -> Chart:
    chart = _chart(
        "acks", history, direction, f"Time until acknowledged, {way(direction)}",
        "milliseconds, by time of sending", "ms",
    )  # fmt: skip
    role = SIDES[direction]
    local = _local(history, direction)
    timer = [] if local else _timer(tracks)
    one: list[Point] = []
    several: list[Point] = []
    lanes: dict[str, list[Point]] = {"lost": [], "unknown": [], "plain": []}
    for track in tracks:
        for unit in track.points.points:
            label = f"{track.space} {unit.seq}"
            mark = unit.mark if unit.mark == "again" or unit.took_ms is None else ""
            place = Point(unit.time_ns, unit.took_ms, unit.frame, label, mark=mark)
            if unit.took_ms is not None:
                (several if mark else one).append(place)
            elif mark in lanes:
                lanes[mark].append(place)
    first = "answered" if local else "one copy, a true round trip"
    chart.series = [
        Series(first, "dot", role, one),
        Series("several copies, ambiguous", "box", "again", several),
    ]
    chart.series += _probe_series(history, direction, role)
    longest = max((point.value or 0.0 for point in timer), default=0.0)
    slowest = max((point.value or 0.0 for point in one + several), default=0.0)
    if timer and slowest and longest > _FAR * slowest:
        # It would flatten everything else.
        chart.notes.append(f"the retransmission timer of {duration(longest)} is above the plot")
    elif timer:
        chart.series.append(Series("retransmission timer", "steps", "bad", timer, dashed=True))
    for mark, name, colour in (
        ("lost", "never acknowledged", "bad"),
        ("unknown", "unknown", "dim"),
        ("plain", "not acknowledged, not retransmitted by design", "dim"),
    ):
        chart.add_lane(name, mark, colour, lanes[mark])
    chart.notes += _thin_note(tracks)
    if local:
        chart.notes.append(LOCAL_NOTE)
    one, several = wanted.within(one), wanted.within(several)
    chart.said = _acks_said(one, several, {name: wanted.within(lanes[name]) for name in lanes})
    return chart


def _timer(tracks: list[Track]) -> list[Point]:
    """Return the resend timer as steps: a point at each change."""
    found: list[Point] = []
    for track in tracks:
        last: float | None = None
        for unit in track.points.points:
            if unit.timer_ms is None:
                continue
            # A tenth of a millisecond is jitter of the capture's clock, not a change.
            if last is None or abs(unit.timer_ms - last) > max(0.1, last / 50):
                last = unit.timer_ms
                found.append(Point(unit.time_ns, last, unit.frame, "retransmission timer"))
    return sorted(found, key=lambda point: point.time_ns) if len(tracks) == 1 else []


def _acks_said(one: list[Point], several: list[Point], lanes: dict[str, list[Point]]) -> str:
    taken = sorted(point.value for point in one + several if point.value is not None)
    if not taken:
        return "No unit was acknowledged."
    middle = duration(taken[len(taken) // 2])
    lost = f" {len(lanes['lost']):,} were never acknowledged." if lanes["lost"] else ""
    return (
        f"Half of {len(taken):,} units were acknowledged within {middle}, the slowest took "
        f"{duration(taken[-1])}; {len(several):,} were sent more than once.{lost}"
    )


# -- round trips -----------------------------------------------------------------------------------


def _rtts(history: History, wanted: Wanted) -> Iterable[Chart]:
    for direction in Direction:
        tracks = [] if _local(history, direction) else history.shown(direction, wanted.space)
        chart = _chart(
            "rtt", history, direction, f"Round-trip time, measured by the {SIDES[direction]}",
            "milliseconds, by time of sending", "ms",
        )  # fmt: skip
        role = SIDES[direction]
        units = [(track, unit) for track in tracks for unit in track.points.points]
        chart.series = [
            Series("unit sent once", "dot", role, [
                Point(unit.time_ns, unit.rtt_ms, unit.frame, f"{track.space} {unit.seq}")
                for track, unit in units
                if unit.rtt_ms is not None
            ]),
            *_probe_series(history, direction, role),
        ]  # fmt: skip
        values = sorted(
            point.value or 0.0 for one in chart.series for point in wanted.within(one.points)
        )
        smooth = [
            Point(unit.time_ns, unit.smooth_ms, unit.frame, "smoothed")
            for _, unit in units
            if unit.smooth_ms is not None and unit.rtt_ms is not None
        ]
        if len(tracks) == 1 and smooth:
            chart.series.append(Series("smoothed (1/8)", "steps", "good", smooth))
        chart.notes = _thin_note(tracks)
        if values:
            chart.said = (
                f"{counted(len(values), 'round trip')} from {duration(values[0])} to "
                f"{duration(values[-1])}, half of them below {duration(values[len(values) // 2])}."
            )
        yield chart


def _probe_series(history: History, direction: int, role: str) -> list[Series]:
    if _local(history, direction):
        return []
    return [
        Series(kind, "probe", role, [
            Point(sample.time_ns, sample.ms, sample.frame, kind) for sample in kept.points
        ], kept.total)
        for (asked, kind), kept in history.probes.items()
        if asked == direction
    ]  # fmt: skip


# -- rates -----------------------------------------------------------------------------------------


def _rates(history: History, wanted: Wanted) -> Iterable[Chart]:
    start = max(history.first_ns or 0, wanted.start_ns or 0)
    end = min(history.last_ns, wanted.end_ns or history.last_ns)
    width = wanted.interval_ns or nice_span_ns(max(1, end - start), _BARS)
    rows = [list(history.bins(direction, width)) for direction in Direction]
    width = next((row.end_ns - row.start_ns for side in rows for row in side), width)
    what = "Bytes" if wanted.octets else "Units"
    span = "per second" if width == _SECOND_NS else f"per {duration(width / 1e6)}"
    chart = _chart(
        "rate", history, None, f"{what} {span}",
        "client → server above the line, server → client below", "B" if wanted.octets else "",
    )  # fmt: skip
    chart.whole = True
    for direction, side in zip(Direction, rows, strict=True):
        sign = 1 if direction == Direction.C2S else -1
        role = SIDES[direction]
        if wanted.octets:
            bars = [_bar(row, 0, row.octets, sign) for row in side if row.octets]
            chart.series.append(Series(f"{way(direction)}", "bar", role, bars))
            continue
        chart.series += _stacked(side, sign, role, way(direction))
    rows = [[row for row in side if row.end_ns > start and row.start_ns <= end] for side in rows]
    chart.said = _rate_said(rows, octets=wanted.octets)
    yield chart


def _stacked(side: list[Bin], sign: int, role: str, name: str) -> list[Series]:
    came = [_bar(row, 0, max(0, row.units - row.lost), sign) for row in side if row.units]
    lost, again = [], []
    for row in side:
        top = max(row.units, row.lost)
        if row.lost:
            lost.append(_bar(row, max(0, row.units - row.lost), top, sign))
        if row.again:
            again.append(_bar(row, top, top + row.again, sign))
    return [
        Series(name, "bar", role, [bar for bar in came if bar.value]),
        Series("lost", "crossed", "bad", lost),
        Series("retransmitted", "outline", "again", again),
    ]


def _bar(row: Bin, base: int, top: int, sign: int) -> Point:
    label = f"{top - base:,}"
    return Point(
        row.start_ns, float(sign * top), row.frame, label, row.end_ns, float(sign * base), "bar"
    )


def _rate_said(rows: list[list[Bin]], *, octets: bool) -> str:
    parts = []
    for direction, side in zip(Direction, rows, strict=True):
        if octets:
            parts.append(f"{way(direction)} {sum(row.octets for row in side):,} bytes")
        else:
            units, again = sum(row.units for row in side), sum(row.again for row in side)
            lost = sum(row.lost for row in side)
            counts = f"{units:,} units, {again:,} retransmitted, {lost:,} lost"
            parts.append(f"{way(direction)} {counts}")
    return "; ".join(parts) + "."


# -- queue and gaps --------------------------------------------------------------------------------


def _queues(history: History, wanted: Wanted) -> Iterable[Chart]:
    for direction in Direction:
        tracks = history.shown(direction, wanted.space)
        chart = _chart(
            "queue", history, direction, f"Waiting for an acknowledgement, {way(direction)}",
            "units, by time", "",
        )  # fmt: skip
        chart.whole = True
        for track in tracks:
            steps = [
                Point(step.time_ns, float(step.waiting), step.frame, track.space)
                for step in track.waits.points
            ]
            if steps:
                steps.insert(0, Point(chart.start_ns, 0.0, steps[0].frame, track.space))
                chart.series.append(
                    Series(track.space, "steps", SIDES[direction], steps, track.waits.total)
                )
        deepest = max(
            (point.value or 0.0 for one in chart.series for point in wanted.within(one.points)),
            default=0.0,
        )
        chart.said = f"At most {counted(int(deepest), 'unit')} waited at the same time."
        chart.notes = _thin_note(tracks)
        yield chart


def _silent(history: History, wanted: Wanted) -> Iterable[Chart]:
    chart = _chart(
        "gaps", history, None, "Silence",
        "longer than a second and five times the usual interval between datagrams", "",
    )  # fmt: skip
    chart.whole = True
    total = 0
    longest = 0
    for direction in Direction:
        bins = list(history.bins(direction, nice_span_ns(history.last_ns - chart.start_ns, 240)))
        sent = [
            Point(row.start_ns, None, row.frame, f"{row.datagrams:,} datagrams", row.end_ns)
            for row in bins
            if row.datagrams
        ]
        arrow = arrow_of(direction)
        name = f"{SIDES[direction]} {arrow}"
        chart.series.append(Series(name, "bar", SIDES[direction], sent, lane=direction))
        for silence in history.silences(direction):
            length = silence.end_ns - silence.start_ns
            late = wanted.end_ns is not None and silence.start_ns > wanted.end_ns
            if not late and silence.end_ns >= (wanted.start_ns or 0):
                total, longest = total + 1, max(longest, length)
            chart.bands.append(
                Band(
                    silence.start_ns, silence.end_ns, "silence",
                    f"{duration(length / 1e6)}", silence.frame, direction,
                )
            )  # fmt: skip
    chart.said = (
        f"{counted(total, 'silence')}, the longest of {duration(longest / 1e6)}."
        if total
        else "Neither side was ever silent for long."
    )
    yield chart


def _sequence(history: History, wanted: Wanted) -> Iterable[Chart]:
    for direction in Direction:
        for track in history.shown(direction, wanted.space):
            if track.window:
                title = f"{track.space.capitalize()} numbers, {way(direction)}"
                chart = _chart(
                    "seq", history, direction, title,
                    "sequence number over time, around the slowest", "",
                )  # fmt: skip
                if wanted.start_ns is not None or wanted.end_ns is not None:
                    chart.about = "sequence number over time"
                yield sequence(chart, history, track)


KINDS: Final[dict[str, tuple[Callable[[History, Wanted], Iterable[Chart]], str]]] = {
    "acks": (_acks, "how long each unit waited for its acknowledgement"),
    "seq": (_sequence, "sequence numbers around the slowest unit: copies, acknowledgements"),
    "rate": (_rates, "units per interval: delivered, lost, retransmitted"),
    "rtt": (_rtts, "round-trip times of units and probes, and the smoothed value"),
    "queue": (_queues, "units waiting for an acknowledgement"),
    "gaps": (_silent, "when each side was silent"),
    "snapshots": (_snapshots, "how long each snapshot waited for its acknowledgement"),
}
"""Kind -> (function that makes its charts, what it shows)"""
