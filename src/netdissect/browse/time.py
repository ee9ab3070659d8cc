"""Units of a connection, slowest first, and the ladder of one of them; pictures; findings."""

from __future__ import annotations

import textwrap
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from netdissect.browse.connections import moment_at
from netdissect.browse.pane import Pane
from netdissect.model.annotations import CodeRow
from netdissect.model.reports import Anomaly, UnitRecord
from netdissect.pipeline.index import Index
from netdissect.plot.chart import Chart, Point
from netdissect.plot.charts import KINDS, Wanted, charts
from netdissect.plot.history import History
from netdissect.plot.terminal import column_of, draw, time_at
from netdissect.render.console import Line, fit
from netdissect.render.timeline import unit_head, unit_line
from netdissect.render.tree import SEVERITY_LETTERS
from netdissect.render.units import (
    COPIES,
    Clock,
    arrow_of,
    counted,
    direction_style,
    duration,
)

__all__ = ["Findings", "Plots", "Units", "among", "explained", "ladder"]

Kind: TypeAlias = tuple[CodeRow, int, int | None, Anomaly | None]
"""A kind of findings: (what it is, how often, first frame, one of them)."""

_NARROW = 60
_LADDER = 60
_BESIDE = 47
"""Columns of the time, the frame and what is said of a copy."""
_ON_TIME_MS = 1.0
_ZOOM = 4
"""One step of zooming."""
_LEAST_NS = 1_000_000
"""Span that is not divided further."""


