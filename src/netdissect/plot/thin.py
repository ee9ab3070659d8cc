"""Thinning: fewer points that look the same. Each column keeps its first, last, lowest and highest
point, each cell one point of every mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

MAX_POINTS = 20_000
"""Points of one kind that a history keeps; at twice as many, they are thinned."""

_COLUMNS = 4096
_FEWEST = 16
_ROWS = 32
"""Rows of cells; two equal marks in one cell count as one."""


class Placed(Protocol):
    """A point that can be thinned."""

    @property
    def time_ns(self) -> int:
        """Its time."""

    @property
    def height(self) -> float | None:
        """Its value; None = it has none."""

    @property
    def mark(self) -> str:
        """Its mark; "" = an ordinary point."""


_P = TypeVar("_P", bound=Placed)


def thinned(points: Sequence[_P], columns: int) -> list[_P]:
    """Return the points that are distinguishable in this many columns, in their order.

    Of ordinary points, each column keeps the first, the last, the lowest and the highest; of marked
    points, each cell keeps one of every mark, and each column the highest.
    """
    if len(points) <= columns:
        return list(points)
    start = min(point.time_ns for point in points)
    span = max(point.time_ns for point in points) - start + 1
    top = max((point.height or 0.0 for point in points), default=0.0) or 1.0
    kept: set[int] = set()
    extremes: dict[tuple[int, str], list[int]] = {}
    cells: set[tuple[int, str, int]] = set()
    for index, point in enumerate(points):
        column = int((point.time_ns - start) / span * columns)
        height = point.height
        if point.mark:
            row = -1 if height is None else int(height * _ROWS / top)
            cell = (column, point.mark, row)
            if cell not in cells:
                cells.add(cell)
                kept.add(index)
        found = extremes.get((column, point.mark))
        if found is None:
            extremes[column, point.mark] = [index, index, index, index]
            continue
        found[1] = index
        if height is not None:
            low, high = points[found[2]].height, points[found[3]].height
            if low is None or height < low:
                found[2] = index
            if high is None or height > high:
                found[3] = index
    for (_, mark), found in extremes.items():
        kept.update(found[3:] if mark else found)
    return [points[index] for index in sorted(kept)]


class PointList(Generic[_P]):
    """A bounded list of points."""

    __slots__ = ("limit", "points", "thinned", "total")

    def __init__(self, limit: int = MAX_POINTS) -> None:
        """Take how many points to keep."""
        self.limit = limit
        self.points: list[_P] = []
        self.total = 0
        """How many points were added."""
        self.thinned = False
        """Whether points were dropped."""

    def add(self, point: _P) -> None:
        """Add a point."""
        self.points.append(point)
        self.total += 1
        if len(self.points) > 2 * self.limit:
            self.thin()

    def thin(self) -> None:
        """Drop points until no more than the limit are left."""
        columns = _COLUMNS
        self.thinned = True
        while len(self.points) > self.limit and columns >= _FEWEST:
            self.points = thinned(self.points, columns)
            columns //= 2
        if len(self.points) > self.limit:
            # Too many marks even so: keep some that are spread evenly over time.
            self.points = self.points[:: -(-len(self.points) // self.limit)]
