"""Numbers of connections: 1 is the one whose first frame is the first of all, whenever it was
recognised and whichever process tracks it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence

__all__ = ["ConnectionNumbers", "common_numbers"]


class ConnectionNumbers:
    """First frame of each connection of a pipeline, in the order in which they were recognised."""

    __slots__ = ("_kept", "_known", "_told", "count", "frames")

    def __init__(self, known: array[int] | None = None, *, kept: bool = True) -> None:
        """Take the first frames of all connections in order, where they are known beforehand.

        `kept`: False where no number is given anew, as live, which has no end.
        """
        self.count = 0
        """Connections begun."""
        self.frames = array("q")
        self._kept = kept
        self._known = known
        self._told: dict[int, int] = {}
        """Place among the known -> connections that got its number or one behind it."""

    def add(self, frame: int) -> int:
        """Take the first frame of a connection and return the connection's number: that of its
        frame where all are known, else the next one.
        """
        self.count += 1
        if self._kept:
            self.frames.append(frame)
        known = self._known
        if known is None:
            return self.count
        place = bisect_left(known, frame)
        if place == len(known) or known[place] != frame:
            place = len(known)
        # Several connections may begin at one frame: each takes the next number.
        again = self._told.get(place, 0)
        if place == len(known) or (place + 1 < len(known) and known[place + 1] == frame):
            self._told[place] = again + 1
        return place + again + 1

    @property
    def in_order(self) -> bool:
        """Return whether the next number was right for all of them."""
        frames = self.frames
        return all(frames[place] <= frames[place + 1] for place in range(len(frames) - 1))


def common_numbers(shares: Sequence[ConnectionNumbers]) -> list[array[int]]:
    """Return for each share the numbers that its connections have among those of all shares."""
    numbers = [array("q", bytes(8 * len(share.frames))) for share in shares]
    order = sorted(
        (frame, index, place)
        for index, share in enumerate(shares)
        for place, frame in enumerate(share.frames)
    )
    for number, (_, index, place) in enumerate(order, 1):
        numbers[index][place] = number
    return numbers
