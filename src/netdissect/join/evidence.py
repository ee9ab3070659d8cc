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
    flags_of,
    kind_of,
)
from netdissect.model.joined import Fate, ResendReport
from netdissect.model.native import i64
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
        frame: i64 = copies[0].frame
        first = table.kind(frame)
        if first in (ARRIVED, COPY, APPEARED):
            if first == COPY or len(copies) > 1:
                self._received(unit)
            return
        if len(copies) > 1:
            self._sent_again(unit)
        if unit.outcome != "acked":
            return
        if first == DELIVERED:
            self.answered += table.flag(frame, ANSWERED)
            return
        fates = [table.kind(copy.frame) for copy in copies]
        if DELIVERED in fates:
            self.answered += table.flag(copies[fates.index(DELIVERED)].frame, ANSWERED)
        elif _MISSING.issuperset(fates):
            # Of two copies sent before the acknowledgement, either may be the one that arrived.
            before = [
                copy.frame for copy in copies if copy.time_ns <= (unit.acked_time_ns or 0)
            ]
            word = table.word(before[0]) if len(before) == 1 else 0
            if kind_of(word) == LOST and not flags_of(word) & (AMBIGUOUS | SENT_AGAIN):
                self.unseen += table.flag(before[0], ANSWERED)

    def _received(self, unit: UnitRecord) -> None:
        table = self._table
        copied = 0
        for copy in unit.copies:
            frame: i64 = copy.frame
            copied += table.kind(frame) == COPY and self._counts(frame)
        if copied:
            self._add(unit, _COPIED, copied)

    def _sent_again(self, unit: UnitRecord) -> None:
        table = self._table
        arrived, open_ = False, False
        for index, copy in enumerate(unit.copies):
            frame: i64 = copy.frame
            word = table.word(frame)
            # Nobody sent again what the network copied.
            if index and copy.kind != "duplicate":
                says = _SPURIOUS if arrived else _UNKNOWN if open_ else _NEEDED
                if self._counts(frame):
                    self._add(unit, says, 1)
                if says == _NEEDED:
                    for earlier in unit.copies[:index]:
                        table.flag(earlier.frame, SENT_AGAIN)
            fate, ambiguous = kind_of(word), flags_of(word) & AMBIGUOUS
            if ambiguous or fate not in (DELIVERED, LOST):
                open_ = True
            arrived = arrived or (fate == DELIVERED and not ambiguous)

    def _counts(self, frame: i64) -> bool:
        """Return whether a frame lies in the window."""
        start: i64 = self._window[0]
        end: i64 = self._window[1]
        return start <= self._table.common_ns(frame) <= end

    def _add(self, unit: UnitRecord, says: int, count: int) -> None:
        """Count copies of a unit under what is said of them, by its place in the report."""
        report = self.resends[unit.connection, unit.direction]
        counts = list(report.spaces.get(unit.space, (0, 0, 0, 0)))
        counts[says] += count
        report.spaces[unit.space] = (counts[0], counts[1], counts[2], counts[3])

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


_NEEDED: Final = 0
_SPURIOUS: Final = 1
_COPIED: Final = 2
_UNKNOWN: Final = 3
"""Places of what is said of copies in `ResendReport.spaces`."""
_MISSING: Final = frozenset({LOST, int(Fate.OUTSIDE)})
