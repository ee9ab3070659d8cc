"""What the tracker of one capture adds to the fates of its frames.

The tracker knows which frames carry the same unit, and which units were acknowledged. Together with
the fates this shows which retransmissions were needed, and which datagrams arrived although the
other capture does not have them: that capture misses frames.
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
    RESENT,
    FateTable,
    fate_of,
    flags_of,
)
from netdissect.model.joined import Fate, ResendReport
from netdissect.model.native import i64
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.track.choice import FrameChoice

MIN_MISSED: Final = 3
"""Datagrams that must have arrived unseen to show that a capture misses frames."""
_RARE: Final = 1e-3
"""A capture is held to miss nothing if missing some would leave all answered datagrams seen with
less than this probability."""

NEEDED: Final = 0
SPURIOUS: Final = 1
COPIED: Final = 2
UNKNOWN: Final = 3
"""Indices of the counts in `ResendReport.spaces`."""
_NOT_ARRIVED: Final = frozenset({LOST, int(Fate.OUTSIDE)})


class Evidence(FrameChoice):
    """Combines the units of one capture with the fates of its frames. Of units that arrived here,
    it needs only the copies by the network.

    Args:
        table: the fates.
        window: (from, to), common time, of the copies that are counted.

    """

    def __init__(self, table: FateTable, window: tuple[int, int]) -> None:
        self._table = table
        self._start_ns: i64 = window[0]
        self._end_ns: i64 = window[1]
        self._counts: dict[tuple[int, int], dict[str, list[int]]] = defaultdict(dict)
        """(connection, direction) -> space -> counts as in `ResendReport.spaces`."""
        self.unseen = 0
        """Datagrams sent here that arrived although the other capture lacks them."""
        self.answered = 0
        """Datagrams sent here whose arrival and acknowledgement were both seen."""

    def takes(self, frame: i64) -> bool:
        """Return whether the units that come first in a frame are recorded."""
        return self._table.fate(frame) not in (ARRIVED, APPEARED)

    def renumber(self, numbers: Sequence[int]) -> None:
        """Give connection n the number `numbers[n - 1]`."""
        self._counts = defaultdict(
            dict, {(numbers[n - 1], way): counts for (n, way), counts in self._counts.items()}
        )

    def counts(self, connection: int, direction: int) -> dict[str, list[int]]:
        """Return space -> copies by kind, as in `ResendReport.spaces`.

        In the capture next to the sender, these are retransmissions, by what they were for; in the
        capture next to the receiver, copies by the network.
        """
        return self._counts.get((connection, direction), {})

    def read(self, records: Iterable[UnitRecord | ConnectionEvent]) -> None:
        """Process the units among records, in any order."""
        for record in records:
            if isinstance(record, UnitRecord):
                self._unit(record)

    def _unit(self, unit: UnitRecord) -> None:
        table = self._table
        copies = unit.copies
        # All copies of a unit go in one direction, so the first shows whether it was sent here.
        # Most units have one copy: no list is built for those.
        frame: i64 = copies[0].frame
        first = table.fate(frame)
        if first in (ARRIVED, COPY, APPEARED):
            if first == COPY or len(copies) > 1:
                self._received(unit)
            return
        if len(copies) > 1:
            self._resent(unit)
        if unit.outcome != "acked":
            return
        if first == DELIVERED:
            self.answered += table.add_flags(frame, ANSWERED)
            return
        fates = [table.fate(copy.frame) for copy in copies]
        if DELIVERED in fates:
            self.answered += table.add_flags(copies[fates.index(DELIVERED)].frame, ANSWERED)
        elif _NOT_ARRIVED.issuperset(fates):
            # Of two copies sent before the acknowledgement, either may be the one that arrived.
            before = [copy.frame for copy in copies if copy.time_ns <= (unit.acked_time_ns or 0)]
            word = table.word(before[0]) if len(before) == 1 else 0
            if fate_of(word) == LOST and not flags_of(word) & (AMBIGUOUS | RESENT):
                self.unseen += table.add_flags(before[0], ANSWERED)

    def _received(self, unit: UnitRecord) -> None:
        """Count the copies of a unit that the network made."""
        for copy in unit.copies:
            if self._table.fate(copy.frame) == COPY:
                self._count(unit, copy.frame, COPIED)

    def _resent(self, unit: UnitRecord) -> None:
        """Count the retransmissions of a unit, and flag the copies that made one necessary."""
        table = self._table
        arrived = is_unknown = False
        flagged = 0
        for index, copy in enumerate(unit.copies):
            word = table.word(copy.frame)
            # A copy by the network is no retransmission.
            if index and copy.kind != "duplicate":
                kind = SPURIOUS if arrived else UNKNOWN if is_unknown else NEEDED
                self._count(unit, copy.frame, kind)
                if kind == NEEDED:
                    for earlier in unit.copies[flagged:index]:
                        table.add_flags(earlier.frame, RESENT)
                    flagged = index
            fate, is_ambiguous = fate_of(word), flags_of(word) & AMBIGUOUS
            if is_ambiguous or fate not in (DELIVERED, LOST):
                is_unknown = True
            arrived = arrived or (fate == DELIVERED and not is_ambiguous)

    def _count(self, unit: UnitRecord, frame: i64, kind: int) -> None:
        """Count a copy of a unit, if it lies in the window."""
        if self._start_ns <= self._table.common_ns(frame) <= self._end_ns:
            spaces = self._counts[unit.connection, unit.direction]
            counts = spaces.get(unit.space)
            if counts is None:
                counts = spaces[unit.space] = [0, 0, 0, 0]
            counts[kind] += 1

    def other_misses(self, appeared: int, arrived: int) -> bool:
        """Return whether the other capture demonstrably misses frames.

        Args:
            appeared: arrivals here that it did not see sent.
            arrived: arrivals here that it saw sent.

        """
        if self.unseen >= MIN_MISSED:
            return True
        if appeared < MIN_MISSED:
            return False
        # If it missed that share of the frames, it would miss as much of what was answered.
        share = appeared / (appeared + arrived)
        return (1 - share) ** self.answered > _RARE or self.unseen > 0


def resend_report(spaces: dict[str, list[int]]) -> ResendReport:
    """Return the counts of one direction as a report."""
    report = ResendReport()
    for space, counts in spaces.items():
        report.needed += counts[NEEDED]
        report.spurious += counts[SPURIOUS]
        report.copied += counts[COPIED]
        report.unknown += counts[UNKNOWN]
        report.spaces[space] = (counts[0], counts[1], counts[2], counts[3])
    return report
