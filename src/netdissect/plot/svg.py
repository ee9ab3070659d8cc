"""Charts as static SVG, coloured by role: in a page by its style sheet, in a stand-alone document
by its own.

A path consists of absolute places (`M x y`, `L x y`) and relative shapes (small letters), so that a
script can move the places without knowing the shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pkgutil import get_data

from netdissect.plot.axes import time_ticks
from netdissect.plot.chart import LINES, Chart, Point, Series
from netdissect.plot.markup import Html, join, tag
from netdissect.plot.thin import thinned

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 1200, 64, 16, 18, 26
"""Width of a plot and its margins, in its own units."""
MAX_MARKS = 4000
"""Marks in one plot."""
_HEIGHTS = {"acks": 190, "snapshots": 190, "rtt": 170, "seq": 330, "rate": 200, "queue": 150,
            "gaps": 10}  # fmt: skip
_LANE = 18
_Y_TICKS = {"seq": 6}
_FEWEST_COLUMNS = 50

_BARS = frozenset({"bar", "crossed", "outline"})
_SHAPE_PATHS = {
    "dot": "h0",
    "plain": "h0",
    "box": "m-3.5-3.5h7v7h-7z",
    "again": "m-5-4l4 4l-4 4m5-8l4 4l-4 4",
    "copy": "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "unseen": "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "lost": "m-4-4l8 8m-8 0l8-8",
    "unknown": "m-2.5-3a2.5 2.5 0 1 1 2.5 3v2m0 2v.5",
    "probe": "m0-4.5l4 8h-8z",
    "tick": "m0-5v10",
    "flag": "m0-5v6m0 2.5v1",
}
"""Shape -> its path, relative to its place."""


def picture(chart: Chart, name: str, *, most: int = MAX_MARKS) -> Html:
    """Return a chart as an `svg` element.

    Args:
        chart: what to draw.
        name: its id.
        most: marks at most; extremes and rare marks are kept.

    """
    return _drawn(chart, name, most, alone=False)[0]


def _drawn(chart: Chart, name: str, most: int, *, alone: bool) -> tuple[Html, int]:
    """Return a chart as an element, and its height; the element has a fixed size if it stands
    alone.
    """
    drawing = _Drawing(chart, most)
    element = tag(
        "svg",
        tag("title", chart.title, id=f"{name}-t"),
        tag("desc", f"{chart.about}. {chart.said}", id=f"{name}-d"),
        *drawing.body(),
        id=name,
        class_="plot",
        viewBox=f"0 0 {WIDTH} {drawing.total}",
        width=WIDTH if alone else None,
        height=drawing.total if alone else None,
        role="img",
        aria_labelledby=f"{name}-t {name}-d",
        data_start=_relative(chart, chart.start_ns),
        data_end=_relative(chart, chart.end_ns),
        data_kind=chart.kind,
    )
    return element, drawing.total


def _relative(chart: Chart, time_ns: int) -> str:
    return f"{(time_ns - chart.zero_ns) / 1e9:.6f}"


class _Drawing:
    """A chart while it is drawn."""

    def __init__(self, chart: Chart, most: int) -> None:
        self.chart = chart
        self.lanes = chart.lanes
        self.inner = _HEIGHTS.get(chart.kind, 190)
        if len(self.lanes) == len(chart.series):
            self.inner = 0
        self.low_end = TOP + self.inner + (8 if self.inner and self.lanes else 0)
        self.end = self.low_end + _LANE * len(self.lanes)
        self.total = self.end + BOTTOM
        self.most = most

    def x(self, time_ns: int) -> float:
        """Return the x coordinate of a time, limited to the plot."""
        chart = self.chart
        share = (time_ns - chart.start_ns) / (chart.end_ns - chart.start_ns)
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the y coordinate of a value."""
        chart = self.chart
        share = (value - chart.low) / ((chart.high - chart.low) or 1.0)
        return TOP + (1 - share) * self.inner

    def body(self) -> Iterator[Html]:
        """Yield all elements."""
        yield from self._axes()
        yield from self._bands()
        marks: list[Html] = []
        for series, points in zip(self.chart.series, self._thinned(), strict=True):
            if series.shape in _BARS:
                marks += self._bars(series, points)
            else:
                marks += self._path(series, points)
        marks += self._flags()
        yield tag("g", *marks, class_="data")

    def _thinned(self) -> list[list[Point]]:
        """Return the points of each series, few enough for the picture; if some are dropped, add a
        note to the chart.
        """
        chart = self.chart
        found = [series.points for series in chart.series]
        columns = 2 * (WIDTH - LEFT - RIGHT)
        while sum(map(len, found)) > self.most and columns > _FEWEST_COLUMNS:
            columns //= 2
            found = [thinned(series.points, columns) for series in chart.series]
        for series, points in zip(chart.series, found, strict=True):
            dropped = len(points) < len(series.points)
            if dropped and not any(note.endswith("kept") for note in chart.notes):
                count = series.total or len(series.points)
                chart.notes.append(f"{count:,} points, extremes and marks kept")
        return found

    def _axes(self) -> Iterator[Html]:
        chart = self.chart
        top, end = TOP - 6, self.end
        marks = time_ticks(chart.start_ns - chart.zero_ns, chart.end_ns - chart.zero_ns, 10)
        # All lines are one element, so that a page with many plots opens faster.
        lines, labels = "", []
        for time_ns, label in marks:
            x = f"{self.x(time_ns + chart.zero_ns):.1f}"
            lines += f"M{x} {top}V{end}"
            labels.append(tag("text", label, class_="tick", x=x, y=end + 17, text_anchor="middle"))
        yield tag("g", tag("path", class_="grid", d=lines), *labels, class_="xaxis")
        lines = ""
        most = _Y_TICKS.get(chart.kind, 5)
        for value, label in chart.y_ticks(most) if self.inner else ():
            y = round(self.y(value), 1)
            lines += f"M{LEFT} {y}H{WIDTH - RIGHT}"
            yield tag("text", label, class_="tick", x=LEFT - 8, y=y + 4, text_anchor="end")
        yield tag("path", class_="grid", d=lines)
        for series in self.lanes:
            middle = self._lane_y(series) + 4
            name = series.name if chart.kind == "gaps" else _lane_sign(series)
            yield tag("text", name, class_="tick", x=LEFT - 8, y=middle, text_anchor="end")

    def _lane_y(self, series: Series) -> float:
        return self.low_end + _LANE * ((series.lane or 0) + 0.5)

    def _bands(self) -> Iterator[Html]:
        for band in self.chart.bands:
            top, height = TOP - 6, self.end - TOP + 6
            lane = next((one for one in self.lanes if one.lane == band.direction), None)
            if lane is not None:
                top, height = int(self._lane_y(lane) - _LANE / 2 + 2), _LANE - 4
            left, right = self.x(band.start_ns), self.x(band.end_ns)
            if right - left < 1:
                continue
            yield tag(
                "rect", tag("title", f"{band.kind}: {band.label}"), class_=f"band {band.kind}",
                x=f"{left:.2f}", y=top, width=f"{right - left:.2f}", height=height,
            )  # fmt: skip
            if right - left > 8 * len(band.label):
                yield tag(
                    "text", band.label, class_="bandtext", x=f"{(left + right) / 2:.1f}",
                    y=top + height / 2 + 4, text_anchor="middle",
                )  # fmt: skip

    def _bars(self, series: Series, points: Sequence[Point]) -> Iterator[Html]:
        for point in points:
            left, right = self.x(point.time_ns), self.x(point.until_ns or point.time_ns)
            if series.lane is not None:
                top, height = self._lane_y(series) - 4, 8.0
            else:
                ends = sorted((self.y(point.base), self.y(point.value or 0.0)))
                top, height = ends[0], ends[1] - ends[0]
            gap = 1.0 if right - left > 4 else 0.0  # noqa: PLR2004 - room for a gap
            yield tag(
                "rect", class_=f"bar {series.shape} {series.role}", x=f"{left + gap / 2:.2f}",
                width=f"{max(0.5, right - left - gap):.2f}", y=f"{top:.1f}", height=f"{height:.1f}",
                fill="url(#hatch)" if series.shape == "crossed" else None,
                data_f=point.frame, data_w=f"{series.name} {point.label}".strip(),
            )  # fmt: skip

    def _path(self, series: Series, points: Sequence[Point]) -> Iterator[Html]:
        if not points:
            return
        if series.shape in {"steps", "stair"}:
            path = self._steps(points)
        elif series.shape == "line":
            path = "".join(self._span(point) for point in points)
        else:
            shape = _SHAPE_PATHS[series.shape]
            path = "".join(f"M{self._at(series, point)}{shape}" for point in points)
        names = f"{series.shape} {series.role}" + (" dashed" if series.dashed else "")
        frames = None
        if series.shape not in LINES:
            frames = Html(",".join(str(point.frame or "") for point in points))
        yield tag("path", class_=names, d=Html(path), data_f=frames, data_w=series.name)

    def _at(self, series: Series, point: Point) -> str:
        y = self._lane_y(series) if point.value is None else self.y(point.value)
        return f"{self.x(point.time_ns):.2f} {y:.1f}"

    def _span(self, point: Point) -> str:
        y = f"{self.y(point.value or 0.0):.1f}"
        end = self.x(point.until_ns or point.time_ns)
        return f"M{self.x(point.time_ns):.2f} {y}L{end:.2f} {y}"

    def _steps(self, points: Sequence[Point]) -> str:
        first = points[0]
        path = [f"M{self.x(first.time_ns):.2f} {self.y(first.value or 0.0):.1f}"]
        level = first.value or 0.0
        for point in points[1:]:
            x = f"{self.x(point.time_ns):.2f}"
            path.append(f"L{x} {self.y(level):.1f}")
            level = point.value or 0.0
            path.append(f"L{x} {self.y(level):.1f}")
        path.append(f"L{self.x(self.chart.lines_end_ns):.2f} {self.y(level):.1f}")
        return "".join(path)

    def _flags(self) -> Iterator[Html]:
        flags = self.chart.flags
        if not flags:
            return
        shape = f" {TOP - 10}{_SHAPE_PATHS['flag']}"
        path = "".join(f"M{self.x(flag.time_ns):.2f}{shape}" for flag in flags)
        frames = ",".join(str(flag.frame or "") for flag in flags)
        names = ", ".join(sorted({flag.label for flag in flags}))
        title = tag("title", names)
        yield tag("path", title, class_="flag bad", d=Html(path), data_f=frames, data_w=names)


