"""The outstanding units of one space, by number and in the order in which they were added."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import i64
from netdissect.track.unit import Unit

_FEW: Final = 8
"""Places allocated at first; a power of two."""


class Outstanding:
    """A hash table of units, linked by `Unit.chained` where their places collide, and a list of
    them, linked by `Unit.before` and `Unit.after`. Compiled, a dict takes four times as long,
    because it needs an object for each number.
    """

    __slots__ = ("_table", "count", "first", "newest")

    def __init__(self) -> None:
        self._table: list[Unit | None] = []
        """A power of two of places, or none."""
        self.count: i64 = 0
        """How many units there are."""
        self.first: Unit | None = None
        self.newest: Unit | None = None
        """The units that were added first and last."""

    def __del__(self) -> None:
        # The garbage collector does not look into units.
        self.clear()

    def find(self, number: i64) -> Unit | None:
        """Return the unit with a number; None without one."""
        if not self.count:
            return None
        table = self._table
        size: i64 = len(table)
        unit = table[number & (size - 1)]
        while unit is not None and unit.number != number:
            unit = unit.chained
        return unit

    def add(self, number: i64, unit: Unit) -> None:
        """Add a unit under a number. It replaces another unit with that number."""
        known = self.find(number)
        if known is not None:
            self.remove(known)
        size: i64 = len(self._table)
        if self.count >= size:
            self._resize(max(2 * size, _FEW))
        unit.number = number
        self._enter(unit)
        last = self.newest
        unit.before = last
        if last is None:
            self.first = unit
        else:
            last.after = unit
        self.newest = unit
        self.count += 1

    def pop(self, number: i64) -> Unit | None:
        """Remove and return the unit with a number; None without one."""
        unit = self.find(number)
        if unit is not None:
            self.remove(unit)
        return unit

    def remove(self, unit: Unit) -> None:
        """Remove a unit."""
        table = self._table
        size: i64 = len(table)
        place = unit.number & (size - 1)
        other = table[place]
        if other is unit:
            table[place] = unit.chained
        else:
            while other is not None and other.chained is not unit:
                other = other.chained
            if other is not None:
                other.chained = unit.chained
        before, after = unit.before, unit.after
        if before is None:
            self.first = after
        else:
            before.after = after
        if after is None:
            self.newest = before
        else:
            after.before = before
        unit.chained = unit.before = unit.after = None
        self.count -= 1

    def units(self) -> list[Unit]:
        """Return the units in the order in which they were added."""
        found: list[Unit] = []
        unit = self.first
        while unit is not None:
            found.append(unit)
            unit = unit.after
        return found

    def numbers(self) -> list[int]:
        """Return the numbers of the units in that order."""
        return [int(unit.number) for unit in self.units()]

    def within(self, start: i64, end: i64) -> list[Unit]:
        """Return the units with numbers in [start, end): in order of these numbers if they are
        fewer than the units, else in the order in which the units were added.
        """
        found: list[Unit] = []
        # Look up the numbers or walk the units, whichever are fewer.
        if end - start < self.count:
            for number in range(start, end):
                unit = self.find(number)
                if unit is not None:
                    found.append(unit)
            return found
        unit = self.first
        while unit is not None:
            if start <= unit.number < end:
                found.append(unit)
            unit = unit.after
        return found

    def held(self) -> int:
        """Return how many units there are, and entries of units that they carry."""
        held = self.count
        unit = self.first
        while unit is not None:
            item = unit.carried
            while item is not None:
                held += 1
                item = item.next
            unit = unit.after
        return int(held)

    def clear(self) -> None:
        """Remove all units. What links them are reference cycles."""
        unit = self.first
        while unit is not None:
            after = unit.after
            unit.chained = unit.before = unit.after = None
            unit = after
        self.first = self.newest = None
        self.count = 0
        self._table = []

    def shrink(self) -> None:
        """Drop the places that are not needed."""
        size: i64 = 0
        while size < self.count:
            size = max(2 * size, _FEW)
        if size < len(self._table):
            self._resize(size)

    def _resize(self, size: i64) -> None:
        """Change the number of places."""
        self._table = [None] * int(size)
        unit = self.first
        while unit is not None:
            self._enter(unit)
            unit = unit.after

    def _enter(self, unit: Unit) -> None:
        """Enter a unit in the table."""
        table = self._table
        size: i64 = len(table)
        place = unit.number & (size - 1)
        unit.chained = table[place]
        table[place] = unit
