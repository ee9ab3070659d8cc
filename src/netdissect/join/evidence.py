"""What the trackers add to the fates of frames: what resends were for, and that something arrived
although the other capture does not have it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from netdissect.join.table import (
    AMBIGUOUS,
    ANSWERED,
    APPEARED,
    ARRIVED,
    COPY,
    DELIVERED,
    LOST,
    SENT_AGAIN,
    FateTable,
    TableRow,
)
from netdissect.model.joined import Fate, ResendReport
from netdissect.model.reports import ConnectionEvent, UnitRecord

__all__ = ["Evidence"]

MISSES: Final = 3
"""So many datagrams that were there unseen show that a capture misses some."""
_RARE: Final = 1e-3
"""Chance of seeing no answer to a missed datagram at which a capture is held to miss none."""

_Key = tuple[int, int]
"""(connection of the sender's capture, direction)."""


class Evidence:
    """Reads the timeline of one capture and what became of its frames.

    Args:
        table: fates of the frames of this capture.
        window: (from, to), common time: only copies of then are counted.

    """

    def __init__(self, table: FateTable, window: tuple[int, int]) -> None:
        self._table = table
        self._window = window
        self.resends: dict[_Key, ResendReport] = defaultdict(ResendReport)
        """What the resends of each direction were for, as far as this capture is next to its
        sender; and copies by the network, where it is next to its receiver.
        """
        self.unseen = 0
        """Frames sent here that have arrived although the other capture lacks them; flagged."""
        self.answered = 0
        """Frames sent here of which acknowledgement and arrival were both seen."""

    def renumber(self, numbers: Sequence[int]) -> None:
        """Give connection n the number `numbers[n - 1]`."""
        self.resends = defaultdict(
            ResendReport, {(numbers[n - 1], way): told for (n, way), told in self.resends.items()}
        )

    def read(self, timeline: Iterable[UnitRecord | ConnectionEvent]) -> None:
        """Take a whole timeline."""
        for item in timeline:
            if isinstance(item, UnitRecord):
                self._unit(item)

    def _unit(self, unit: UnitRecord) -> None:
        table = self._table
        copies = unit.copies
        # All copies of a unit are of one direction: the first tells whether it was sent or
        # received. Most units come once: no list is made of those.
        first = table.kind(copies[0].frame)
        if first in _ARRIVALS:
            if first == COPY or len(copies) > 1:
                self._received(unit)
            return
        if len(copies) > 1:
            self._sent_again(unit, [table.row(copy.frame) for copy in copies])
        if unit.outcome != "acked":
            return
        if first == DELIVERED:
            self.answered += table.flag(copies[0].frame, ANSWERED)
            return
        fates = [table.kind(copy.frame) for copy in copies]
        if DELIVERED in fates:
            self.answered += table.flag(copies[fates.index(DELIVERED)].frame, ANSWERED)
        elif _MISSING.issuperset(fates):
            # Of two copies sent before the acknowledgement, either may be the one that arrived.
            before = [
                copy.frame for copy in copies if copy.time_ns <= (unit.acked_time_ns or 0)
            ]
            row = table.row(before[0]) if len(before) == 1 else None
            if row is not None and row[0] == Fate.LOST and not row[1] & (AMBIGUOUS | SENT_AGAIN):
                self.unseen += table.flag(before[0], ANSWERED)

    def _received(self, unit: UnitRecord) -> None:
        copied = 0
        for copy in unit.copies:
            row = self._table.row(copy.frame)
            copied += row[0] == COPY and self._counts(row)
        if copied:
            self._add(unit, "copied", copied)

    def _sent_again(
        self, unit: UnitRecord, rows: list[tuple[int, int, int, int, int, int]]
    ) -> None:
        arrived, open_ = False, False
        for index, (copy, row) in enumerate(zip(unit.copies, rows, strict=True)):
            fate, flags = row[0], row[1]
            # Nobody sent again what the network copied.
            if index and copy.kind != "duplicate":
                says = "spurious" if arrived else "unknown" if open_ else "needed"
                if self._counts(row):
                    self._add(unit, says, 1)
                if says == "needed":
                    for earlier in unit.copies[:index]:
                        self._table.flag(earlier.frame, SENT_AGAIN)
            if flags & AMBIGUOUS or fate not in (Fate.DELIVERED, Fate.LOST):
                open_ = True
            arrived = arrived or (fate == Fate.DELIVERED and not flags & AMBIGUOUS)

    def _counts(self, row: TableRow) -> bool:
        """Return whether a frame lies in the window."""
        return self._window[0] <= row[5] <= self._window[1]

    def _add(self, unit: UnitRecord, name: str, count: int) -> None:
        report = self.resends[unit.connection, unit.direction]
        setattr(report, name, getattr(report, name) + count)
        counts = dict(zip(_KINDS, report.spaces.get(unit.space, (0, 0, 0, 0)), strict=True))
        counts[name] += count
        report.spaces[unit.space] = (
            counts["needed"],
            counts["spurious"],
            counts["copied"],
            counts["unknown"],
        )

    def misses(self, appeared: int, sent: int) -> bool:
        """Return whether the other capture misses some of what was there.

        Args:
            appeared: arrivals here that it has nobody sending.
            sent: arrivals here that it has.

        """
        if self.unseen >= MISSES:
            return True
        if appeared < MISSES:
            return False
        # A capture that misses this share would miss as much of what was answered: none is
        # unlikely.
        share = appeared / (appeared + sent)
        return (1 - share) ** self.answered > _RARE or self.unseen > 0


_KINDS: Final = ("needed", "spurious", "copied", "unknown")
_MISSING: Final = frozenset({LOST, int(Fate.OUTSIDE)})
_ARRIVALS: Final = frozenset({ARRIVED, COPY, APPEARED})
