"""A unit that waits for its acknowledgement, what a datagram carries, and further copies."""

from __future__ import annotations

from netdissect.model.native import i64, mypyc_attr
from netdissect.model.reports import Copy, UnitRecord

__all__ = ["Carried", "CopyMemory", "Unit", "Units"]


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

    def load(self, item: Carried) -> None:
        """Note that its datagram carries further units."""
        last = self.last_carried
        if last is None:
            self.carried = item
        else:
            last.further = item
        self.last_carried = item

    def deliver(self, frame: int, time_ns: int) -> None:
        """Take its acknowledgement as one of all that it carries."""
        item = self.carried
        while item is not None:
            item.space.delivered(item, frame, time_ns)
            item = item.further


class Units:
    """The units of a space, as acknowledgements settle them. A class, not a protocol: compiled,
    methods of a protocol are looked up by name.
    """

    __slots__ = ()

    def settle(self, seq: i64, unit: Unit, frame: int, time_ns: int) -> None:
        """Take the first acknowledgement of a unit, which waits no more."""
        raise NotImplementedError

    def settle_unacked(self, seq: int, unit: Unit, *, seen: bool) -> None:
        """Settle a unit without acknowledgement; `seen`: one could have been seen."""
        raise NotImplementedError

    def reported_lost(self, seq: int, unit: Unit) -> None:
        """Take that the receiver has told that a unit did not come."""
        raise NotImplementedError

    def unsent(self, base: int, frame: int, time_ns: int) -> None:
        """Take the acknowledgement of a number beyond the newest."""
        raise NotImplementedError

    def delivered(self, item: Carried, frame: int, time_ns: int) -> None:
        """Take the acknowledgement of what carried these units."""
        raise NotImplementedError


class Carried:
    """Consecutive units of a space that a datagram carries."""

    __slots__ = (
        "count", "first", "frame", "further", "number", "open", "record", "sent_ns", "space",
    )  # fmt: skip

    def __init__(
        self, space: Units, first: i64, count: i64, sent_ns: i64, number: i64, frame: int,
        record: UnitRecord | None, *, is_open: bool,
    ) -> None:  # fmt: skip
        self.space = space
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

    @staticmethod
    def of(space: Units, seq: i64) -> Carried:
        """Return a unit, which waits on its own, as something that a datagram carries."""
        return Carried(space, seq, 1, 0, 0, 0, None, is_open=False)


class CopyMemory:
    """What a space remembers of further copies: most spaces never have one."""

    __slots__ = (
        "again_in", "again_of", "doubtful", "held", "late", "placed", "soon", "together_from",
        "together_ns", "waited_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.doubtful: list[tuple[int, Copy | None, UnitRecord | None, int]] = []
        """Copies whose kind depends on where the capture was taken, and how soon each came."""
        self.placed = [0, 0, 0]
        """How many more there are of each sort."""
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
