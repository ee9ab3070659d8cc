"""A picture before it is drawn: series of points on one time axis, with every point's frame."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

__all__ = ["SIGNS", "Band", "Chart", "Point", "Series", "Sign"]


class Sign(NamedTuple):
    """How a shape is drawn where there are only characters."""

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
"""Shape of a series -> its sign. Shapes say what colours say, too."""


class Point(NamedTuple):
    """One point of a series."""

    time_ns: int
    """Nanoseconds since the Unix epoch."""
    value: float | None
    """Height on the y axis; None in a lane below it."""
    frame: int | None
    """The frame that it rests on."""
    label: str = ""
    """What it is: `reliable 17`."""
    until_ns: int | None = None
    """End of a bar or of a line to the right."""
    base: float = 0.0
    """Where a bar begins."""
    mark: str = ""
    """The mark that thinning keeps; "" for one of many."""

    @property
    def height(self) -> float | None:
        """Return its place above zero."""
        return self.value


@dataclass(slots=True)
class Series:
    """Points of one meaning."""

    name: str
    """What one of them means, for the legend."""
    shape: str
    """A key of SIGNS."""
    role: str
    points: list[Point]
    total: int = 0
    """Points before thinning."""
    lane: int | None = None
    """Lane below zero, from 0; None = on the y axis."""
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Band:
    """A span that a picture points out."""

    start_ns: int
    end_ns: int
    kind: str
    """`silence`, or `finding`."""
    label: str
    frame: int | None
    direction: int | None = None


@dataclass(slots=True)
class Chart:
    """One picture."""

    kind: str
    connection: int
    title: str
    about: str
    """What its axes are."""
    unit: str
    """Unit of the y axis: `ms`, "" ..."""
    zero_ns: int
    """Time zero: the connection's first frame."""
    start_ns: int
    end_ns: int
    low: float
    high: float
    direction: int | None = None
    whole: bool = False
    """Whether values are whole numbers."""
    series: list[Series] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    flags: list[Point] = field(default_factory=list)
    """Findings, above the picture."""
    notes: list[str] = field(default_factory=list)
    """What must be known to read it."""
    said: str = ""
    """The result in one sentence, for those who do not see it."""

    @property
    def lanes(self) -> list[Series]:
        """Return the series below zero, from the top."""
        found = [one for one in self.series if one.lane is not None]
        return sorted(found, key=lambda one: one.lane or 0)

    @property
    def explained(self) -> list[Series]:
        """Return what a legend explains: each shape under each name once."""
        # The lanes of `gaps` have their names beside them.
        shown = [one for one in self.series if one.points and self.kind != "gaps"]
        found: dict[tuple[str, str], Series] = {}
        for one in shown:
            found.setdefault((one.shape, one.name), one)
        return list(found.values())

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to draw."""
        return not any(one.points for one in self.series) and not self.bands
