"""Rows of machine integers by number, the newest of them: what is remembered of settled units."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import ABSENT, i64, mypyc_attr, vec

__all__ = ["Ring"]

FEW_ROWS: Final = 16
"""Rows that there is room for at first: most need no more."""


@mypyc_attr(acyclic=True)
class Ring:
    """Rows of a power of two of words, the first of which is the row's number; each other word is
    the owner's. Where there is no more room, the row of a newer number takes an older one's place.
    """

    __slots__ = ("_bits", "cells", "most")

    def __init__(self, width: i64, most: i64) -> None:
        """Take the words of a row, and a power of two of rows to be remembered."""
        self._bits: i64 = 0
        while width > 1:
            self._bits += 1
            width >>= 1
        self.most: i64 = most
        self.cells = vec[i64]()

    def find(self, number: i64) -> i64:
        """Return the place of a row in `cells`, -1 where it is forgotten."""
        cells = self.cells
        size: i64 = len(cells)
        if not size:
            return -1
        place = (number << self._bits) & (size - 1)
        return place if cells[place] == number else -1

    def place(self, number: i64) -> i64:
        """Return the place of a row that is written anew."""
        cells = self.cells
        size: i64 = len(cells)
        place = (number << self._bits) & (size - 1)
        while not size or (cells[place] != number and cells[place] != ABSENT):
            if size >= self.most << self._bits:
                break  # what is older is forgotten
            cells = self._grow()
            size = len(cells)
            place = (number << self._bits) & (size - 1)
        cells[place] = number
        return place

    def _grow(self) -> vec[i64]:
        """Make the ring twice as large, up to what is remembered; return its cells."""
        before, bits = self.cells, self._bits
        had: i64 = len(before)
        width: i64 = 1
        width <<= bits
        size = min(max(FEW_ROWS * width, 2 * had), self.most * width)
        cells = self.cells = vec[i64]([ABSENT] * int(size))
        start: i64 = 0
        while start < had:
            number = before[start]
            if number != ABSENT:
                place = (number << bits) & (size - 1)
                for at in range(width):
                    cells[place + at] = before[start + at]
            start += width
        return cells