def _lane_sign(series: Series) -> str:
    return {"lost": "✗", "unknown": "?", "unseen": "○"}.get(series.shape, "·")


def _keys(chart: Chart) -> Iterator[tuple[Html, str]]:
    """Yield a drawing of each shape in a box of 28 by 14, and what it means."""
    for series in chart.explained:
        names = f"{series.shape} {series.role}" + (" dashed" if series.dashed else "")
        if series.shape in _BARS:
            fill = "url(#hatch)" if series.shape == "crossed" else None
            box = tag("rect", class_=f"bar {names}", x=8, y=2, width=12, height=10, fill=fill)
            yield box, series.name
        elif series.shape in LINES:
            line = "M2 12H14V2H26" if series.shape == "stair" else "M2 7H26"
            yield tag("path", class_=names, d=line), series.name
        else:
            yield tag("path", class_=names, d=f"M14 7{_SHAPE_PATHS[series.shape]}"), series.name
    if chart.flags:
        yield tag("path", class_="flag bad", d=f"M14 7{_SHAPE_PATHS['flag']}"), "finding"


def legend(chart: Chart) -> Html:
    """Return the legend of a chart as a paragraph."""
    keys = [
        tag("span", tag("svg", key, class_="k", viewBox="0 0 28 14", aria_hidden="true"), name)
        for key, name in _keys(chart)
    ]
    return tag("p", *keys, class_="key")


