"""Fewer points, none of which is missed: per column the first, the last, the lowest and the highest
stay, and of every mark one a cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

__all__ = ["MAX_POINTS", "Kept", "Placed", "thinned"]

MAX_POINTS = 20_000
"""Points of one kind that a history keeps; with twice as many, they are thinned."""

_COLUMNS = 4096
_FEWEST = 16
_ROWS = 32
"""Rows of cells in which two equal marks count as one."""


class Placed(Protocol):
    """What can be thinned."""

    @property
    def time_ns(self) -> int:
        """Return its place in time."""

    @property
    def height(self) -> float | None:
        """Return its place above zero; None where it has none."""

    @property
    def mark(self) -> str:
        """Return its mark; "" where it is one of many ordinary points."""


_P = TypeVar("_P", bound=Placed)


def thinned(points: Sequence[_P], columns: int) -> list[_P]:
    """Return the points that tell apart from all of them in so many columns, in their order.

    Of ordinary points each column keeps its first, last, lowest and highest; of marked ones no two
    of the same mark stay in one cell, and the highest of each column stays.
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


class Kept(Generic[_P]):
    """A bounded list of points."""

    __slots__ = ("limit", "points", "thinned", "total")

    def __init__(self, limit: int = MAX_POINTS) -> None:
        """Take how many points stay at most."""
        self.limit = limit
        self.points: list[_P] = []
        self.total = 0
        """Points that came."""
        self.thinned = False
        """Whether some of them are not here any more."""

    def add(self, point: _P) -> None:
        """Take a point."""
        self.points.append(point)
        self.total += 1
        if len(self.points) > 2 * self.limit:
            self.thin()

    def thin(self) -> None:
        """Thin until no more than the limit are left."""
        columns = _COLUMNS
        self.thinned = True
        while len(self.points) > self.limit and columns >= _FEWEST:
            self.points = thinned(self.points, columns)
            columns //= 2
        if len(self.points) > self.limit:
            # Marks of all heights: what stays is spread over the whole time, not its beginning.
            self.points = self.points[:: -(-len(self.points) // self.limit)]