class Units(Pane):
    """The slowest units of a connection."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.units: list[UnitRecord] = []
        self.lanes: Sequence[Line] = ()
        self.by_time = False
        self.whole = (0, 0)
        """First and last moment of the connection."""
        self.part: tuple[int, int] | None = None
        """Those of what is shown; None = all."""
        self.began: int | None = None
        """Where a span begins of which the end is not said yet."""
        self._clock = clock

    def __len__(self) -> int:
        return len(self.units)

    def show(self, units: Sequence[UnitRecord]) -> None:
        """Show the units of another connection, or in another order."""
        self.units = sorted(units, key=_sent) if self.by_time else list(units)
        self.cursor = self.top = 0

    def unit(self) -> UnitRecord | None:
        """Return the unit under the cursor."""
        return self.units[self.cursor] if self.cursor < len(self.units) else None

    def of(self, whole: tuple[int, int]) -> None:
        """Take the span of the connection; that of another one is shown whole."""
        if whole[0] != self.whole[0]:
            self.part = self.began = None
        self.whole = whole

    def inside(self, units: list[UnitRecord]) -> list[UnitRecord]:
        """Return those units that were first sent in what is shown."""
        start, end = self.part or self.whole
        return [unit for unit in units if start <= _sent(unit) <= end] if self.part else units

    def zoom(self, by: int) -> bool:
        """Show less of the time, around the unit under the cursor; more; or (0) all of it.

        Returns:
            Whether anything changed.

        """
        before, unit = self.part, self.unit()
        start, end = before or self.whole
        size = (end - start) // _ZOOM if by > 0 else (end - start) * _ZOOM
        if by > 0 and size < _LEAST_NS:
            return False
        middle = (start + end) // 2 if unit is None else _sent(unit)
        start = max(self.whole[0], middle - size // 2)
        all_of_it = not by or size >= self.whole[1] - self.whole[0]
        self.part = None if all_of_it else (start, min(start + size, self.whole[1]))
        return self.part != before

    def span(self, start_ns: int, end_ns: int) -> str:
        """Show the time between two moments; return which that is, in words."""
        start_ns, end_ns = sorted((start_ns, end_ns))
        if end_ns - start_ns < _LEAST_NS:
            return "no closer than this"
        self.part = start_ns, end_ns
        since, till = ((each - self.whole[0]) / 1e9 for each in self.part)
        return f"{since:.3f} to {till:.3f} s; 0 shows all"

    def moment(self, column: int, width: int) -> int:
        """Return the time at a column of the lanes."""
        return moment_at(column, width, self.part or self.whole)

    def head(self, width: int) -> Sequence[Line]:
        """Return the lanes and the heading."""
        order = "oldest first" if self.by_time else "slowest first"
        return [*self.lanes, [(f" {unit_head(width - 1, order)}", "dim")]]

    def line(self, number: int, width: int) -> Line:
        """Return one unit."""
        return unit_line(self.units[number], self._clock, width)


def _sent(unit: UnitRecord) -> int:
    return unit.copies[0].time_ns


def ladder(unit: UnitRecord, clock: Clock, width: int) -> list[Line]:
    """Return every copy of a unit and its acknowledgement as arrows between two lanes."""
    inner = max(16, min(_LADDER, width - _BESIDE))
    forward = not unit.direction
    name = fit(f" {unit.space} {unit.wire_seq} ", inner - 6)
    lines: list[Line] = []
    before = None
    for copy in unit.copies:
        sign, style, _ = COPIES.get(copy.kind, ("─", direction_style(unit.direction), ""))
        since = "" if before is None else f"  +{duration((copy.time_ns - before) / 1e6)}"
        before = copy.time_ns
        late = ""
        if copy.due_ns is not None:
            ms = (copy.time_ns - copy.due_ns) / 1e6
            late = f"  {duration(abs(ms))} {'late' if ms >= 0 else 'early'}"
            if abs(ms) < _ON_TIME_MS:
                late = "  on time"
        lines.append([
            (f"{clock.show(copy.time_ns):>12} ", "time"),
            (_arrow(name, sign, inner, forward=forward), style),
            (f" #{copy.frame}", "frame"), (f"{since}{late}", "dim"),
        ])  # fmt: skip
    if unit.acked_frame is not None and unit.acked_time_ns is not None and unit.copies:
        took = (unit.acked_time_ns - unit.copies[0].time_ns) / 1e6
        mark = "~" if unit.rtt_ambiguous else ""
        # Above copies that its sender made before it knew.
        place = sum(copy.time_ns <= unit.acked_time_ns for copy in unit.copies)
        lines.insert(place, [
            (f"{clock.show(unit.acked_time_ns):>12} ", "time"),
            (_arrow(" acknowledged ", "─", inner, forward=not forward),
             direction_style(1 - unit.direction)),
            (f" #{unit.acked_frame}", "frame"), (f"  after {mark}{duration(took)}", "good"),
        ])  # fmt: skip
    else:
        lost = unit.failed and unit.outcome != "unknown"
        said = "✗ never acknowledged" if lost else "? no acknowledgement in this capture"
        lines.append([(f"{'':>13}{said}", "bad" if lost else "dim")])
    return lines


def _arrow(name: str, sign: str, inner: int, *, forward: bool) -> str:
    shaft = f"{name:─^{inner - 3}}"
    if sign != "─":
        shaft = "──" + sign * 2 + shaft[4:]
    return f"│{shaft}▶│" if forward else f"│◀{shaft}│"


class Plots(Pane):
    """One picture at a time, with a cursor that walks its points."""

    selects = False

    def __init__(self) -> None:
        super().__init__()
        self.kind = 0
        self.which = 0
        self.point = 0
        self.began: int | None = None
        """Where a span begins of which the end is not said yet."""
        self.plain = False
        self._wanted: Wanted | None = None
        """The span that is seen; None = all."""
        self._span_ns = 0
        """That of all."""
        self._found: list[Chart] = []
        self._points: list[Point] = []
        self._history: History | None = None
        self._lines: list[Line] = []

    def __len__(self) -> int:
        return len(self._lines)

    def show(self, history: History | None) -> None:
        """Show another connection."""
        if history is not self._history:
            known, self._history = self._history, history
            if known is None or history is None or known.connection != history.connection:
                self._wanted = None
            self.turn(0)

    def zoom(self, by: int) -> bool:
        """Show less of the time, around the point under the cursor; more; or (0) all of it.

        Returns:
            Whether anything changed.

        """
        chart, here = self.chart(), self.here()
        if chart is None:
            return False
        before = self._wanted
        if before is None:
            self._span_ns = chart.end_ns - chart.start_ns
        frame = None if here is None else here.frame
        span = chart.end_ns - chart.start_ns
        span = span // _ZOOM if by > 0 else span * _ZOOM
        middle = chart.start_ns + chart.end_ns if here is None else 2 * here.time_ns
        start = max(0, middle // 2 - span // 2 - chart.zero_ns)
        whole = self._history is None or span >= self._span_ns
        if by > 0 and span < _LEAST_NS:
            return False
        self._show(None if not by or whole else Wanted(start_ns=start, end_ns=start + span))
        if frame is not None:
            self.near(frame)
        return self._wanted != before

    def _show(self, wanted: Wanted | None) -> None:
        """Draw another span of time, of the same chart where there still is one."""
        self._wanted, which = wanted, self.which
        # It draws anew, and begins with the first chart.
        self.turn(0)
        self.which = min(which, max(0, len(self._found) - 1))
        self._gather()

    def span(self, start_ns: int, end_ns: int) -> str:
        """Show the time between two moments; return what lies in it, in words."""
        chart = self.chart()
        start_ns, end_ns = sorted((start_ns, end_ns))
        if chart is None or end_ns - start_ns < _LEAST_NS:
            return "no closer than this"
        if self._wanted is None:
            self._span_ns = chart.end_ns - chart.start_ns
        self._show(Wanted(start_ns=start_ns - chart.zero_ns, end_ns=end_ns - chart.zero_ns))
        inside = [point for point in self._points if start_ns <= point.time_ns <= end_ns]
        since, till = ((each - chart.zero_ns) / 1e9 for each in (start_ns, end_ns))
        return f"{since:.3f} to {till:.3f} s: {counted(len(inside), 'point')}; 0 shows all"

    def moment(self, column: int, width: int) -> int | None:
        """Return the time at a column of the picture."""
        chart = self.chart()
        return None if chart is None else time_at(chart, column, width)

    def turn(self, by: int) -> None:
        """Go to the next picture that the connection has, or the one before."""
        self._found, self._points, self.point = [], [], 0
        if self._history is None:
            return
        kinds = list(KINDS)
        self.kind = (self.kind + by) % len(kinds)
        for _ in kinds:
            self._found = charts(kinds[self.kind], self._history, self._wanted)
            if self._found:
                break
            self.kind = (self.kind + (by or 1)) % len(kinds)
        self.which = 0
        self._gather()

    def other(self) -> None:
        """Go to the other direction."""
        self.which = (self.which + 1) % max(1, len(self._found))
        self.point = 0
        self._gather()

    def _gather(self) -> None:
        chart = self.chart()
        points = (
            []
            if chart is None
            else [
                point
                for series in chart.series
                for point in series.points
                if point.frame is not None
            ]
        )
        self._points = sorted(points, key=lambda point: point.time_ns)

    def chart(self) -> Chart | None:
        """Return the picture."""
        return self._found[self.which] if self.which < len(self._found) else None

    def step(self, by: int) -> None:
        """Walk along the points."""
        self.point = max(0, min(len(self._points) - 1, self.point + by))

    def near(self, frame: int) -> None:
        """Put the cursor on the point of a frame, or on the next one."""
        frames = [point.frame or 0 for point in self._points]
        later = [place for place, found in enumerate(frames) if found >= frame]
        self.point = min(later, key=lambda place: frames[place], default=0)

    def here(self) -> Point | None:
        """Return the point under the cursor."""
        return self._points[self.point] if self.point < len(self._points) else None

    def draw(self, width: int, height: int, *, focused: bool) -> list[Line]:
        """Return the picture, as large as there is room."""
        chart, here = self.chart(), self.here()
        if chart is None:
            self._lines = [[(" No picture: nothing here is numbered.", "dim")]]
            return super().draw(width, height, focused=focused)
        rows = max(4, height - 6 - len(chart.lanes))
        self._lines = list(draw(chart, width=width - 1, height=rows, plain=self.plain))
        if here is not None:
            at = column_of(chart, here.time_ns, width - 1)
            self._lines.insert(1, [(" " * at + "▼", "title")])
        while len(self._lines) > height and rows > 4:  # noqa: PLR2004 - the least of a picture
            rows -= 1
            marks = self._lines[1:2] if here is not None else []
            self._lines = list(draw(chart, width=width - 1, height=rows, plain=self.plain))
            self._lines[1:1] = marks
        return super().draw(width, height, focused=focused)

    def line(self, number: int, width: int) -> Line:
        """Return one line of the picture."""
        del width
        return self._lines[number]

    def about(self) -> list[Line]:
        """Return what the point under the cursor is."""
        here, chart = self.here(), self.chart()
        if here is None or chart is None:
            return []
        value = "" if here.value is None else f"{here.value:.4g} {chart.unit}".strip()
        name, said = here.label, value
        if not name or name[0].isdigit():  # a count: its series says of what
            said = name or value
            name = next(
                (one.name for one in chart.series if any(point is here for point in one.points)), ""
            )
        if chart.kind == "seq":
            said = ""  # the number is in the name
        text = ": ".join(part for part in (name, said) if part)
        since = (here.time_ns - chart.zero_ns) / 1e9
        return [[
            (f" {since:.3f} s ", "time"), (f" #{here.frame} ", "frame"), (f" {text}", ""),
            (f"   {self.point + 1:,} of {counted(len(self._points), 'point')}", "dim"),
        ]]  # fmt: skip


class Findings(Pane):
    """Kinds of findings, worst first."""

    def __init__(self, codes: Mapping[str, CodeRow]) -> None:
        super().__init__()
        self.codes = codes
        self.rows: list[Kind] = []

    def __len__(self) -> int:
        return len(self.rows)

    def counted(
        self, index: Index, anomalies: Sequence[Anomaly],
        connection: int | None, shown: Sequence[int] | None, *, filtered: bool,
    ) -> list[Kind]:  # fmt: skip
        """Return what is found, of one connection or of all; `shown` are the rows that are shown,
        None = all. Where they are `filtered`, findings of no frame are left out. Takes long where
        many are: a thread of its own may ask.
        """
        examples: dict[str, Anomaly] = {}
        loose: Counter[str] = Counter()
        for found in anomalies:
            if connection is None or found.connection == connection:
                examples.setdefault(found.code, found)
                loose[found.code] += found.frame is None and not filtered
        rows: list[Kind] = []
        hits = dict(index.hits)
        for code in {*hits, *examples}:
            row = self.codes.get(code)
            if row is None:
                continue
            places: Sequence[int] = hits.get(code, ())
            first = index.first_hits.get(code)
            if shown is not None:
                places = [frame for frame in places if among(index, shown, frame)]
            example = examples.get(code)
            if not places and not loose[code] and (shown is not None or example is None):
                continue
            if shown is not None:
                first = min(places, default=None)
            known = example.frame if example is not None else None
            rows.append((row, max(len(places) + loose[code], 1), first or known, example))
        rows.sort(key=lambda row: (-row[0].severity, -row[1], row[0].code))
        return rows

    def take(self, rows: list[Kind]) -> None:
        """Show other kinds; a cursor that was moved stays on its own."""
        before = self.code()
        self.rows = rows
        for place, (row, *_) in enumerate(self.rows):
            if self.held and row.code == before:
                self.cursor = place

    def first(self) -> int | None:
        """Return the first frame of the kind under the cursor."""
        return self.rows[self.cursor][2] if self.cursor < len(self.rows) else None

    def code(self) -> str | None:
        """Return the kind under the cursor."""
        return self.rows[self.cursor][0].code if self.cursor < len(self.rows) else None

    def head(self, width: int) -> Sequence[Line]:
        """Return the heading."""
        code = f"   {'code':<{self._columns()}}"
        if width < _NARROW:
            return [[(f"{code} {'first':>8}", "dim")]]
        return [[(f"{code} {'times':>7} {'first':>8}  what it says", "dim")]]

    def _columns(self) -> int:
        return max(12, *(len(row.code) for row, *_ in self.rows), 12)

    def line(self, number: int, width: int) -> Line:
        """Return one kind."""
        row, count, first, example = self.rows[number]
        label = row.severity.label
        return [
            (f"{SEVERITY_LETTERS[label]} ", label),
            (f"{row.code:<{self._columns()}} ", label),
            (f"{count:>7,} " if width >= _NARROW else "", ""),
            (f"{'' if first is None else f'#{first}':>8}  ", "frame"),
            ((row.title if example is None else example.message) if width >= _NARROW else "", ""),
        ]


def among(index: Index, rows: Sequence[int], frame: int) -> bool:
    """Return whether a frame is that of one of these rows, which are in order."""
    place = bisect_left(rows, frame, key=index.frames.__getitem__)
    return place < len(rows) and index.frames[rows[place]] == frame


def explained(row: CodeRow, example: Anomaly | None, clock: Clock, width: int) -> list[Line]:
    """Return what a finding means, and what this capture says of it."""
    lines: list[Line] = []
    for head, text in (("What: ", row.meaning), ("Here: ", example.message if example else "")):
        rows = textwrap.wrap(head + text, max(20, width - 2), break_on_hyphens=False)
        lines += [[(f" {part}", "")] for part in rows if text]
    if example is not None:
        who = "no connection" if example.connection is None else f"connection {example.connection}"
        where: Line = [(f" {arrow_of(example.direction)} {who}", "dim")]
        if example.frame is not None:
            where.append((f"  #{example.frame}", "frame"))
            where.append((f" at {clock.show(example.time_ns)}", "time"))
        lines.append(where)
    return lines
