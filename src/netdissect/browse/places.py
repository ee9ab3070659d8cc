"""Places the user can return to: the way back, and marks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

MAX_BACK = 50
"""Places that Backspace goes back to."""


class Place(NamedTuple):
    """What the screen showed, and the row under the cursor of the packets."""

    view: int
    focus: int
    connection: int | None
    row: int | None

    def moved(self, new_row: Callable[[int], int]) -> Place:
        """Return the same place after row n has become `new_row(n)`."""
        return self if self.row is None else self._replace(row=new_row(self.row))


class Places:
    """The places that are remembered."""

    def __init__(self) -> None:
        self.back: deque[Place] = deque(maxlen=MAX_BACK)
        """The way back, the newest place at its end."""
        self.marks: dict[str, Place] = {}

    def move(self, new_row: Callable[[int], int]) -> None:
        """Adapt all places after row n has become `new_row(n)`."""
        self.back = deque((place.moved(new_row) for place in self.back), MAX_BACK)
        self.marks = {name: place.moved(new_row) for name, place in self.marks.items()}
