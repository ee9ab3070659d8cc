"""A growing column of numbers whose oldest rows can be freed."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, overload

_BITS: Final = 14
PIECE: Final = 1 << _BITS
"""Rows in one piece; pieces are freed as a whole."""
_REST: Final = PIECE - 1
"""Mask of the index within a piece."""


class Column:
    """One number per row. Rows are appended and keep their row number. A row that was freed reads
    as 0, because another thread may still ask for it.
    """

    __slots__ = ("_none", "_order", "_pieces", "code", "last")

    def __init__(self, code: str) -> None:
        """Create an empty column; `code` is the type code of the numbers for `array`."""
        self.code = code
        self.last = array(code)
        """The newest piece. Callers append to it, and call `grow` when it has PIECE numbers."""
        self._none = array(code, bytes(PIECE * self.last.itemsize))
        """Replaces a piece that was freed."""
        self._pieces = [self.last]
        self._order: tuple[array[int], array[int]] | None = None
        """The arguments of `order`; None while rows are in the order in which they were appended.
        """

    def grow(self) -> None:
        """Start another piece, because the last one is full."""
        # Copying the array trims the spare capacity it was allocated with.
        self._pieces[-1] = self.last[:]
        self.last = array(self.code)
        self._pieces.append(self.last)

    def share(self, other: Column) -> None:
        """Use the newest full piece of another column instead of our own if they are equal. Neither
        column may change a number afterwards.
        """
        if self._pieces[-2] == other._pieces[-2]:
            self._pieces[-2] = other._pieces[-2]

    def __len__(self) -> int:
        return (len(self._pieces) - 1) * PIECE + len(self.last)

    @overload
    def __getitem__(self, row: int) -> int: ...
    @overload
    def __getitem__(self, row: slice) -> array[int]: ...
    def __getitem__(self, row: int | slice) -> int | array[int]:
        if isinstance(row, slice):
            return self._slice(*row.indices(len(self))[:2])
        place = self.place(row + len(self) if row < 0 else row)
        return self._pieces[place >> _BITS][place & _REST]

    def place(self, row: int) -> int:
        """Return the position, from 0, at which the number of a row was appended."""
        if self._order is None:
            return row
        rows, shifts = self._order
        return row + shifts[bisect_right(rows, row) - 1]

    def _slice(self, first: int, end: int) -> array[int]:
        if self._order is None:
            return self._in_place(first, end)
        rows, shifts = self._order
        found = array(self.code)
        for number in range(bisect_right(rows, first) - 1, len(rows)):
            low = max(first, rows[number])
            high = min(end, rows[number + 1] if number + 1 < len(rows) else end)
            if low >= end:
                break
            found += self._in_place(low + shifts[number], high + shifts[number])
        return found

    def _in_place(self, first: int, end: int) -> array[int]:
        """Return a range of numbers in the order in which they were appended."""
        found = array(self.code)
        for number in range(first >> _BITS, (max(first, end) + _REST) >> _BITS):
            start = number << _BITS
            found += self._pieces[number][max(0, first - start) : end - start]
        return found

    def __setitem__(self, row: int, value: int) -> None:
        place = self.place(row)
        self._pieces[place >> _BITS][place & _REST] = value

    def pieces(self) -> list[array[int]]:
        """Return the pieces, with the numbers in the order in which they were appended."""
        return self._pieces

    def order(self, rows: array[int], shifts: array[int]) -> None:
        """Reorder the rows. No row may be appended afterwards.

        Args:
            rows: first row of each range of rows that move together, starting with 0.
            shifts: for each range, the distance from a row to the position of its number.

        """
        self._order = rows, shifts

    def find(self, value: int, first: int, end: int) -> int:
        """Return the first row in [first, end) whose number is at least `value`, or `end`. The
        numbers must be sorted.
        """
        if first >= end:
            return end
        if self._order is not None:
            return bisect_left(self, value, first, end)
        pieces = self._pieces
        number = bisect_left(
            pieces, value, first >> _BITS, (end - 1) >> _BITS, key=lambda piece: piece[-1]
        )
        start = number << _BITS
        low, high = max(0, first - start), min(PIECE, end - start)
        return start + bisect_left(pieces[number], value, low, high)

    def forget(self, row: int) -> None:
        """Free the pieces that end before a row."""
        for number in range((row >> _BITS) - 1, -1, -1):
            if self._pieces[number] is self._none:
                break
            self._pieces[number] = self._none


class Tuples:
    """Several numbers for some of the rows: a few bytes each, where a dict of tuples takes 300. One
    thread adds while another reads.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts = array("I"), array("I"), array("I")
        """Rows in ascending order, the index after the last number of each, and the numbers."""

    @property
    def size(self) -> int:
        """How many numbers there are, for all rows together."""
        return len(self._parts[2])

    def add(self, row: int, numbers: Sequence[int]) -> None:
        """Set the numbers of a row after all others."""
        rows, ends, all_numbers = self._parts
        all_numbers.extend(numbers)
        ends.append(len(all_numbers))
        rows.append(row)  # last: whoever finds the row finds its numbers

    def of(self, row: int) -> tuple[int, ...]:
        """Return the numbers of a row; () if it has none."""
        rows, ends, numbers = self._parts
        place = bisect_left(rows, row)
        if place == len(rows) or rows[place] != row:
            return ()
        return tuple(numbers[ends[place - 1] if place else 0 : ends[place]])

    def forget(self, row: int) -> None:
        """Drop the numbers of all rows before a row."""
        rows, ends, numbers = self._parts
        place = bisect_left(rows, row)
        gone = ends[place - 1] if place else 0
        kept = array("I", (end - gone for end in ends[place:]))
        self._parts = rows[place:], kept, numbers[gone:]
