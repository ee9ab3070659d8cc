"""The data of a plot before it is drawn: series of points over time, each with its frame."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from netdissect.plot.axes import number, ticks


class Sign(NamedTuple):
    """The character that stands for a shape in a terminal."""

    sign: str
    plain: str
    """The same in ASCII."""


SIGNS: Final[dict[str, Sign]] = {
    "dot": Sign("•", "*"),
    "box": Sign("»", ">>"),
    "again": Sign("»", ">>"),
    "copy": Sign("○", "o"),
    "unseen": Sign("○", "o"),
    "lost": Sign("✗", "x"),
    "unknown": Sign("?", "?"),
    "plain": Sign("·", "."),
    "probe": Sign("△", "^"),
    "tick": Sign("|", "|"),
    "flag": Sign("!", "!"),
    "steps": Sign("─", "-"),
    "stair": Sign("─", "-"),
    "line": Sign("─", "-"),
    "bar": Sign("█", "#"),
    "crossed": Sign("▒", "x"),
    "outline": Sign("░", "+"),
}
"""Shape of a series -> its sign. Shapes carry everything that colours do."""
LINES: Final = frozenset({"steps", "stair", "line"})
"""Shapes that connect points."""


class Point(NamedTuple):
    """One point of a series."""

    time_ns: int
    """Nanoseconds since the Unix epoch."""
    value: float | None
    """Height on the y axis; None in a lane below it."""
    frame: int | None
    """The frame that shows it."""
    label: str = ""
    """What it is, such as `reliable 17`."""
    until_ns: int | None = None
    """End of a bar or of a line to the right."""
    base: float = 0.0
    """Where a bar begins on the y axis."""
    mark: str = ""
    """Kind of a point that thinning keeps, such as `lost`; "" = an ordinary point."""

    @property
    def height(self) -> float | None:
        """The value that thinning looks at."""
        return self.value


@dataclass(slots=True)
class Series:
    """Points with one meaning."""

    name: str
    """The meaning of a point, for the legend."""
    shape: str
    """A key of SIGNS."""
    role: str
    """Whose, or what: decides the colour (`client`, `server`, `good`, `again`, `bad`, `dim`)."""
    points: list[Point]
    total: int = 0
    """Points before thinning."""
    lane: int | None = None
    """Number of its lane below the plot, from 0; None = on the y axis."""
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Band:
    """A highlighted span of time."""

    start_ns: int
    end_ns: int
    kind: str
    """`silence`, or `finding`."""
    label: str
    frame: int | None
    direction: int | None = None


@dataclass(slots=True)
class Chart:
    """A plot."""

    kind: str
    connection: int
    title: str
    about: str
    """What its axes show."""
    unit: str
    """Unit of the y axis, such as `ms`; "" = a number."""
    zero_ns: int
    """Time zero: the first frame of the connection."""
    start_ns: int
    end_ns: int
    """End of the time axis."""
    low: float
    high: float
    direction: int | None = None
    whole: bool = False
    """Whether values are whole numbers."""
    series: list[Series] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    flags: list[Point] = field(default_factory=list)
    """Findings, marked above the plot."""
    notes: list[str] = field(default_factory=list)
    """Remarks that are needed to read it correctly."""
    said: str = ""
    """The result in one sentence, for people who do not see the plot."""
    told_ns: int | None = None
    """End of what is known, where lines end; None = the end of the axis."""

    @property
    def lines_end_ns(self) -> int:
        """Time at which its lines end."""
        return self.end_ns if self.told_ns is None else self.told_ns

    @property
    def lanes(self) -> list[Series]:
        """The series in lanes, from the top."""
        found = [one for one in self.series if one.lane is not None]
        return sorted(found, key=lambda one: one.lane or 0)

    def y_ticks(self, most: int) -> list[tuple[float, str]]:
        """Return the round values of the y axis with their labels; about `most` of them, at most.

        Rates of the other direction are below zero, but not negative.
        """
        found = ticks(self.low, self.high, most, whole=self.whole)
        step = found[1] - found[0] if len(found) > 1 else 1.0
        sign = -1 if self.kind == "rate" else 1
        return [(value, number(sign * value if value < 0 else value, step)) for value in found]

    def add_lane(self, name: str, shape: str, role: str, points: list[Point]) -> None:
        """Add a series in a lane of its own, unless it is empty."""
        if points:
            self.series.append(Series(name, shape, role, points, lane=len(self.lanes)))

    @property
    def explained(self) -> list[Series]:
        """What the legend explains: each pair of shape and name once."""
        # The lanes of `gaps` have their names beside them.
        shown = [one for one in self.series if one.points and self.kind != "gaps"]
        found: dict[tuple[str, str], Series] = {}
        for one in shown:
            found.setdefault((one.shape, one.name), one)
        return list(found.values())

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(one.points for one in self.series) and not self.bands
