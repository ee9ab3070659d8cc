"""Reproducible random choices: the same on every machine and Python version.

This relies on two facts about the standard library, both stable since Python 2: `Random(int)` seeds
the Mersenne Twister with `init_by_array`, and `getrandbits(32)` returns its next word. `randrange`,
`choice`, `shuffle`, `sample` and the seeding by strings have changed between releases, so they are
not used: everything above 32-bit words is in this file.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


class Chance:
    """A stream of random choices that depends on nothing but the words it was seeded with."""

    __slots__ = ("_word",)

    def __init__(self, *words: int | str) -> None:
        digest = hashlib.sha256("/".join(str(word) for word in words).encode()).digest()
        seeded = random.Random(int.from_bytes(digest, "big"))  # noqa: S311 - not for secrets
        self._word = seeded.getrandbits

    def bits(self, count: int) -> int:
        """Return `count` random bits, the first word lowest."""
        value = 0
        for at in range(0, count, 32):
            value |= self._word(32) << at
        return value & ((1 << count) - 1)

    def below(self, bound: int) -> int:
        """Return a number from 0 to `bound` - 1, all equally likely; `bound` is at least 1."""
        size = (bound - 1).bit_length()
        value = self.bits(size)
        while value >= bound:
            value = self.bits(size)
        return value

    def between(self, low: int, high: int) -> int:
        """Return a number from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def one_in(self, count: int) -> bool:
        """Return True once in `count` times on average."""
        return self.below(count) == 0

    def choice(self, options: Sequence[_T]) -> _T:
        """Return one of the options."""
        return options[self.below(len(options))]

    def weighted(self, rows: Sequence[tuple[int, _T]]) -> _T:
        """Return one of the (weight, option) rows, by weight."""
        left = self.below(sum(weight for weight, _option in rows))
        for weight, option in rows:
            if left < weight:
                return option
            left -= weight
        raise AssertionError("below() is smaller than the sum of the weights")

    def octets(self, count: int) -> bytes:
        """Return `count` random bytes."""
        return self.bits(8 * count).to_bytes(count, "little")
