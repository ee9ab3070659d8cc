"""The newest gaps in the numbers of one space, as the timeline has them."""

from __future__ import annotations

from bisect import bisect_right

from netdissect.model.reports import ConnectionEvent

MAX_GAPS = 256
"""The newest gaps of a space in which a number that comes late is looked up."""


class Gaps:
    """The gaps of one space, in the order of their numbers."""

    __slots__ = ("_gaps",)

    def __init__(self) -> None:
        self._gaps: list[ConnectionEvent] = []

    def add(self, gap: ConnectionEvent) -> bool:
        """Remember a gap; return False if that makes the oldest one forgotten."""
        gaps = self._gaps
        full = len(gaps) == MAX_GAPS
        if full:
            del gaps[0]
        gaps.append(gap)
        return not full

    def find(self, seq: int) -> ConnectionEvent | None:
        """Return the gap that contains a number; None if none is remembered."""
        gaps = self._gaps
        index = bisect_right(gaps, seq, key=_first_seq) - 1
        return gaps[index] if index >= 0 and seq <= gaps[index].data["last_seq"] else None

    def take_after(self, last: int) -> list[ConnectionEvent]:
        """Remove and return the gaps after a number."""
        gaps = self._gaps
        index = bisect_right(gaps, last, key=_first_seq)
        found = gaps[index:]
        del gaps[index:]
        return found


def _first_seq(gap: ConnectionEvent) -> int:
    """Return the first number of a gap."""
    return int(gap.data["first_seq"])
