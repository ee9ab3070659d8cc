"""Hashes of the newest datagrams, to tell copies from other datagrams with the same number."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import i64, mypyc_attr, vec

MAX_MARKS = 4096
"""Datagrams per direction whose hash is remembered."""
_FEW: Final = 16
"""Entries allocated at first; the table grows fourfold when two numbers meet."""
_NUMBER: Final = 0x7FFF_FFFF
_CONTENT: Final = 0xFFFF_FFFF


@mypyc_attr(acyclic=True)
class DatagramHashes:
    """Hashes of the datagrams of one direction, by number. One word holds 31 bits of the number and
    32 bits of the hash, because this table takes most of the memory of a long connection.
    """

    __slots__ = ("_words",)

    def __init__(self) -> None:
        self._words = vec[i64]()
        """A power of two of entries; 0 = free."""

    def keep(self, number: i64, content: i64) -> None:
        """Remember the hash of a datagram."""
        words = self._words
        size: i64 = len(words)
        place = number & (size - 1)
        # A table that is too small grows until both numbers have a place, or it has reached its
        # bound.
        while not size or (words[place] and words[place] >> 32 != number & _NUMBER):
            if size >= MAX_MARKS:
                break  # the older entry is forgotten
            words = self._grow()
            size = len(words)
            place = number & (size - 1)
        words[place] = _word(number, content)

    def knows(self, number: i64) -> bool:
        """Return whether the hash of a datagram with this number is remembered."""
        words = self._words
        size: i64 = len(words)
        if not size:
            return False
        word = words[number & (size - 1)]
        return word != 0 and word >> 32 == number & _NUMBER

    def has(self, number: i64, content: i64) -> bool:
        """Return whether the datagram remembered under this number has this hash."""
        words = self._words
        size: i64 = len(words)
        return size > 0 and words[number & (size - 1)] == _word(number, content)

    def _grow(self) -> vec[i64]:
        """Make the table four times as large: the fewer the steps, the less is copied."""
        before = self._words
        size: i64 = max(_FEW, 4 * len(before))
        words = self._words = vec[i64]([0] * int(size))
        for place in range(len(before)):
            word = before[place]
            # 31 bits of the number are more than enough to find its place again.
            words[(word >> 32) & (size - 1)] = word
        return words


def _word(number: i64, content: i64) -> i64:
    """Return the entry of a datagram, which is never 0."""
    # The lowest bit of the hash is given up so that an entry in use is never 0.
    return (number & _NUMBER) << 32 | (content & _CONTENT) | 1
