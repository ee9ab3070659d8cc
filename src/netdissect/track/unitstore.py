"""Units of one space by number: those that wait for an acknowledgement, and a memory of others."""

from __future__ import annotations

from typing import Any, Final

from netdissect.model.native import i64
from netdissect.track.ring import Ring
from netdissect.track.unit import Unit

__all__ = ["CONTENT", "COPIES", "EXPIRY_NS", "MAX_OUTSTANDING", "TIME", "UnitStore"]

MAX_OUTSTANDING: Final = 4096
"""Units of one space that wait for an acknowledgement; beyond, the oldest is settled as unknown."""
EXPIRY_NS: Final = 60_000_000_000
"""Without an acknowledgement for so long after its last copy a unit is settled as it stands."""
_ROW: Final = 4
TIME: Final = 1
CONTENT: Final = 2
COPIES: Final = 3
"""Places in the row of a settled unit, behind its number."""


class UnitStore:
    """Open units, and time, content and copies of the newest that are settled."""

    __slots__ = ("max_copies", "outstanding", "settled")

    def __init__(self) -> None:
        self.outstanding: dict[int, Unit] = {}
        self.settled = Ring(_ROW, 0)
        self.max_copies: i64 = 0
        """Most copies of a settled unit."""

    def pop_outstanding(self, seq: int) -> Unit | None:
        """Take a unit out of those that wait, None where it is not one of them."""
        outstanding = self.outstanding
        if not outstanding:
            return None
        key: Any = seq  # compiled, one object is made of it
        unit = outstanding.get(key)
        if unit is not None:
            del outstanding[key]
        return unit

    def settle(self, number: i64, unit: Unit) -> None:
        """Keep time and content of a settled unit, to judge its late copies."""
        copies = unit.copies
        slot = self.settled.place(number)
        cells = self.settled.cells
        cells[slot + TIME] = unit.last_ns
        cells[slot + CONTENT] = unit.content
        cells[slot + COPIES] = copies
        if copies > self.max_copies:  # noqa: PLR1730 - the builtin would cost more
            self.max_copies = copies

    def settle_newest(self, unit: Unit | None) -> None:
        """Settle a unit if it is the newest that waits."""
        seq = next(reversed(self.outstanding), None)
        if seq is not None and unit is not None and self.outstanding[seq] is unit:
            del self.outstanding[seq]
            self.settle(seq, unit)

    def settled_row(self, seq: i64) -> i64:
        """Return where a settled unit stands in `settled.cells`, -1 where it is forgotten."""
        return self.settled.find(seq)

    def arrival_ns(self, seq: i64, unknown_ns: i64) -> i64:
        """Return when a unit came: the first time while it waits, the last time once it is settled;
        `unknown_ns` of one that is neither.
        """
        slot = self.settled.find(seq)
        if slot >= 0:
            return self.settled.cells[slot + TIME]
        unit = self.outstanding.get(seq) if self.outstanding else None
        return unknown_ns if unit is None else unit.first_ns

    def last_ns(self, seq: i64) -> int | None:
        """Return when a unit came the last time; None of one neither open nor settled."""
        slot = self.settled.find(seq)
        if slot >= 0:
            return int(self.settled.cells[slot + TIME])
        unit = self.outstanding.get(seq)
        return None if unit is None else int(unit.last_ns)

    def content_of(self, seq: int, unknown: i64) -> i64:
        """Return the hash of what a unit holds; `unknown` of one neither open nor settled."""
        unit = self.outstanding.get(seq)
        if unit is not None:
            return unit.content
        slot = self.settled_row(seq)
        return unknown if slot < 0 else self.settled.cells[slot + CONTENT]

    def adjust_copies(self, seq: int, step: int) -> None:
        """Count transmissions more or less of a unit, open or settled."""
        unit = self.outstanding.get(seq)
        if unit is not None:
            unit.copies += step
            return
        slot = self.settled_row(seq)
        if slot >= 0:
            cells = self.settled.cells
            cells[slot + COPIES] += step
            self.max_copies = max(self.max_copies, cells[slot + COPIES])

    def overdue(self, now_ns: int) -> tuple[list[int], bool]:
        """Return the units that have waited too long, or a quarter of all where there are too many,
        and whether there are.

        Many at once: to look for the oldest entry of a dict costs as much as were deleted there.
        """
        outstanding = self.outstanding
        over = len(outstanding) > MAX_OUTSTANDING
        horizon = now_ns - EXPIRY_NS
        leaving: list[int] = []
        for seq, unit in outstanding.items():
            if len(leaving) == MAX_OUTSTANDING // 4 if over else unit.last_ns > horizon:
                break
            leaving.append(seq)
        return leaving, over
