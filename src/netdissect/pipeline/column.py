"""A number a row, of which the oldest can be forgotten while others are read and added."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final, overload

__all__ = ["PIECE", "Column"]

_BITS: Final = 14
PIECE: Final = 1 << _BITS
"""Rows that are forgotten together."""
_REST: Final = PIECE - 1


class Column:
    """Grows at its end. A row keeps its place; one that was forgotten reads 0, as a thread may
    still ask for it.
    """

    __slots__ = ("_none", "_order", "_pieces", "code", "last")

    def __init__(self, code: str) -> None:
        """Take the type of the numbers, as `array` names it."""
        self.code = code
        self.last = array(code)
        """The newest piece; who adds a row begins another where it has PIECE of them."""
        self._none = array(code, bytes(PIECE * self.last.itemsize))
        self._pieces = [self.last]
        self._order: tuple[array[int], array[int]] | None = None
        """(rows from which on the numbers lie elsewhere, how far from their own place); None = each
        lies in its own.
        """

    def grow(self) -> None:
        """Begin another piece: the last one is full."""
        # A copy has no room to grow, and leaves no holes behind.
        self._pieces[-1] = self.last[:]
        self.last = array(self.code)
        self._pieces.append(self.last)

    def share(self, other: Column) -> None:
        """Have the newest full piece in common with a column where it is the same there: neither
        changes a number.
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
        """Return the how-manieth to come the number of a row was, from 0."""
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
        """Return numbers in the order in which they came."""
        found = array(self.code)
        for number in range(first >> _BITS, (max(first, end) + _REST) >> _BITS):
            start = number << _BITS
            found += self._pieces[number][max(0, first - start) : end - start]
        return found

    def __setitem__(self, row: int, value: int) -> None:
        place = self.place(row)
        self._pieces[place >> _BITS][place & _REST] = value

    def pieces(self) -> list[array[int]]:
        """Return the numbers by pieces, in the order in which they came."""
        return self._pieces

    def order(self, rows: array[int], shifts: array[int]) -> None:
        """Put the numbers in another order; nothing is added after it.

        Args:
            rows: those from which on the numbers lie elsewhere, the first of them 0.
            shifts: how far from its own place lies the number of each of these rows, and those of
                the rows up to the next.

        """
        self._order = rows, shifts

    def find(self, value: int, first: int, end: int) -> int:
        """Return the first row from `first` on whose number is not below a value, of numbers that
        grow; `end` where there is none before it.
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
        """Give back the pieces that end before a row; they read 0."""
        for number in range((row >> _BITS) - 1, -1, -1):
            if self._pieces[number] is self._none:
                break
            self._pieces[number] = self._none
