"""The plot of sequence numbers: a few units with all their copies and their acknowledgements."""

from __future__ import annotations

from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.plot.chart import Chart, Point, Series
from netdissect.plot.history import History, Track, span_ms, took_ms
from netdissect.render.units import duration

_AROUND = 24
"""Without a requested span: units shown before and after the slowest one..."""
_SPAN = 5
"""... within this many times the time that the slowest one took ..."""
_NEAREST = 4
"""... but always this many on either side."""
_UNSEEN = 100
"""Numbers of one gap that are drawn: a peer may skip billions."""


def sequence(chart: Chart, history: History, track: Track) -> Chart:
    """Fill a chart with the units of a track's window."""
    units = sorted(track.window, key=lambda unit: unit.copies[0].time_ns)
    slowest = max(units, key=_waited)
    if history.span is None:
        units = _around(units, slowest)
    last = {id(unit): _end(unit, chart.end_ns) for unit in units}
    chart.start_ns = min(unit.copies[0].time_ns for unit in units)
    chart.end_ns = max(chart.start_ns + 1, *last.values())
    margin = (chart.end_ns - chart.start_ns) // 50
    chart.start_ns = max(chart.zero_ns, chart.start_ns - margin)
    chart.end_ns += margin
    seqs = [unit.seq for unit in units]
    chart.low, chart.high = min(seqs) - 1.0, max(seqs) + 1.0
    chart.whole = True
    chart.series = list(_series(chart, history, track, units, last))
    text = _story(slowest)
    chart.said = f"{track.space} {slowest.seq} {text}."
    chart.notes = [f"{track.space} {slowest.seq}: {text}"]
    if len(track.points.points) > len(units):
        chart.notes.append(f"{len(units):,} of {track.points.total:,} units")
    return chart


def _waited(unit: UnitRecord) -> float:
    taken = took_ms(unit)
    return span_ms(unit) if taken is None else taken


def _around(units: list[UnitRecord], slowest: UnitRecord) -> list[UnitRecord]:
    at = next(index for index, unit in enumerate(units) if unit is slowest)
    reach = max(50_000_000, int(_waited(slowest) * 1e6) * _SPAN)
    moment = slowest.copies[0].time_ns
    return [
        unit
        for index, unit in enumerate(units)
        if abs(index - at) <= _NEAREST
        or (abs(index - at) <= _AROUND and abs(unit.copies[0].time_ns - moment) <= reach)
    ]


def _end(unit: UnitRecord, end_ns: int) -> int:
    """Return where the line of a unit ends."""
    last = unit.copies[-1].time_ns
    if unit.acked_time_ns is not None:
        return max(last, unit.acked_time_ns)
    return min(last, end_ns) if end_ns else last


def _story(unit: UnitRecord) -> str:
    copies = len(unit.copies)
    how = "one copy" if copies == 1 else f"{copies} copies"
    taken = took_ms(unit)
    if taken is None:
        lost = unit.failed and unit.outcome != "unknown"
        word = "never acknowledged" if lost else "no acknowledgement in this capture"
        return f"{how}, {word}"
    return f"{how}, acknowledged after {duration(taken)}"


def _skipped(gap: ConnectionEvent, low: int, high: int) -> range:
    """Return the numbers of a gap between two heights; if they are too many, evenly spaced ones."""
    first, step = gap.data["first_seq"], gap.data.get("step") or 1
    first += max(0, -(-(low - first) // step)) * step
    found = range(first, min(gap.data["last_seq"], high) + 1, step)
    return found[:: -(-len(found) // _UNSEEN) or 1]


_SHAPES = {"retransmission": "again", "duplicate": "copy", "unknown": "unknown"}
"""Kind of a further copy -> shape of its point."""


def _series(
    chart: Chart, history: History, track: Track, units: list[UnitRecord], last: dict[int, int]
) -> list[Series]:
    role = SIDES[track.direction]
    kinds: dict[str, list[Point]] = {key: [] for key in ("dot", "again", "copy", "lost", "unknown")}
    lines, ticks, stair = [], [], []
    for unit in units:
        label, seq = f"{track.space} {unit.seq}", float(unit.seq)
        for copy in unit.copies:
            shape = _SHAPES.get(copy.kind, "dot")
            kinds[shape].append(Point(copy.time_ns, seq, copy.frame, label, mark=shape))
        first = unit.copies[0]
        if last[id(unit)] > first.time_ns:
            lines.append(Point(first.time_ns, seq, first.frame, label, last[id(unit)]))
        if unit.acked_time_ns is not None:
            ticks.append(Point(unit.acked_time_ns, seq, unit.acked_frame, f"{label} acknowledged"))
        elif unit.failed:
            shape = "unknown" if unit.outcome == "unknown" else "lost"
            place = unit.copies[-1]
            kinds[shape].append(Point(place.time_ns, seq, place.frame, label, mark=shape))
    highest = chart.low
    for tick in sorted(ticks, key=lambda point: (point.time_ns, point.value)):
        if tick.value is not None and tick.value > highest:
            highest = tick.value
            stair.append(Point(tick.time_ns, highest, tick.frame, "highest acknowledged"))
    unseen = [
        Point(gap.time_ns, float(seq), gap.frame, f"{track.space} {seq} never seen", mark="unseen")
        for gap in history.gaps()
        if gap.direction == track.direction and gap.data.get("space") == track.space
        and chart.start_ns <= gap.time_ns <= chart.end_ns and not gap.came
        for seq in _skipped(gap, int(chart.low), int(chart.high))
    ]  # fmt: skip
    found = [
        Series("highest number acknowledged", "stair", "good", stair),
        Series("waiting for its acknowledgement", "line", role, lines),
        Series("first copy", "dot", role, kinds["dot"]),
        Series("acknowledged", "tick", "good", ticks),
        Series("retransmitted", "again", "again", kinds["again"]),
        Series("duplicated by the network", "copy", "again", kinds["copy"]),
        Series("never acknowledged", "lost", "bad", kinds["lost"]),
        Series("unknown", "unknown", "dim", kinds["unknown"]),
        Series("never seen here", "unseen", "dim", unseen),
    ]
    return [series for series in found if series.points]
