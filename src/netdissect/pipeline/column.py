"""A number a row, of which the oldest can be forgotten while others are read and added."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
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

    __slots__ = ("_none", "_pieces", "code", "last")

    def __init__(self, code: str) -> None:
        """Take the type of the numbers, as `array` names it."""
        self.code = code
        self.last = array(code)
        """The newest piece; who adds a row begins another where it has PIECE of them."""
        self._none = array(code, bytes(PIECE * self.last.itemsize))
        self._pieces = [self.last]

    def grow(self) -> None:
        """Begin another piece: the last one is full."""
        # A copy has no room to grow, and leaves no holes behind.
        self._pieces[-1] = self.last[:]
        self.last = array(self.code)
        self._pieces.append(self.last)

    def __len__(self) -> int:
        return (len(self._pieces) - 1) * PIECE + len(self.last)

    @overload
    def __getitem__(self, row: int) -> int: ...
    @overload
    def __getitem__(self, row: slice) -> array[int]: ...
    def __getitem__(self, row: int | slice) -> int | array[int]:
        if isinstance(row, slice):
            return self._slice(*row.indices(len(self))[:2])
        if row < 0:
            row += len(self)
        return self._pieces[row >> _BITS][row & _REST]

    def _slice(self, first: int, end: int) -> array[int]:
        found = array(self.code)
        for number in range(first >> _BITS, (max(first, end) + _REST) >> _BITS):
            start = number << _BITS
            found += self._pieces[number][max(0, first - start) : end - start]
        return found

    def __setitem__(self, row: int, value: int) -> None:
        self._pieces[row >> _BITS][row & _REST] = value

    def __iter__(self) -> Iterator[int]:
        for piece in self._pieces:
            yield from piece

    def find(self, value: int, first: int, end: int) -> int:
        """Return the first row from `first` on whose number is not below a value, of numbers that
        grow; `end` where there is none before it.
        """
        if first >= end:
            return end
        pieces = self._pieces
        number = bisect_left(
            pieces, value, first >> _BITS, (end - 1) >> _BITS, key=lambda piece: piece[-1]
        )
        start = number << _BITS
        low, high = max(0, first - start), min(PIECE, end - start)
        return start + bisect_left(pieces[number], value, low, high)

    def ordered(self, number: int, rows: array[int]) -> list[array[int]]:
        """Return the pieces from one on as they are when their rows stand in another order: new
        ones, but for those of which none moves.
        """
        found = []
        for start in range(0, len(rows), PIECE):
            place = (number << _BITS) + start
            here = rows[start : start + PIECE]
            piece = self._pieces[place >> _BITS]
            if here != array(rows.typecode, range(place, place + len(here))):
                low = min(here)
                near = self[low : max(here) + 1]
                piece = array(self.code, [near[row - low] for row in here])
            found.append(piece)
        return found

    def put(self, number: int, pieces: Sequence[array[int]]) -> None:
        """Replace the pieces from one on."""
        self._pieces[number:] = pieces
        self.last = self._pieces[-1]

    def forget(self, row: int) -> None:
        """Give back the pieces that end before a row; they read 0."""
        for number in range((row >> _BITS) - 1, -1, -1):
            if self._pieces[number] is self._none:
                break
            self._pieces[number] = self._none
