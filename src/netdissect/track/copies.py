"""Copies judged by the numbers that their sender used up, for spaces where each copy takes one.

There a copy keeps its old number, yet the counter moves on: the next new number shows how many
copies the sender has made since the last one. Copies beyond that are the network's. A copy that a
newer number has overtaken on its way had its number skipped before. Where several have used no
number, the one that shows it may be sent again itself, its first copy not captured: the next one
judges them with what its own copies leave.

A loss skips numbers as well. So where few of the copies so far were followed by one, those that
came as soon as networks make them are the network's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = ["MAX_COUNTED", "OVERTAKEN", "CountedCopies"]

OVERTAKEN: Final = 8
"""A copy may be overtaken by so many numbers."""
LATEST_NS: Final = 100_000_000
"""The network makes no copy later than this."""
MAX_COUNTED = 1024
"""Copies between two new numbers judged one by one; further ones keep their first verdict."""


_Copy: TypeAlias = tuple[int, bool, Callable[[bool], None], bool]
"""(gap, first verdict, what changes it, whether it came as soon as networks make them)."""


class CountedCopies:
    """Copies seen since the newest number."""

    __slots__ = ("_followed", "_judged", "_put_off", "_spare", "copies")

    def __init__(self) -> None:
        self._spare: deque[tuple[int, int]] = deque(maxlen=OVERTAKEN)
        """(number, how many before it were skipped that no copy has used) of the newest ones."""
        self._put_off = 0
        """How many of the first of those below the newest number has not judged for good."""
        self._judged = self._followed = 0
        """Copies judged, and those of them that a skipped number followed."""
        self.copies: list[_Copy] = []
        """Those that the next number will judge."""

    def add(
        self, gap_ns: int, turn: Callable[[bool], None], *, copied: bool, soon: bool = False
    ) -> bool:
        """Take one copy; return False where too many wait already.

        Args:
            gap_ns: time since the copy before it.
            turn: called with the verdict.
            copied: first verdict, by that time alone: made by the network.
            soon: networks make copies so soon.

        """
        if len(self.copies) >= MAX_COUNTED:
            return False
        self.copies.append((gap_ns, copied, turn, soon and copied))
        return True

    def came(self, seq: int) -> None:
        """Take that a skipped number came late: no copy has used it."""
        for index, (number, count) in enumerate(self._spare):
            if number - count <= seq < number:
                self._spare[index] = (number, count - 1)
                return

    def judge(self, skipped: int, seq: int) -> None:
        """Judge all copies now that the next new number `seq` has come, `skipped` numbers on.

        Those that followed the copy before them the soonest are the likeliest to be the network's.
        """
        earlier = self.copies[: self._put_off]
        copies = self.copies[self._put_off :]
        if earlier:
            self._put_off = 0
            left = skipped - len(copies)
            taken = len(earlier) if left >= len(earlier) else 0
            skipped -= taken
            self._judged += len(earlier)
            self._followed += taken
            self._say(earlier, 0 if taken else len(earlier))
        self.copies = copies
        spare = self._spare
        if len(copies) > 1 and not skipped and not any(count for _, count in spare):
            self._put_off = len(copies)
            return
        self.copies = []
        copies.sort(key=lambda copy: copy[0])
        used = min(skipped, len(copies))
        self._judged += len(copies)
        self._followed += used
        soon = sum(copy[3] for copy in copies) if 2 * self._followed < self._judged else 0
        made_by_network = max(soon, len(copies) - used)
        for index, (number, count) in enumerate(spare):
            taken = min(count, made_by_network - soon) if seq - number <= OVERTAKEN else 0
            made_by_network -= taken
            spare[index] = (number, count - taken)
        if skipped > used:
            spare.append((seq, skipped - used))
        self._say(copies, made_by_network)

    def _say(self, copies: list[_Copy], network: int) -> None:
        """Call the first of these copies, so many, the network's, and the others the sender's."""
        for index, (gap_ns, copied, turn, _) in enumerate(copies):
            turn(index < network and (copied or gap_ns < LATEST_NS))
