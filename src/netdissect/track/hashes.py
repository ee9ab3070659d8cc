"""What tells datagrams from others that have their numbers: a word for each, of the newest ones."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import i64, mypyc_attr, vec

__all__ = ["MAX_MARKS", "DatagramHashes"]

MAX_MARKS = 4096
"""Datagrams whose content is remembered, to tell a copy from another one of the same number."""
_FEW: Final = 64
"""There is room for so many at first, and then for twice as many whenever that is not enough."""
_NUMBER: Final = 0x7FFF_FFFF
_CONTENT: Final = 0xFFFF_FFFF


@mypyc_attr(acyclic=True)
class DatagramHashes:
    """Hashes of the datagrams of one direction by their numbers. A word holds the low bits of both:
    two would take twice the memory, which is most of what a connection of many datagrams takes.
    """

    __slots__ = ("_words",)

    def __init__(self) -> None:
        self._words = vec[i64]()
        """A power of two of them; 0 = none is there yet."""

    def keep(self, number: i64, content: i64) -> None:
        """Remember the hash of a datagram."""
        words = self._words
        size: i64 = len(words)
        place = number & (size - 1)
        while not size or (words[place] and words[place] >> 32 != number & _NUMBER):
            if size >= MAX_MARKS:
                break  # what is older is forgotten
            words = self._grow()
            size = len(words)
            place = number & (size - 1)
        words[place] = _word(number, content)

    def knows(self, number: i64) -> bool:
        """Return whether a datagram with this number is remembered."""
        words = self._words
        size: i64 = len(words)
        if not size:
            return False
        word = words[number & (size - 1)]
        return word != 0 and word >> 32 == number & _NUMBER

    def has(self, number: i64, content: i64) -> bool:
        """Return whether the datagram that is remembered with this number has this hash."""
        words = self._words
        size: i64 = len(words)
        return size > 0 and words[number & (size - 1)] == _word(number, content)

    def _grow(self) -> vec[i64]:
        """Make room for twice as many."""
        before = self._words
        size: i64 = max(_FEW, 2 * len(before))
        words = self._words = vec[i64]([0] * int(size))
        for place in range(len(before)):
            word = before[place]
            words[(word >> 32) & (size - 1)] = word
        return words


def _word(number: i64, content: i64) -> i64:
    """Return what is kept of a datagram: never 0."""
    return (number & _NUMBER) << 32 | (content & _CONTENT) | 1
