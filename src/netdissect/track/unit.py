"""A unit that waits for its acknowledgement, a number that stands alone, and further copies."""

from __future__ import annotations

from typing import Any

from netdissect.model.native import i64, mypyc_attr
from netdissect.model.reports import Copy, UnitRecord

__all__ = ["Carried", "Repeats", "Stray", "Unit"]


@mypyc_attr(free_list_len=1)
class Unit:
    """One unit that waits for its acknowledgement. Copies made by the network are not counted."""

    __slots__ = (
        "carried", "content", "copies", "due_ns", "first_ns", "frame", "last_carried", "last_ns",
        "record",
    )  # fmt: skip

    def __init__(
        self, time_ns: i64, content: i64, due_ns: i64, frame: int, record: UnitRecord | None
    ) -> None:
        self.first_ns: i64 = time_ns
        self.last_ns: i64 = time_ns
        """Times of its first and of its last copy."""
        self.copies: i64 = 1
        """Copies that its sender has made."""
        self.content: i64 = content
        """Hash of what it holds; of a message that a datagram carries, the datagram's number."""
        self.due_ns: i64 = due_ns
        """When its sender will send it again."""
        self.frame = frame
        """Frame of the first copy."""
        self.record = record
        """Its record in the timeline."""
        self.carried: Carried | None = None
        self.last_carried: Carried | None = None
        """First and last of what it carries."""


class Carried:
    """Consecutive units of a space that a datagram carries."""

    __slots__ = (
        "count", "first", "frame", "further", "number", "open", "record", "sent_ns", "space",
    )  # fmt: skip

    def __init__(
        self, space: Any, first: i64, count: i64, sent_ns: i64, number: i64, frame: int,
        record: UnitRecord | None, *, is_open: bool,
    ) -> None:  # fmt: skip
        self.space = space
        """Their ledger, of which this module knows nothing."""
        self.first: i64 = first
        self.count: i64 = count
        self.open = is_open
        """While they wait together, without units of their own: ..."""
        self.sent_ns: i64 = sent_ns
        """... when they were sent, ..."""
        self.number: i64 = number
        self.frame = frame
        """... the number of their datagram and its frame, ..."""
        self.record = record
        """... and their record in the timeline."""
        self.further: Carried | None = None
        """What the datagram carries behind them: nearly always nothing, so lists would cost more.
        """


class Stray:
    """A number far from all before, and the unit that has it."""

    __slots__ = ("acked", "frame", "last", "plain", "seq", "time_ns", "unit", "wire_seq")

    def __init__(
        self, wire_seq: int, seq: int, last: int, unit: Unit | None, frame: int, time_ns: int
    ) -> None:
        self.wire_seq = wire_seq
        self.seq = seq
        self.last = last
        """Newest number when it came."""
        self.unit = unit
        """None where the number is that of something else than a unit."""
        self.frame = frame
        self.time_ns = time_ns
        self.plain = False
        """True for a unit that nobody acknowledges."""
        self.acked = False
        """True once an acknowledgement has named it."""


class Repeats:
    """What a space remembers of further copies: most spaces never have one."""

    __slots__ = (
        "again_in", "again_of", "doubtful", "held", "in_vain", "late", "placed", "soon",
        "together_from", "together_ns", "waited_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.doubtful: list[tuple[int, Copy | None, UnitRecord | None, bool]] = []
        """Copies whose kind depends on where the capture was taken; True: those that are the
        network's only where it is known to be next to their receiver."""
        self.placed = [0, 0]
        """How many more there are, of both sorts."""
        self.held: dict[int, int] = {}
        """Number -> how late its newest copy came, as later numbers or its sender's timer show."""
        self.late: dict[int, int] = {}
        """Number -> transmissions after its acknowledgement."""
        self.again_in = 0
        """Frame of the newest further copy, and ..."""
        self.again_of: set[int] = set()
        """... the numbers that came again in it."""
        self.together_ns: i64 = 0
        """When the newest of some copies came that came together and too soon for resends, ..."""
        self.soon = 0
        """... how many they are, ..."""
        self.together_from = 0
        """... how many were doubtful before, ..."""
        self.waited_ns: i64 = 0
        """... and how long their direction was silent before all that came with them."""
        self.in_vain: set[int] = set()
        """Open units sent as often as permitted while the other direction was not heard."""
