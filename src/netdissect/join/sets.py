"""Which conversations belong together, pair by pair: votes, and disjoint sets."""

from __future__ import annotations

from collections import Counter


class DisjointSets:
    """Disjoint sets. Source: Tarjan, "Efficiency of a good but not linear set union algorithm"."""

    def __init__(self) -> None:
        self._parents: dict[tuple[int, int], tuple[int, int]] = {}

    def root(self, item: tuple[int, int]) -> tuple[int, int]:
        """Return the representative of an item's set."""
        while (parent := self._parents.get(item, item)) != item:
            # Path halving: each visited item skips one ancestor from then on.
            self._parents[item] = self._parents.get(parent, parent)
            item = parent
        return item

    def unite(self, one: tuple[int, int], other: tuple[int, int]) -> None:
        """Unite the sets of two items."""
        self._parents[self.root(one)] = self.root(other)


def not_outvoted(votes: Counter[tuple[int, int]], share: float) -> list[tuple[int, int]]:
    """Return the pairs of conversations with at least `share` of the votes of the best pair of
    either side: a relay's port may serve many clients, and a client may change its own.
    """
    most: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
    for both, count in votes.items():
        for capture in (0, 1):
            most[capture][both[capture]] = max(most[capture][both[capture]], count)
    return [
        both
        for both, count in votes.items()
        if count >= share * min(most[0][both[0]], most[1][both[1]])
    ]
