"""A bounded table of machine integers, keyed by number: the memory of settled units."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import ABSENT, i64, mypyc_attr, vec

FEW_ROWS: Final = 16
"""Rows allocated at first; most spaces never need more."""


@mypyc_attr(acyclic=True)
class Ring:
    """A hash table of rows without chaining. A row has a power of two of words, the first of which
    is its number; the owner defines the others. The table doubles until it has `limit` rows; then
    the row of a newer number overwrites an older one.
    """

    __slots__ = ("_bits", "cells", "limit")

    def __init__(self, width: i64, limit: i64) -> None:
        """Create a table with `width` words in a row and at most `limit` rows (powers of two)."""
        self._bits: i64 = 0
        while width > 1:
            self._bits += 1
            width >>= 1
        self.limit: i64 = limit
        self.cells = vec[i64]()

    def find(self, number: i64) -> i64:
        """Return the index in `cells` of the row of a number; -1 if it is forgotten."""
        cells = self.cells
        size: i64 = len(cells)
        if not size:
            return -1
        place = (number << self._bits) & (size - 1)
        return place if cells[place] == number else -1

    def place(self, number: i64) -> i64:
        """Return the index in `cells` of the row to write for a number."""
        cells = self.cells
        size: i64 = len(cells)
        place = (number << self._bits) & (size - 1)
        while not size or (cells[place] != number and cells[place] != ABSENT):
            if size >= self.limit << self._bits:
                break  # the older row is forgotten
            cells = self._grow()
            size = len(cells)
            place = (number << self._bits) & (size - 1)
        cells[place] = number
        return place

    def _grow(self) -> vec[i64]:
        """Double the table, up to its limit; return the new cells."""
        before, bits = self.cells, self._bits
        had: i64 = len(before)
        width: i64 = 1
        width <<= bits
        size = min(max(FEW_ROWS * width, 2 * had), self.limit * width)
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
