"""A bounded table of machine integers, keyed by number: the memory of settled units."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import (
    ABSENT,
    BytesWriter,
    i64,
    mypyc_attr,
    read_i64_le,
    vec,
    write_i64_le,
)

FEW_ROWS: Final = 16
"""Rows allocated at first; most spaces never need more."""
_SIZE_BITS: Final = 4
"""Bits for the number of bytes of a packed word, 0 to 8."""
_SIZE: Final = (1 << _SIZE_BITS) - 1
_FAR: Final = 1 << 61
"""Word that is stored as it is, such as a hash: its difference to another may not fit into 64 bits.
"""
_WHOLE: Final = 9
"""Size in a header that says so."""
_PADDING: Final = bytes(8)
"""Behind packed rows, so that eight bytes can be read at each."""


@mypyc_attr(acyclic=True)
class Ring:
    """A hash table of rows without chaining. A row has a power of two of words, the first of which
    is its number; the owner defines the others. The table doubles until it has `limit` rows; then
    the row of a newer number overwrites an older one.
    """

    __slots__ = ("_bits", "_packed", "_size", "cells", "limit")

    def __init__(self, width: i64, limit: i64) -> None:
        """Create a table with `width` words in a row and at most `limit` rows (powers of two)."""
        self._bits: i64 = 0
        while width > 1:
            self._bits += 1
            width >>= 1
        self.limit: i64 = limit
        self.cells = vec[i64]()
        self._packed = b""
        """The rows of a table that is not used at present (`pack`); `cells` is empty then."""
        self._size: i64 = 0
        """Words in that table."""

    def find(self, number: i64) -> i64:
        """Return the index in `cells` of the row of a number; -1 if it is forgotten."""
        cells = self.cells
        size: i64 = len(cells)
        if not size:
            if not self._packed:
                return -1
            cells = self._unpack()
            size = len(cells)
        place = (number << self._bits) & (size - 1)
        if cells[place] != number:
            return -1
        return place

    def place(self, number: i64) -> i64:
        """Return the index in `cells` of the row to write for a number."""
        cells = self._unpack() if self._packed else self.cells
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

    def pack(self) -> None:
        """Take a third of the memory or less until the table is used again. A row of at most eight
        words becomes a header with the size of each word, and the differences from the words of the
        row before, from 1; 0 is ABSENT. `_FAR` words are whole.
        """
        cells, out = self.cells, BytesWriter()
        size: i64 = len(cells)
        width: i64 = 1
        width <<= self._bits
        before = vec[i64]([0] * int(width))
        codes = vec[i64]([0] * int(width))
        written: i64 = 0
        start: i64 = 0
        while start < size:
            if cells[start] != ABSENT:
                header: i64 = 0
                for at in range(width):
                    code: i64 = 0
                    word = cells[start + at]
                    if word >= _FAR or word < ABSENT:
                        codes[at] = word
                        whole: i64 = _WHOLE  # compiled, a constant is shifted as 32 bits
                        header |= whole << (_SIZE_BITS * at)
                        continue
                    if word != ABSENT:
                        step = word - before[at]
                        before[at] = word
                        # The sign is the lowest bit, so that small steps of either sign need few
                        # bytes.
                        code = (step << 1) + 1 if step >= 0 else -step << 1
                    codes[at] = code
                    count: i64 = 0
                    while code:
                        count += 1
                        code >>= 8
                    header |= count << (_SIZE_BITS * at)
                write_i64_le(out, header)
                written += width * _SIZE_BITS >> 3
                out.truncate(written)
                for at in range(width):
                    write_i64_le(out, codes[at])
                    octets = header & _SIZE
                    if octets == _WHOLE:
                        octets = 8
                    written += octets
                    header >>= _SIZE_BITS
                    out.truncate(written)
            start += width
        if written:
            self._packed, self._size, self.cells = out.getvalue() + _PADDING, size, vec[i64]()

    def _unpack(self) -> vec[i64]:
        """Restore the table; return its cells."""
        packed, bits = self._packed, self._bits
        cells = self.cells = vec[i64]([ABSENT] * int(self._size))
        width: i64 = 1
        width <<= bits
        before = vec[i64]([0] * int(width))
        end: i64 = len(packed) - len(_PADDING)
        place: i64 = 0
        offset: i64 = 0
        while offset < end:
            header = read_i64_le(packed, offset)
            offset += width * _SIZE_BITS >> 3
            for at in range(width):
                count = header & _SIZE
                header >>= _SIZE_BITS
                word: i64 = ABSENT
                if count == _WHOLE:
                    word = read_i64_le(packed, offset)
                    offset += 8
                elif count:
                    code = read_i64_le(packed, offset)
                    if count < 8:  # noqa: PLR2004 - bytes of a word
                        # No mask of `1 << bits`: compiled, that is a shift of 32 bits.
                        code -= code >> (count << 3) << (count << 3)
                    offset += count
                    before[at] += code >> 1 if code & 1 else -(code >> 1)
                    word = before[at]
                if not at:
                    # Column 0 is the number, which is never ABSENT in a packed row.
                    place = (word << bits) & (self._size - 1)
                cells[place + at] = word
        self._packed = b""
        return cells
