"""Disjoint sets, to group what belongs together pair by pair."""

from __future__ import annotations


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
