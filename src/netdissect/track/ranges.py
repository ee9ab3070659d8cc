"""Sets of numbers as sorted disjoint ranges, bounded: their cost grows with ranges, not with the
numbers, so a number that jumps costs no more than one that does not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from netdissect.model.native import mypyc_attr

__all__ = ["MAX_RANGES", "Ranges", "Recent"]

MAX_RANGES = 4096
"""Ranges of numbers seen that are kept; beyond, the two nearest oldest ones become one."""


@mypyc_attr(acyclic=True)
class Ranges:
    """Numbers as sorted disjoint ranges. Bounded."""

    __slots__ = ("_ends", "_starts", "merged")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.merged = 0
        """Gaps that were closed to stay within the bound."""

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number < self._ends[index]

    def add(self, start: int, end: int) -> None:
        """Add the numbers from `start` up to `end`, which is not one of them."""
        starts, ends = self._starts, self._ends
        if ends and start == ends[-1]:
            ends[-1] = end
            return
        if not ends or start > ends[-1]:
            starts.append(start)
            ends.append(end)
            self._bound()
            return
        index = bisect_right(starts, start)
        if index and start <= ends[index - 1]:
            index -= 1
            start = starts[index]
            end = max(end, ends[index])
        stop = index
        while stop < len(starts) and starts[stop] <= end:
            end = max(end, ends[stop])
            stop += 1
        starts[index:stop] = [start]
        ends[index:stop] = [end]
        self._bound()

    def _bound(self) -> None:
        """Make one of the two oldest ranges where there are too many."""
        if len(self._starts) > MAX_RANGES:
            self.merged += 1
            del self._starts[1], self._ends[0]

    def clear(self) -> None:
        """Forget all numbers."""
        self._starts.clear()
        self._ends.clear()


@mypyc_attr(acyclic=True)
class Recent:
    """The newest numbers of a set that changes anywhere: those skipped of which a copy may come."""

    __slots__ = ("_ends", "_starts", "size")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.size = 0
        """How many numbers there are."""

    def __contains__(self, number: int) -> bool:
        ends = self._ends
        if not ends or number >= ends[-1]:
            return False
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number < ends[index]

    def add(self, start: int, end: int) -> None:
        """Add the numbers from `start` up to `end`, which is not one of them."""
        starts, ends = self._starts, self._ends
        low = bisect_left(ends, start)
        high = bisect_right(starts, end)
        if low < high:
            self.size -= sum(ends[low:high]) - sum(starts[low:high])
            start, end = min(start, starts[low]), max(end, ends[high - 1])
        starts[low:high] = [start]
        ends[low:high] = [end]
        self.size += end - start

    def discard(self, number: int) -> None:
        """Take one number out; one that is not in it is passed over."""
        starts, ends = self._starts, self._ends
        index = bisect_right(starts, number) - 1
        if index < 0 or number >= ends[index]:
            return
        end = ends[index]
        if number + 1 < end:
            starts.insert(index + 1, number + 1)
            ends.insert(index + 1, end)
        ends[index] = number
        if starts[index] == number:
            del starts[index], ends[index]
        self.size -= 1

    def keep(self, count: int) -> None:
        """Forget all but the newest `count` numbers."""
        starts, ends = self._starts, self._ends
        leaving = 0
        while self.size > count:
            length = min(ends[leaving] - starts[leaving], self.size - count)
            starts[leaving] += length
            self.size -= length
            leaving += starts[leaving] == ends[leaving]
        del starts[:leaving], ends[:leaving]

    def within(self, start: int, end: int) -> list[int]:
        """Return the numbers from `start` up to `end`, which is not one of them, in order."""
        starts, ends = self._starts, self._ends
        found: list[int] = []
        if not ends or start >= ends[-1] or end <= starts[0]:
            return found
        for index in range(bisect_right(ends, start), len(starts)):
            low = starts[index]
            if low >= end:
                break
            number, stop = max(start, low), min(end, ends[index])
            if stop - number == 1:  # as a rule: an object less
                found.append(number)
            else:
                found.extend(range(number, stop))
        return found

    def touches(self, start: int, end: int) -> bool:
        """Return whether one of the numbers from `start` up to `end`, which is none, is in it."""
        ends = self._ends
        if start >= end or not ends or start >= ends[-1]:
            return False
        return bisect_right(ends, start) < bisect_left(self._starts, end)
