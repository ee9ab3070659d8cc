"""Charts as text: braille dots, with every mark as a character over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netdissect.plot.axes import time_ticks
from netdissect.plot.chart import LINES, SIGNS, Band, Chart, Point, Series
from netdissect.plot.grid import Grid
from netdissect.render.console import Line, cells, fit, merged

HEIGHT = 15
"""Rows of a plot without its title, axis and lanes."""
MIN_WIDTH = 30
_MARGIN = 9  # columns of the numbers at the y axis
_TICK_COLUMNS = 12
_ROW_TICKS = 4

STYLES = {
    "client": "c2s", "server": "s2c", "good": "good", "again": "resend", "bad": "bad", "dim": "dim",
}  # fmt: skip
"""Role -> style of a screen."""

_SHAPES = frozenset({"box", "again", "copy", "unseen", "lost", "unknown", "probe", "tick"})
"""Shapes drawn as characters; the others are dots, lines and bars."""


def draw(chart: Chart, *, width: int, height: int = HEIGHT, plain: bool = False) -> Iterator[Line]:
    """Yield the lines of a chart, none longer than `width`.

    Args:
        chart: what to draw.
        width: columns of the screen.
        height: rows of the plot itself.
        plain: ASCII only.

    """
    columns = max(MIN_WIDTH, width) - _MARGIN - 1
    lanes = chart.lanes
    height = 0 if len(lanes) == len(chart.series) else max(4, height)
    if chart.low < 0:
        height += height % 2  # so that zero is between two rows
    picture = _Picture(chart, columns, height, plain=plain)
    title = chart.title if not plain else chart.title.replace("→", "->").replace("←", "<-")
    yield [(f" {fit(title, width - 1)}", "title"), *_about(chart, title, width, plain=plain)]
    if chart.flags:
        yield picture.flags()
    yield from picture.rows()
    for lane in lanes:
        yield picture.lane(lane)
    yield from picture.axis()
    yield from _legend(chart, width, plain=plain)
    for note in chart.notes:
        yield [(fit(f" {note}", width), "dim")]


def _about(chart: Chart, title: str, width: int, *, plain: bool) -> Line:
    about = chart.about.replace("→", "->") if plain else chart.about
    # If there is no room for all of it, only the unit.
    for text in (about, about.partition(",")[0]):
        if cells(title) + cells(text) + 4 <= width:
            return [(f"   {text}", "dim")]
    return []


def column_of(chart: Chart, time_ns: int, width: int) -> int:
    """Return the column in which `draw` shows a time."""
    columns = max(MIN_WIDTH, width) - _MARGIN - 1
    share = (time_ns - chart.start_ns) * (columns - 1) // max(1, chart.end_ns - chart.start_ns)
    return _MARGIN + max(0, min(columns - 1, share))


def time_at(chart: Chart, column: int, width: int) -> int:
    """Return the time that `draw` shows in a column."""
    columns = max(MIN_WIDTH, width) - _MARGIN - 1
    at = max(0, min(columns - 1, column - _MARGIN))
    return chart.start_ns + at * (chart.end_ns - chart.start_ns) // max(1, columns - 1)


class _Picture:
    """A chart on a grid of cells."""

    def __init__(self, chart: Chart, columns: int, height: int, *, plain: bool) -> None:
        self.chart = chart
        self.columns = columns
        self.height = height
        self.plain = plain
        self.grid = Grid(columns, height, plain=plain)
        for series in sorted(chart.series, key=_layer):
            if series.lane is None and height:
                self._series(series)

    def _series(self, series: Series) -> None:
        style = STYLES[series.role]
        if series.shape in {"bar", "crossed", "outline"}:
            for point in series.points:
                self._bar(series, point, style)
        elif series.shape in LINES:
            self._line(series, style)
        elif series.shape in _SHAPES or self.chart.kind == "seq":
            sign = self._sign(series.shape)
            for point in series.points:
                if point.value is not None:
                    x, y = self._place(point.time_ns, point.value)
                    self.grid.mark(x // 2, y // 4, sign, style)
        else:
            for point in series.points:
                if point.value is not None:
                    self.grid.dot(*self._place(point.time_ns, point.value), style)

    def _sign(self, shape: str) -> str:
        return SIGNS[shape].plain[0] if self.plain else SIGNS[shape].sign

    def _x(self, time_ns: int) -> int:
        chart = self.chart
        span = chart.end_ns - chart.start_ns
        return (time_ns - chart.start_ns) * (2 * self.columns - 1) // span

    def _place(self, time_ns: int, value: float) -> tuple[int, int]:
        chart = self.chart
        share = (value - chart.low) / ((chart.high - chart.low) or 1.0)
        rows = 4 * self.height
        return self._x(time_ns), rows - 1 - min(rows - 1, max(0, int(share * (rows - 1) + 0.5)))

    def _line(self, series: Series, style: str) -> None:
        """Draw steps between the points, or a line from each point to its end."""
        before: Point | None = None
        for point in series.points:
            if point.value is None:
                continue
            x, y = self._place(point.time_ns, point.value)
            if series.shape == "line":
                end = self._x(point.until_ns or point.time_ns)
                self.grid.across(x, end, y, style)
            elif before is not None and before.value is not None:
                self._level(series, before, x, style)
                if not series.dashed:
                    self.grid.down(x, self._place(before.time_ns, before.value)[1], y, style)
            before = point
        if before is not None and before.value is not None and series.shape != "line":
            self._level(series, before, self._x(self.chart.lines_end_ns), style)

    def _level(self, series: Series, point: Point, end: int, style: str) -> None:
        """Draw the level of a point up to x = `end`; a dashed line gives way to everything else."""
        x, y = self._place(point.time_ns, point.value or 0.0)
        if series.dashed:
            self.grid.behind(x // 2, end // 2, y // 4, "-" if self.plain else "╌", style)
        else:
            self.grid.across(x, end, y, style)

    def _bar(self, series: Series, point: Point, style: str) -> None:
        if point.value is None:
            return
        left = self._x(max(point.time_ns, self.chart.start_ns)) // 2
        right = self._x(min(point.until_ns or point.time_ns, self.chart.end_ns)) // 2
        right = max(left + 1, right - (right - left > 2))  # noqa: PLR2004 - a gap where there is room
        chart = self.chart
        scale = self.height / ((chart.high - chart.low) or 1.0)
        low, high = sorted(((point.base - chart.low) * scale, (point.value - chart.low) * scale))
        for column in range(left, min(right, self.columns)):
            self.grid.bar(column, low, high, self._sign(series.shape), style, down=point.value < 0)

    # -- lines -------------------------------------------------------------------------------------

    def flags(self) -> Line:
        """Return the row of findings above the plot."""
        row = [" "] * self.columns
        for flag in self.chart.flags:
            row[min(self.columns - 1, max(0, self._x(flag.time_ns) // 2))] = "!"
        return [(f"{'found':>{_MARGIN - 2}}   "[:_MARGIN], "dim"), ("".join(row).rstrip(), "warn")]

    def rows(self) -> Iterator[Line]:
        """Yield the rows of the plot with the labels of the y axis."""
        if not self.height:
            return
        marks = self.chart.y_ticks(max(2, self.height // _ROW_TICKS + 1))
        labels = {self._place(self.chart.start_ns, at)[1] // 4: label for at, label in marks}
        tick, rule = ("|", "|") if self.plain else ("┤", "│")
        for row in range(self.height):
            label = labels.get(row)
            head = f"{label or '':>{_MARGIN - 2}} {tick if label else rule}"
            yield [(head, "dim"), *self.grid.row(row)]

    def lane(self, series: Series) -> Line:
        """Return the row of a lane below the plot."""
        sign = self._sign(series.shape)
        style = STYLES[series.role]
        row = [" "] * self.columns
        for point in series.points:
            left = max(0, self._x(point.time_ns) // 2)
            right = self._x(point.until_ns or point.time_ns) // 2
            for at in range(left, max(left + 1, min(right, self.columns))):
                row[min(at, self.columns - 1)] = sign
        head = sign if self.chart.kind != "gaps" else series.name
        if self.plain:
            head = head.replace("→", ">").replace("←", "<").replace("·", ".")
        body: Line = [("".join(row).rstrip(), style)]
        bands = [band for band in self.chart.bands if band.direction == series.lane]
        if bands:
            body = self._banded(row, bands, style)
        return [(f"{head:>{_MARGIN - 2}} {'|' if self.plain else '┤'}", "dim"), *body]

    def _banded(self, row: list[str], bands: Sequence[Band], style: str) -> Line:
        """Return a lane with its silences, and the length of each where there is room."""
        styles = [style] * self.columns
        line = "-" if self.plain else "┄"
        for band in bands:
            left = max(0, self._x(band.start_ns) // 2 + 1)
            right = min(self.columns, self._x(band.end_ns) // 2)
            if right <= left:
                continue
            label = f" {band.label} "
            text = f"{label:{line}^{right - left}}" if right - left >= len(label) + 2 else ""
            row[left:right] = text or line * (right - left)
            styles[left:right] = ["bad"] * (right - left)
        return merged(zip(row, styles, strict=True))

    def axis(self) -> Iterator[Line]:
        """Yield the x axis and its labels."""
        chart = self.chart
        corner, dash, tee = ("+", "-", "+") if self.plain else ("└", "─", "┬")
        line = [dash] * self.columns
        labels = [" "] * (self.columns + _MARGIN)
        free = 0
        found = time_ticks(
            chart.start_ns - chart.zero_ns, chart.end_ns - chart.zero_ns,
            max(2, self.columns // _TICK_COLUMNS),
        )  # fmt: skip
        for time_ns, label in found:
            at = min(self.columns - 1, self._x(time_ns + chart.zero_ns) // 2)
            line[at] = tee
            if at >= free and at + len(label) <= len(labels):
                labels[at : at + len(label)] = label
                free = at + len(label) + 1
        yield [(f"{'':{_MARGIN - 1}}{corner}{''.join(line)}", "dim")]
        text = "".join(labels).rstrip()
        yield [(f"{'':{_MARGIN}}{text}"[: self.columns + _MARGIN + 1], "dim")]


def _layer(series: Series) -> int:
    """Return the order of drawing: lines, then points, then marks by importance."""
    order = ("bar", "crossed", "outline", "steps", "stair", "line", "plain", "dot", "tick", "probe",
             "unseen", "unknown", "copy", "box", "again", "lost")  # fmt: skip
    return order.index(series.shape)


def _legend(chart: Chart, width: int, *, plain: bool) -> Iterator[Line]:
    """Yield the legend in as many lines as needed."""
    line: Line = [(" ", "")]
    used = 1
    for series in chart.explained:
        sign = _legend_sign(series, chart.kind, plain=plain)
        name = series.name.replace("→", "->") if plain else series.name
        text = f" {fit(name, width - 5)}  "
        size = cells(sign) + cells(text)
        if used + size > width and used > 1:
            yield line
            line, used = [(" ", "")], 1
        line += [(sign, STYLES[series.role]), (text, "dim")]
        used += size
    if chart.flags and used + 12 <= width:
        line += [("!", "warn"), (" finding", "dim")]
    if len(line) > 1:
        yield line


def _legend_sign(series: Series, chart_kind: str, *, plain: bool) -> str:
    if series.shape == "stair":
        return "_|-" if plain else "▁▔"
    if series.shape in LINES:
        both = ("- -", "╌╌") if series.dashed else ("---", "──")
        return both[0] if plain else both[1]
    if series.shape == "dot" and chart_kind != "seq":
        return "." if plain else "⠄"
    return SIGNS[series.shape].plain[0] if plain else SIGNS[series.shape].sign
