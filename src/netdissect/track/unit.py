"""An outstanding unit, and the units that a datagram carries."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import i64, mypyc_attr
from netdissect.model.reports import UnitRecord


@mypyc_attr(acyclic=True)
class Made:
    """How many units, entries of carried ones and ranges of streams the process has made. When it
    has made many, those that it still has are counted.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count: i64 = 0


MADE: Final = Made()


@mypyc_attr(acyclic=True, free_list_len=1)
class Unit:
    """A unit that is not acknowledged yet. Copies made by the network are not counted."""

    __slots__ = (
        "after", "again", "before", "carried", "chained", "content", "copies", "due_ns", "first_ns",
        "frame", "last_carried", "last_ns", "number", "record",
    )  # fmt: skip

    def __init__(
        self, time_ns: i64, content: i64, due_ns: i64, frame: i64, record: UnitRecord | None
    ) -> None:
        MADE.count += 1
        self.first_ns: i64 = time_ns
        self.last_ns: i64 = time_ns
        """Times of its first and of its last copy."""
        self.copies: i64 = 1
        """How often its sender has sent it."""
        self.content: i64 = content
        """Hash of its content; for a message that a datagram carries, the datagram's number."""
        self.due_ns: i64 = due_ns
        """When its sender will send it again."""
        self.frame: i64 = frame
        """Frame of the first copy."""
        self.record = record
        """Its record in the timeline."""
        self.again = False
        """Whether its first copy in the capture may be a retransmission: no round trip follows."""
        self.carried: Carried | None = None
        self.last_carried: Carried | None = None
        """First and last entry of the list of what it carries, linked by `Carried.next`."""
        self.number: i64 = 0
        """Its extended number, while it is in `Outstanding`."""
        self.chained: Unit | None = None
        self.before: Unit | None = None
        self.after: Unit | None = None
        """Its neighbours in `Outstanding`."""

    def load(self, item: Carried) -> None:
        """Append further units that its datagram carries."""
        last = self.last_carried
        if last is None:
            self.carried = item
        else:
            last.next = item
        self.last_carried = item


class Units:
    """The calls that settle the units of a space. A base class instead of a `typing.Protocol`,
    because mypyc looks up the methods of a protocol by name.
    """

    __slots__ = ("members", "place")

    place: i64
    """Index of the space among the `members` of its carrier."""
    members: tuple[Units, ...]
    """The spaces whose units those of this one carry."""

    def carry(self, member: Units) -> None:
        """Note that the units of this space carry those of another one."""
        member.place = len(self.members)
        self.members = (*self.members, member)

    def deliver(self, unit: Unit, frame: i64, time_ns: i64) -> None:
        """Process the acknowledgement of everything that a unit carries."""
        item = unit.carried
        while item is not None:
            self.members[item.place].delivered(item, frame, time_ns)
            item = item.next

    def settle(self, seq: i64, unit: Unit, frame: i64, time_ns: i64) -> None:
        """Process the first acknowledgement of a unit, which is not outstanding any more."""
        raise NotImplementedError

    def settle_unacked(self, seq: int, unit: Unit, *, seen: bool) -> None:
        """Settle a unit without acknowledgement; `seen`: the capture would have shown one."""
        raise NotImplementedError

    def reported_lost(self, seq: int, unit: Unit) -> None:
        """Settle a unit that its receiver has reported lost."""
        raise NotImplementedError

    def unsent(self, base: int, frame: i64, time_ns: i64) -> None:
        """Process the acknowledgement of a number beyond the newest."""
        raise NotImplementedError

    def delivered(self, item: Carried, frame: i64, time_ns: i64) -> None:
        """Process the acknowledgement of the datagram that carried these units."""
        raise NotImplementedError


@mypyc_attr(free_list_len=1)  # not acyclic: hundreds may be linked by `next`
class Carried:
    """Consecutive units of a space that a datagram carries."""

    __slots__ = ("count", "first", "frame", "next", "number", "open", "place", "record", "sent_ns")

    def __init__(
        self, place: i64, first: i64, count: i64, sent_ns: i64, number: i64, frame: i64,
        record: UnitRecord | None, *, is_open: bool,
    ) -> None:  # fmt: skip
        MADE.count += 1
        self.place: i64 = place
        """`Units.place` of the space."""
        self.first: i64 = first
        self.count: i64 = count
        self.open = is_open
        """Whether this entry stands for outstanding units that have no `Unit` of their own. The
        next four attributes are for these only.
        """
        self.sent_ns: i64 = sent_ns
        self.number: i64 = number
        """Extended number of the datagram."""
        self.frame: i64 = frame
        self.record = record
        """The record that they share in the timeline."""
        self.next: Carried | None = None
        """The next entry of the same datagram. Nearly always there is none, so a linked list takes
        less memory than lists would.
        """

    def units(self) -> list[Unit]:
        """Return a unit of its own for each of them, without a record."""
        return [
            Unit(self.sent_ns, self.number, self.sent_ns, self.frame, None)
            for _ in range(self.count)
        ]

    @staticmethod
    def of(place: i64, seq: i64) -> Carried:
        """Return the entry of a single unit that has a `Unit` of its own."""
        return Carried(place, seq, 1, 0, 0, 0, None, is_open=False)
