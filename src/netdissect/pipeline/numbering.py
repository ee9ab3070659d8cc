"""Numbers of connections. They are numbered from 1 in the order of their first frames, whenever
they were recognised and whichever process tracks them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence


class ConnectionNumbers:
    """Assigns the numbers of a pipeline's connections as they are recognised."""

    __slots__ = ("_kept", "_known", "_used", "count", "frames")

    def __init__(self, known: array[int] | None = None, *, kept: bool = True) -> None:
        """Create one.

        Args:
            known: sorted first frames of all connections, if an earlier pass has found them.
            kept: whether to remember the first frames for a later renumbering. A live capture,
                which may run for ever, does not.

        """
        self.count = 0
        """Connections so far."""
        self.frames = array("q")
        """Their first frames, in the order in which they were recognised."""
        self._kept = kept
        self._known = known
        self._used: dict[int, int] = {}
        """Index into `_known` -> connections numbered from that index on."""

    def add(self, frame: int) -> int:
        """Return the number of a new connection from its first frame: its rank among the known
        first frames, or else the next number.
        """
        self.count += 1
        if self._kept:
            self.frames.append(frame)
        known = self._known
        if known is None:
            return self.count
        place = bisect_left(known, frame)
        # The first pass did not begin a connection here; it gets a number behind all known ones.
        if place == len(known) or known[place] != frame:
            place = len(known)
        # Several connections may begin at one frame: each takes the next number.
        used = self._used.get(place, 0)
        if place == len(known) or (place + 1 < len(known) and known[place + 1] == frame):
            self._used[place] = used + 1
        return place + used + 1

    @property
    def in_order(self) -> bool:
        """Return whether connections were recognised in the order of their first frames."""
        frames = self.frames
        return all(frames[place] <= frames[place + 1] for place in range(len(frames) - 1))


def common_numbers(shares: Sequence[ConnectionNumbers]) -> list[array[int]]:
    """Return for each share the numbers of its connections among those of all shares."""
    numbers = [array("q", bytes(8 * len(share.frames))) for share in shares]
    order = sorted(
        (frame, index, place)
        for index, share in enumerate(shares)
        for place, frame in enumerate(share.frames)
    )
    for number, (_, index, place) in enumerate(order, 1):
        numbers[index][place] = number
    return numbers
