"""The plots of a connection, one at a time, with a cursor on their points."""

from __future__ import annotations

from netdissect.browse.pane import Pane
from netdissect.browse.window import TimeWindow
from netdissect.plot.chart import Chart, Point
from netdissect.plot.charts import KINDS, Wanted, charts
from netdissect.plot.history import History
from netdissect.plot.terminal import column_of, draw, time_at
from netdissect.render.console import Line
from netdissect.render.units import counted

_AXIS_ROWS = 6
"""Rows that a plot needs beside its data: title, findings, axis, legend."""
_MIN_ROWS = 4


class Plots(Pane):
    """One plot, with a cursor that moves from point to point."""

    selects = False

    def __init__(self, *, plain: bool = False) -> None:
        """Take whether to draw in ASCII only."""
        super().__init__()
        self.point = 0
        """Index of the point under the cursor."""
        self.window = TimeWindow()
        self._plain = plain
        self._kind = 0
        """Index of the kind among KINDS."""
        self._which = 0
        """Index of the chart among those of this kind."""
        self._charts: list[Chart] = []
        self._points: list[Point] = []
        self._history: History | None = None
        self._lines: list[Line] = []

    def __len__(self) -> int:
        return len(self._lines)

    def show(self, history: History | None) -> None:
        """Show the plots of a connection."""
        if history is not self._history:
            known, self._history = self._history, history
            if known is None or history is None or known.connection != history.connection:
                self.window = TimeWindow()
                self._points = []
            self.turn(0)

    def zoom(self, by: int) -> bool:
        """Zoom around the point under the cursor, as `TimeWindow.zoom` does."""
        if self._measured() is None or not self.window.zoom(by, self.cursor_ns()):
            return False
        self.turn(0)
        return True

    def select_span(self, one_ns: int, other_ns: int) -> str:
        """Show the time between two moments; return a message about what it holds."""
        chart = self._measured()
        if chart is None or not self.window.select(one_ns, other_ns):
            return "no closer than this"
        self.turn(0)
        start, end = self.window.part or self.window.whole
        inside = sum(start <= point.time_ns <= end for point in self._points)
        return f"{self.window.label(chart.zero_ns)}: {counted(inside, 'point')}; 0 shows all"

    def _measured(self) -> Chart | None:
        """Return the chart; if all of it is shown, note the span of that."""
        chart = self.chart()
        if chart is not None and self.window.part is None:
            self.window.whole = chart.start_ns, chart.end_ns
        return chart

    def time_at(self, column: int, width: int) -> int | None:
        """Return the time at a column of the plot."""
        chart = self.chart()
        return None if chart is None else time_at(chart, column, width)

    def turn(self, by: int) -> None:
        """Go to the next kind (`by` = 1), or the previous one (-1), that has a chart; 0 = draw the
        present one anew. The cursor stays on its frame.
        """
        here, self._charts = self.here(), []
        if self._history is not None:
            kinds, wanted = list(KINDS), self._wanted(self._history)
            self._kind = (self._kind + by) % len(kinds)
            for _ in kinds:
                self._charts = charts(kinds[self._kind], self._history, wanted)
                if self._charts:
                    break
                self._kind = (self._kind + (by or 1)) % len(kinds)
        self._which = min(self._which, max(0, len(self._charts) - 1))
        self.point = 0
        self._gather()
        if here is not None and here.frame is not None:
            self.find_frame(here.frame)

    def _wanted(self, history: History) -> Wanted | None:
        """Return the span as a request to `charts`, relative to the first datagram."""
        if self.window.part is None:
            return None
        zero = history.first_ns or 0
        start, end = self.window.part
        return Wanted(start_ns=start - zero, end_ns=end - zero)

    def next_chart(self) -> None:
        """Go to the next chart of this kind: usually that of the other direction."""
        self._which = (self._which + 1) % max(1, len(self._charts))
        self.point = 0
        self._gather()

    def _gather(self) -> None:
        chart = self.chart()
        series = [] if chart is None else chart.series
        points = [point for one in series for point in one.points if point.frame is not None]
        self._points = sorted(points, key=lambda point: point.time_ns)

    def chart(self) -> Chart | None:
        """Return the chart that is shown."""
        return self._charts[self._which] if self._which < len(self._charts) else None

    def step(self, by: int) -> None:
        """Move the cursor by this many points."""
        self.point = max(0, min(len(self._points) - 1, self.point + by))
        self.held = True

    def find_frame(self, frame: int) -> None:
        """Put the cursor on the point of a frame, if necessary of the other direction, or of the
        next frame.
        """
        having = [
            which for which, chart in enumerate(self._charts)
            if any(point.frame == frame for one in chart.series for point in one.points)
        ]  # fmt: skip
        if having and self._which not in having:
            self._which = having[0]
            self._gather()
        frames = [point.frame or 0 for point in self._points]
        later = [place for place, found in enumerate(frames) if found >= frame]
        self.point = min(later, key=lambda place: frames[place], default=max(0, len(frames) - 1))

    def here(self) -> Point | None:
        """Return the point under the cursor."""
        return self._points[self.point] if self.point < len(self._points) else None

    def cursor_ns(self) -> int | None:
        """Return the time of the point under the cursor."""
        here = self.here()
        return None if here is None else here.time_ns

    def draw(self, width: int, height: int, *, focused: bool) -> list[Line]:
        """Return the plot, as large as there is room."""
        chart = self.chart()
        if chart is None:
            none: Line = [(" No plot: nothing that is shown is numbered.", "dim")]
            self._lines = [] if self._history is None else [none]
            return super().draw(width, height, focused=focused)
        rows = max(_MIN_ROWS, height - _AXIS_ROWS - len(chart.lanes))
        self._lines = self._picture(chart, width - 1, rows)
        while len(self._lines) > height and rows > _MIN_ROWS:
            rows -= 1
            self._lines = self._picture(chart, width - 1, rows)
        return super().draw(width, height, focused=focused)

    def _picture(self, chart: Chart, width: int, rows: int) -> list[Line]:
        lines = list(draw(chart, width=width, height=rows, plain=self._plain))
        time_ns = self.cursor_ns()
        if time_ns is not None:
            lines.insert(1, [(" " * column_of(chart, time_ns, width) + "▼", "title")])
        return lines

    def line(self, number: int, width: int) -> Line:
        """Return one line of the plot."""
        del width
        return self._lines[number]

    def about(self) -> list[Line]:
        """Return a description of the point under the cursor."""
        here, chart = self.here(), self.chart()
        if here is None or chart is None:
            return []
        value = "" if here.value is None else f"{here.value:.4g} {chart.unit}".strip()
        name, said = here.label, value
        if not name or name[0].isdigit():  # a count: only its series says of what
            said = name or value
            name = next(
                (one.name for one in chart.series if any(point is here for point in one.points)), ""
            )
        if chart.kind == "seq":
            said = ""  # the label has the number already
        text = ": ".join(part for part in (name, said) if part)
        since = (here.time_ns - chart.zero_ns) / 1e9
        return [[
            (f" {since:.3f} s ", "time"), (f" #{here.frame} ", "frame"), (f" {text}", ""),
            (f"   {self.point + 1:,} of {counted(len(self._points), 'point')}", "dim"),
        ]]  # fmt: skip
