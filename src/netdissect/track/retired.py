"""What a late copy needs to know of a unit whose record was emitted, in a tenth of its memory."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import ABSENT, i64
from netdissect.model.reports import Copy, UnitRecord
from netdissect.track.ring import Ring

MAX_TYPES = 4096
"""Type names remembered; late copies of units of further types have no type."""
_ROW: Final = 8
_COUNTED_ROW: Final = 4
_FRAME: Final = 1
_ACKED_FRAME: Final = 2
_FACTS: Final = 3
_ACKED_NS: Final = 4
_ORDER: Final = 5
_DUE_NS: Final = 6
_RTT_NS: Final = 7
"""Columns of a unit's row; column 0 is its number. If units are only counted, a row ends after
`_FACTS`.
"""
_FIRST_NS: Final = _ORDER
"""Replaces `_ORDER` if the whole record is remembered: only a timeline shows the order."""
_OUTCOMES: Final = ("unknown", "acked", "unacked", "given_up")
_OUTCOME_NUMBERS: Final = {outcome: number for number, outcome in enumerate(_OUTCOMES)}
_OUTCOME_BIT: Final = 12
_AMBIGUOUS_BIT: Final = 14
_LOST_BIT: Final = 15
_WHOLE_BIT: Final = 16
_TYPE_BIT: Final = 17
"""First bits of the fields in `_FACTS`; the bits below them hold how often the unit was sent."""
_AMBIGUOUS: Final = 1 << _AMBIGUOUS_BIT
_LOST: Final = 1 << _LOST_BIT
_WHOLE: Final = 1 << _WHOLE_BIT


class Listener:
    """Is told of records that are emitted."""

    def left(self, record: UnitRecord) -> None:
        """Forget an emitted record, except for what a late copy of its unit needs."""
        raise NotImplementedError

    def retire(self) -> None:
        """Do the same with records that only a timeline shows, where there is none."""
        raise NotImplementedError


class TypeNames:
    """A bounded table of type names, each with a number; number 0 is no name."""

    __slots__ = ("_names", "_numbers")

    def __init__(self) -> None:
        self._names: list[str | None] = [None]
        self._numbers: dict[str | None, int] = {None: 0}

    def number(self, name: str | None) -> int:
        """Return the number of a type; 0 if the table is full."""
        number = self._numbers.get(name)
        if number is None:
            if len(self._names) >= MAX_TYPES:
                return 0
            number = self._numbers[name] = len(self._names)
            self._names.append(name)
        return number

    def name(self, number: int) -> str | None:
        """Return the type with this number."""
        return self._names[number]


class RetiredUnits:
    """The newest units of a space whose records were emitted."""

    __slots__ = ("_counted", "_ring", "_types")

    def __init__(self, most: int, types: TypeNames, *, counted: bool) -> None:
        """Create a memory of at most `most` units, a power of two. If units are only `counted`,
        their times are not stored.
        """
        self._ring = Ring(_COUNTED_ROW if counted else _ROW, most)
        self._counted = counted
        self._types = types

    def resize(self, most: int) -> None:
        """Change how many units are remembered, for another dialect."""
        self._ring.limit = most

    def pack(self) -> None:
        """Take less memory until the next use."""
        self._ring.pack()

    def retire(self, record: UnitRecord) -> None:
        """Remember what a late copy needs of a record."""
        frame = record.copies[0].frame if record.copies else None
        if record.extra:
            frame = record.extra.get("continued", frame)
        if frame is None:
            return
        facts: i64 = count_transmissions(record)
        facts |= _OUTCOME_NUMBERS[record.outcome] << _OUTCOME_BIT
        if record.rtt_ambiguous:
            facts |= _AMBIGUOUS
        if record.lost:
            facts |= _LOST
        if record.type is not None:
            facts |= self._types.number(record.type) << _TYPE_BIT
        rtt_ms = record.rtt_ms
        at = self._ring.place(record.seq)
        cells = self._ring.cells
        cells[at + _FRAME] = frame
        cells[at + _ACKED_FRAME] = _cell(record.acked_frame)
        cells[at + _FACTS] = facts
        if self._counted:
            return
        cells[at + _ACKED_NS] = _cell(record.acked_time_ns)
        cells[at + _ORDER] = _cell(record.delivered_order)
        cells[at + _DUE_NS] = _cell(record.next_resend_due_ns)
        cells[at + _RTT_NS] = ABSENT if rtt_ms is None else round(rtt_ms * 1e6)

    def retire_fully(self, record: UnitRecord) -> bool:
        """Remember the whole record of a settled unit that was sent once, except for its order of
        delivery; return False if its type does not fit into the table, or if it was not settled by
        its first acknowledgement or, without one, at its copy.
        """
        sent_ns, acked_ns = record.copies[0].time_ns, record.acked_time_ns
        if record.type is not None and not self._types.number(record.type):
            return False
        # The row has no column for another moment.
        if record.settled_ns != (sent_ns if acked_ns is None else acked_ns):
            return False
        self.retire(record)
        at = self._ring.find(record.seq)
        self._ring.cells[at + _FIRST_NS] = sent_ns
        self._ring.cells[at + _FACTS] |= _WHOLE
        return True

    def restore(self, record: UnitRecord) -> None:
        """Fill the record of a late copy with what is remembered of its unit."""
        at = self._ring.find(record.seq)
        if at < 0:
            return
        cells = self._ring.cells
        facts = int(cells[at + _FACTS])
        if facts & _WHOLE:
            del record.extra["continued"]
            first = Copy(int(cells[at + _FRAME]), int(cells[at + _FIRST_NS]), "original")
            record.copies.append(first)
            acked_ns = _value(cells[at + _ACKED_NS])
            record.settled_ns = first.time_ns if acked_ns is None else acked_ns
        else:
            record.extra["continued"] = int(cells[at + _FRAME])
        record.type = self._types.name(facts >> _TYPE_BIT)
        record.acked_frame = _value(cells[at + _ACKED_FRAME])
        record.rtt_ambiguous = facts >> _AMBIGUOUS_BIT & 1 == 1
        record.outcome = _OUTCOMES[facts >> _OUTCOME_BIT & 3]
        record.lost = True if facts >> _LOST_BIT & 1 else None
        if self._counted:
            return
        rtt_ns = _value(cells[at + _RTT_NS])
        record.acked_time_ns = _value(cells[at + _ACKED_NS])
        record.rtt_ms = None if rtt_ns is None else rtt_ns / 1e6
        if not facts & _WHOLE:
            record.delivered_order = _value(cells[at + _ORDER])
        record.next_resend_due_ns = _value(cells[at + _DUE_NS])

    def transmissions(self, seq: int) -> int:
        """Return how often a unit had been sent when its record was emitted; 0 = unknown."""
        at = self._ring.find(seq)
        return 0 if at < 0 else int(self._ring.cells[at + _FACTS]) & (1 << _OUTCOME_BIT) - 1


def count_transmissions(record: UnitRecord) -> int:
    """Return how often the unit of a record was sent, by its listed copies."""
    sent = 0
    for copy in record.copies:
        if copy.kind != "duplicate":
            sent += 1
    return sent


def _cell(value: int | None) -> i64:
    return ABSENT if value is None else value


def _value(cell: i64) -> int | None:
    return None if cell == ABSENT else int(cell)
