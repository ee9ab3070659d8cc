"""The units of one space by number: the outstanding ones, and a memory of settled ones."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import i64
from netdissect.track.outstanding import Outstanding
from netdissect.track.ring import Ring
from netdissect.track.unit import Unit

MAX_OUTSTANDING: Final = 4096
"""Outstanding units of one space; beyond this, the oldest are settled as unknown."""
EXPIRY_NS: Final = 60_000_000_000
"""A unit that is not acknowledged within this time after its last copy, in ns, is settled."""
_ROW: Final = 4
TIME: Final = 1
CONTENT: Final = 2
COPIES: Final = 3
"""Columns of a settled unit's row in `UnitStore.settled`; column 0 is its number."""


class UnitStore:
    """Outstanding units, and time, content and copies of the newest settled ones."""

    __slots__ = ("max_copies", "outstanding", "settled")

    def __init__(self) -> None:
        self.outstanding = Outstanding()
        self.settled = Ring(_ROW, 0)
        self.max_copies: i64 = 0
        """The most copies that any settled unit has."""

    def doze(self) -> None:
        """Take less memory until the next unit."""
        self.outstanding.shrink()
        self.settled.pack()

    def settle(self, number: i64, unit: Unit) -> None:
        """Remember time, content and copies of a settled unit, to judge its late copies."""
        copies = unit.copies
        slot = self.settled.place(number)
        cells = self.settled.cells
        cells[slot + TIME] = unit.last_ns
        cells[slot + CONTENT] = unit.content
        cells[slot + COPIES] = copies
        if copies > self.max_copies:  # noqa: PLR1730 - the builtin would cost more
            self.max_copies = copies

    def settle_newest(self, unit: Unit | None) -> None:
        """Settle a unit if it is the newest outstanding one."""
        if unit is not None and self.outstanding.newest is unit:
            self.outstanding.remove(unit)
            self.settle(unit.number, unit)

    def settled_row(self, seq: i64) -> i64:
        """Return the index of a settled unit's row in `settled.cells`; -1 if it is forgotten."""
        return self.settled.find(seq)

    def arrival_ns(self, seq: i64, unknown_ns: i64) -> i64:
        """Return when a unit came: its first copy while it is outstanding, its last copy once it is
        settled, and `unknown_ns` if it is neither.
        """
        slot = self.settled.find(seq)
        if slot >= 0:
            return self.settled.cells[slot + TIME]
        unit = self.outstanding.find(seq)
        return unknown_ns if unit is None else unit.first_ns

    def last_ns(self, seq: i64) -> int | None:
        """Return when the last copy of a unit came; None if nothing is remembered of it."""
        slot = self.settled.find(seq)
        if slot >= 0:
            return int(self.settled.cells[slot + TIME])
        unit = self.outstanding.find(seq)
        return None if unit is None else int(unit.last_ns)

    def content_of(self, seq: int, unknown: i64) -> i64:
        """Return the hash of a unit's content; `unknown` if nothing is remembered of it."""
        unit = self.outstanding.find(seq)
        if unit is not None:
            return unit.content
        slot = self.settled_row(seq)
        return unknown if slot < 0 else self.settled.cells[slot + CONTENT]

    def adjust_copies(self, seq: int, step: int) -> None:
        """Add `step` to the copies of a unit, outstanding or settled."""
        unit = self.outstanding.find(seq)
        if unit is not None:
            unit.copies += step
            return
        slot = self.settled_row(seq)
        if slot >= 0:
            cells = self.settled.cells
            cells[slot + COPIES] += step
            self.max_copies = max(self.max_copies, cells[slot + COPIES])

    def overdue(self, now_ns: int) -> tuple[list[Unit], bool]:
        """Return (units to settle now, whether there were too many outstanding ones).

        These are the units that have waited too long or, if there are too many, the oldest quarter.
        """
        over = self.outstanding.count > MAX_OUTSTANDING
        horizon = now_ns - EXPIRY_NS
        leaving: list[Unit] = []
        unit = self.outstanding.first
        while unit is not None:
            if len(leaving) == MAX_OUTSTANDING // 4 if over else unit.last_ns > horizon:
                break
            leaving.append(unit)
            unit = unit.after
        return leaving, over
