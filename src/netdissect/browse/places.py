"""Where one was: the way back, and marks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Place", "Places"]

MAX_BACK = 50
"""Places that Backspace goes back to."""


class Place(NamedTuple):
    """Where one was."""

    view: int
    focus: int
    connection: int | None
    row: int | None

    def moved(self, to: Callable[[int], int]) -> Place:
        """Return the same place where row n has become `to(n)`."""
        return self if self.row is None else self._replace(row=to(self.row))


class Places:
    """The places that are remembered."""

    def __init__(self) -> None:
        self.back: deque[Place] = deque(maxlen=MAX_BACK)
        self.marks: dict[str, Place] = {}

    def moved(self, to: Callable[[int], int]) -> None:
        """Follow the rows: n has become `to(n)`."""
        self.back = deque((place.moved(to) for place in self.back), MAX_BACK)
        self.marks = {name: place.moved(to) for name, place in self.marks.items()}
