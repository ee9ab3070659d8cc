"""The newest gaps in the numbers of one space, as the timeline has them."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Any, Final

from netdissect.model.reports import ConnectionEvent, UnitRecord

MAX_GAPS = 256
"""The newest gaps of a space in which a number that comes late is looked up."""
_RECENT: Final = 64
"""A gap that turns out to be forged is looked up among this many of the newest records."""


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

    def retract_after(self, last: int, pending: deque[UnitRecord | ConnectionEvent]) -> None:
        """Take back the gaps after a number: as if it had come, and out of the waiting records."""
        for gap in self.take_after(last):
            gap.came = gap.data["last_seq"] - gap.data["first_seq"] + 1
            # From the newest on: a gap is found to be forged soon after it was recorded.
            for index in range(1, min(len(pending), _RECENT) + 1):
                if pending[-index] is gap:
                    del pending[-index]
                    break


def described(space: str, low: int, high: int, stride: int) -> tuple[str, dict[str, Any]]:
    """Return text and data of the gap of the numbers from `low` to `high`, `stride` apart."""
    text = f"{space} {low}" if low == high else f"{space} {low} to {high}"
    data: dict[str, Any] = {"space": space, "first_seq": low, "last_seq": high}
    if stride > 1:
        data["step"] = stride
    return text + " not seen", data


def _first_seq(gap: ConnectionEvent) -> int:
    """Return the first number of a gap."""
    return int(gap.data["first_seq"])
