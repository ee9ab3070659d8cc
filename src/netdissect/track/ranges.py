"""Sets of numbers, stored as sorted disjoint ranges. Their cost grows with the ranges and not with
the numbers, so a number that jumps far ahead costs no more than another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from netdissect.model.native import mypyc_attr

MAX_RANGES = 4096
"""Ranges in one set; beyond this, the two oldest ranges are merged."""


@mypyc_attr(acyclic=True)
class Ranges:
    """A bounded set of numbers."""

    __slots__ = ("_ends", "_starts", "merged")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.merged = 0
        """How often two ranges were merged to stay within the bound."""

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number < self._ends[index]

    def add(self, start: int, end: int) -> None:
        """Add the numbers in [start, end)."""
        starts, ends = self._starts, self._ends
        # The usual case: the number after the newest one.
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
        """Merge the two oldest ranges if there are too many."""
        if len(self._starts) > MAX_RANGES:
            self.merged += 1
            # The gap between the first two ranges disappears, so that its numbers count as seen.
            del self._starts[1], self._ends[0]

    def clear(self) -> None:
        """Forget all numbers."""
        self._starts.clear()
        self._ends.clear()


@mypyc_attr(acyclic=True)
class Recent:
    """A set from which any number may be removed: the skipped numbers that may still come."""

    __slots__ = ("_ends", "_starts", "size")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.size = 0
        """How many numbers the set has."""

    def __contains__(self, number: int) -> bool:
        ends = self._ends
        # Nearly every number that is asked for is newer than all gaps.
        if not ends or number >= ends[-1]:
            return False
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number < ends[index]

    def add(self, start: int, end: int) -> None:
        """Add the numbers in [start, end)."""
        starts, ends = self._starts, self._ends
        if not ends or start > ends[-1]:
            starts.append(start)
            ends.append(end)
            self.size += end - start
            return
        low = bisect_left(ends, start)
        high = bisect_right(starts, end)
        if low < high:
            self.size -= sum(ends[low:high]) - sum(starts[low:high])
            start, end = min(start, starts[low]), max(end, ends[high - 1])
        starts[low:high] = [start]
        ends[low:high] = [end]
        self.size += end - start

    @property
    def parts(self) -> int:
        """Return the number of ranges."""
        return len(self._starts)

    def copy(self) -> Recent:
        """Return a copy of the set."""
        made = Recent()
        made._starts, made._ends, made.size = self._starts[:], self._ends[:], self.size
        return made

    def discard(self, number: int) -> None:
        """Remove a number, if the set has it."""
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
        """Return the numbers of the set in [start, end), in order."""
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
        """Return whether the set has any number in [start, end)."""
        ends = self._ends
        if start >= end or not ends or start >= ends[-1]:
            return False
        return bisect_right(ends, start) < bisect_left(self._starts, end)