def hatch() -> Html:
    """Return the pattern that fills lost units; a document needs it once."""
    lines = tag("path", d="M0 0l6 6m-6 0l6-6", class_="hatch")
    pattern = tag("pattern", lines, id="hatch", width=6, height=6, patternUnits="userSpaceOnUse")
    return tag("defs", pattern)


_CSS = (get_data("netdissect.plot", "plot.css") or b"").decode()


def style() -> str:
    """Return the style sheet of plots: colours by role, light and dark, and the shapes."""
    return _CSS


def document(found: Sequence[Chart]) -> str:
    """Return charts as one stand-alone SVG document."""
    parts: list[Html] = []
    top = 16
    for index, chart in enumerate(found):
        drawn, height = _drawn(chart, f"p{index}", MAX_MARKS, alone=True)
        about = " · ".join([chart.about, *chart.notes])
        parts += [
            tag("text", chart.title, class_="title", x=LEFT, y=top + 14),
            tag("text", about, class_="about", x=LEFT, y=top + 32),
            tag("g", drawn, transform=f"translate(0 {top + 38})"),
        ]
        top += 38 + height
        row: list[Html] = []
        at = LEFT
        for key, name in _keys(chart):
            row += [
                tag("g", key, transform=f"translate({at} {top})"),
                tag("text", name, class_="tick", x=at + 34, y=top + 11),
            ]
            at += 60 + 7 * len(name)
        parts += row
        top += 38
    return alone(WIDTH, top, hatch(), *parts)


def alone(width: int, height: int, *parts: Html, css: str = "") -> str:
    """Return a stand-alone SVG document with the style sheet of plots, and more rules."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}"><style>{style()}{css}</style>'
        f'<rect class="ground" width="100%" height="100%"/>{join(*parts)}</svg>\n'
    )
