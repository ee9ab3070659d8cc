"""The second pass: every datagram of one capture finds itself in the other.

What is sent and what arrives wait under the name of what they carry until nothing more can belong
to them. One datagram of a name needs no thought; several are weighed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from netdissect.join.clock import Clock
from netdissect.join.pairing import MAX_DELAY_NS, Pairing
from netdissect.join.ranges import Extent, Ranges
from netdissect.join.rows import Cursor, Rows
from netdissect.join.sample import FlowName, Sample
from netdissect.join.table import (
    AMBIGUOUS,
    APPEARED,
    ARRIVED,
    COPIED,
    COPY,
    DELIVERED,
    LOST,
    FateTable,
)
from netdissect.join.weigh import Chances, weigh
from netdissect.model.native import ABSENT

if TYPE_CHECKING:
    from mypy_extensions import i64

__all__ = ["MAX_GROUP", "MAX_WAITING", "Lane", "Matcher"]

MAX_WAITING = 200_000
"""Datagrams that wait at once; beyond, the oldest are settled early."""
MAX_GROUP = 64
"""Equal datagrams that wait together; beyond, what is older than a usual delay is settled early."""
MAX_WEIGHED = 16
"""Equal datagrams of one side that are weighed against each other; of more within one delay, all
are ambiguous, and the first is told of the first."""


class _Place:
    """Where the datagrams of a flow go: its channel, whether it sends there, its lane."""

    __slots__ = ("channel", "lane", "sends")

    def __init__(self, channel: Channel, sends: bool, lane: int) -> None:  # noqa: FBT001 - private
        self.channel = channel
        self.sends = sends
        self.lane = lane


class _Waiting:
    """One datagram that waits."""

    __slots__ = ("common_ns", "equal", "extent", "frame", "lane")

    # Written out: what a dataclass makes is not compiled, and there are as many as datagrams.
    def __init__(
        self, common_ns: i64, frame: i64, lane: i64, extent: Extent | None, equal: _Equal
    ) -> None:
        self.common_ns = common_ns
        self.frame = frame
        self.lane = lane
        self.extent = extent
        self.equal = equal


class _Equal:
    """Datagrams of one name."""

    __slots__ = (
        "arrival", "arrived", "channel", "last_ns", "name", "sending", "sent", "settled",
        "several", "tried_ns",
    )  # fmt: skip

    def __init__(self, channel: Channel, name: object, last_ns: i64) -> None:
        self.channel = channel
        self.name = name
        self.last_ns = last_ns
        self.settled = False
        # Most names have one datagram at most on each side: no lists are made of those.
        self.sending: _Waiting | None = None
        self.arrival: _Waiting | None = None
        self.several = False
        """Whether they are in the lists instead."""
        self.sent = _NONE
        self.arrived = _NONE
        """In order of time."""
        self.tried_ns: i64 = 0
        """When they were last looked at for some that can be settled early."""

    def add(self, one: _Waiting, *, sends: bool) -> None:
        """Take a datagram."""
        if not self.several:
            if sends and self.sending is None:
                self.sending = one
                return
            if not sends and self.arrival is None:
                self.arrival = one
                return
            self.spread()
        waiting = self.sent if sends else self.arrived
        place = len(waiting)
        while place and _after(waiting[place - 1], one):
            place -= 1
        waiting.insert(place, one)

    def spread(self) -> None:
        """Put them into lists."""
        if not self.several:
            self.several = True
            self.sent = [] if self.sending is None else [self.sending]
            self.arrived = [] if self.arrival is None else [self.arrival]


    def end(self) -> None:
        """Let go of them: each refers to this."""
        self.settled = True
        self.sending = self.arrival = None
        self.sent = self.arrived = _NONE


def _after(one: _Waiting, other: _Waiting) -> bool:
    """Return whether one datagram of a capture comes after another."""
    if one.common_ns != other.common_ns:
        return one.common_ns > other.common_ns
    return one.frame > other.frame


def _moment(one: _Waiting) -> tuple[int, int]:
    return one.common_ns, one.frame


_NONE: Final[list[_Waiting]] = []
_TRIES_NS: Final = 500_000_000
"""Many equal datagrams are looked through no more often than this."""


class Channel:
    """One direction between the captures, of one group of flows."""

    __slots__ = (
        "arrivals", "chances", "equals", "longest_ns", "ranges", "sendings", "slack_ns",
    )  # fmt: skip

    def __init__(self, toward: int, chances: Chances, tables: tuple[FateTable, FateTable]) -> None:
        self.sendings, self.arrivals = tables if toward > 0 else (tables[1], tables[0])
        """Tables of the captures next to the sender and next to the receiver."""
        self.chances = chances
        self.slack_ns: i64 = chances.slack_ns
        self.longest_ns: i64 = max(2 * chances.delays.quantile(1.0), 5_000_000)
        """Usual delays are shorter."""
        self.equals: dict[object, _Equal] = {}
        self.ranges = Ranges(self.sendings, self.arrivals)


@dataclass(frozen=True, slots=True)
class Lane:
    """One flow of one capture, as the tables name it: by its place in `Matcher.lanes`."""

    capture: int
    flow: FlowName
    group: int
    """Number of its group."""
    toward: int
    """+1: from A to B; -1: from B to A."""


class Matcher:
    """Writes what became of every datagram into the tables of both captures."""

    def __init__(
        self,
        pairing: Pairing,
        chances: dict[int, Chances],
        tables: tuple[FateTable, FateTable],
        samples: tuple[Sample, Sample],
    ) -> None:
        self.tables = tables
        self.settled_early = 0
        """Datagrams settled early because of MAX_WAITING."""
        self.too_many_equal = 0
        """Datagrams in clusters too large to weigh."""
        self._queue: deque[_Waiting] = deque()
        self._oldest_ns: i64 = 0
        """When the first in the queue came."""
        self.lanes: list[Lane] = []
        self._places: list[list[_Place | None]] = [[None] * len(sample.flows) for sample in samples]
        """Of each capture, by the number of a flow."""
        self._channels: list[Channel] = []
        for number, group in enumerate(pairing.groups):
            channels = {toward: Channel(toward, chances[toward], tables) for toward in (1, -1)}
            self._channels += channels.values()
            for capture in (0, 1):
                flows = samples[capture].flows
                for name, toward in group.ways[capture].items():
                    sends = (toward > 0) == (capture == 0)
                    if name in flows:
                        place = _Place(channels[toward], sends, len(self.lanes))
                        self._places[capture][flows[name].number] = place
                    self.lanes.append(Lane(capture, name, number, toward))

    def run(self, rows: tuple[Rows, Rows], clock: Clock) -> None:
        """Take what both captures saw, in order of common time."""
        first, second = Cursor(0, rows[0], clock), Cursor(1, rows[1], clock)
        ours, theirs = self._places
        while first.going or second.going:
            if first.going and (not second.going or first.common_ns <= second.common_ns):
                self._take(first, ours[first.flow])
                first.step()
            else:
                self._take(second, theirs[second.flow])
                second.step()
        self._finish()

    def _take(self, row: Cursor, place: _Place | None) -> None:
        """Take one datagram; both captures' come nearly in order of common time."""
        if place is None:
            return
        common_ns = row.common_ns
        name: object = row.name
        channel = place.channel
        equal = channel.equals.get(name)
        if equal is None:
            equal = channel.equals[name] = _Equal(channel, name, common_ns)
        one = _Waiting(common_ns, row.frame, place.lane, row.extent(), equal)
        equal.add(one, sends=place.sends)
        if common_ns > equal.last_ns:  # noqa: PLR1730 - the builtin would cost more
            equal.last_ns = common_ns
        queue = self._queue
        if not queue:
            self._oldest_ns = common_ns
        queue.append(one)
        while self._oldest_ns < common_ns - MAX_DELAY_NS:
            self._expire()
        if len(queue) > MAX_WAITING:
            self.settled_early += 1
            self._expire(early=True)

    def _finish(self) -> None:
        """Settle what still waits."""
        while self._queue:
            self._expire()
        for channel in self._channels:
            channel.ranges.settle()

    def _expire(self, *, early: bool = False) -> None:
        """Settle the datagrams of a name when the last of them has waited long enough."""
        one = self._queue.popleft()
        if self._queue:
            self._oldest_ns = self._queue[0].common_ns
        since_ns, equal = one.common_ns, one.equal
        if equal.settled:
            # A datagram of the same name and time had its turn before; newer ones may wait.
            newer = equal.channel.equals.get(equal.name)
            if newer is None:
                return
            equal = newer
        if equal.last_ns <= since_ns:
            del equal.channel.equals[equal.name]
            self._settle(equal)
            equal.end()
        elif early or len(equal.sent) + len(equal.arrived) > MAX_GROUP:
            equal.spread()
            self._settle_old(equal.channel, equal, since_ns)

    def _settle_old(self, channel: Channel, equal: _Equal, since_ns: int) -> None:
        """Settle the leading datagrams of a name, up to a pause longer than a usual delay."""
        count = len(equal.sent) + len(equal.arrived)
        if since_ns - equal.tried_ns < _TRIES_NS and count <= 4 * MAX_GROUP:
            return
        equal.tried_ns = since_ns
        parts = _clusters(equal.sent, equal.arrived, channel)
        # What came to it before this has had half of MAX_DELAY_NS or more to arrive.
        old_ns = since_ns + MAX_DELAY_NS // 2
        ready = 0
        for sent, arrived in parts[:-1]:
            if max([one.common_ns for one in (*sent[-1:], *arrived[-1:])]) > old_ns:
                break
            ready += 1
        if not ready and count > 4 * MAX_GROUP:
            # No pause anywhere, as in a flood of equal datagrams: half goes, or they would pile
            # up.
            times = sorted([one.common_ns for one in (*equal.sent, *equal.arrived)])
            limit = times[len(times) // 2]
            parts = [
                (
                    [one for one in equal.sent if early == (one.common_ns < limit)],
                    [one for one in equal.arrived if early == (one.common_ns < limit)],
                )
                for early in (True, False)
            ]
            ready = 1
        for sent, arrived in parts[:ready]:
            self._weigh(channel, sent, arrived)
        equal.sent = [one for sent, _ in parts[ready:] for one in sent]
        equal.arrived = [one for _, arrived in parts[ready:] for one in arrived]
        equal.arrived.sort(key=_moment)

    def _settle(self, equal: _Equal) -> None:
        channel = equal.channel
        if equal.several:
            for sent, arrived in _clusters(equal.sent, equal.arrived, channel):
                self._weigh(channel, sent, arrived)
            return
        sending, arrival = equal.sending, equal.arrival
        if sending is not None and arrival is not None and self._pair(channel, sending, arrival):
            return
        if sending is not None:
            self._sent(channel, sending, 0, flags=0)
        if arrival is not None:
            self._arrived(channel, arrival, 0, APPEARED, flags=0)

    def _pair(self, channel: Channel, sent: _Waiting, arrived: _Waiting) -> bool:
        """Take one datagram and its arrival; return False where that came before it was sent."""
        if arrived.common_ns - sent.common_ns < -channel.slack_ns:
            return False
        self._sent(channel, sent, arrived.frame, flags=0)
        self._arrived(channel, arrived, sent.frame, ARRIVED, flags=0)
        return True

    def _weigh(self, channel: Channel, sent: list[_Waiting], arrived: list[_Waiting]) -> None:
        if not sent or not arrived:
            for one in sent:
                self._sent(channel, one, 0, flags=0)
            for one in arrived:
                self._arrived(channel, one, 0, APPEARED, flags=0)
            return
        if len(sent) == len(arrived) == 1 and self._pair(channel, sent[0], arrived[0]):
            return  # no other reading has any weight
        if max(len(sent), len(arrived)) > MAX_WEIGHED:
            self._in_order(channel, sent, arrived)
            return
        reading = weigh(
            [one.common_ns for one in sent], [one.common_ns for one in arrived], channel.chances
        )
        firsts: dict[int, i64] = {}
        copied: set[int] = set()
        for index, who in enumerate(reading.sender):
            flags = AMBIGUOUS if reading.doubtful_arrived[index] else 0
            if who < 0:
                self._arrived(channel, arrived[index], 0, APPEARED, flags=flags)
            elif reading.first[index]:
                firsts[who] = arrived[index].frame
                self._arrived(channel, arrived[index], sent[who].frame, ARRIVED, flags=flags)
            else:
                copied.add(who)
                self._arrived(channel, arrived[index], sent[who].frame, COPY, flags=flags)
        for index, one in enumerate(sent):
            flags = AMBIGUOUS if reading.doubtful_sent[index] else 0
            flags |= COPIED if index in copied else 0
            self._sent(channel, one, firsts.get(index, 0), flags=flags)

    def _in_order(self, channel: Channel, sent: list[_Waiting], arrived: list[_Waiting]) -> None:
        """Tell the first of the first, and that it is a guess: there are too many to weigh."""
        self.too_many_equal += len(sent) + len(arrived)
        waiting = deque(sent)
        for one in arrived:
            if waiting and one.common_ns - waiting[0].common_ns >= -channel.slack_ns:
                source = waiting.popleft()
                self._sent(channel, source, one.frame, flags=AMBIGUOUS)
                self._arrived(channel, one, source.frame, ARRIVED, flags=AMBIGUOUS)
            else:
                self._arrived(channel, one, 0, APPEARED, flags=AMBIGUOUS)
        for one in waiting:
            self._sent(channel, one, 0, flags=AMBIGUOUS)

    def _sent(self, channel: Channel, one: _Waiting, partner: i64, *, flags: i64) -> None:
        """Write what became of what was sent; `partner`: frame of its first arrival or 0."""
        channel.sendings.set(
            one.frame, DELIVERED if partner else LOST,
            flags=flags, lane=one.lane, partner=partner, common_ns=one.common_ns,
        )  # fmt: skip
        # Only TCP segments are cut or joined on the way.
        if one.extent is not None:
            sight = (one.common_ns, one.frame, one.lane, one.extent)
            channel.ranges.sent(sight)
            if not partner:
                channel.ranges.missing(sight)

    def _arrived(
        self, channel: Channel, one: _Waiting, partner: i64, fate: i64, *, flags: i64
    ) -> None:
        if fate == APPEARED and one.extent is not None:
            channel.ranges.found((one.common_ns, one.frame, one.lane, one.extent))
        channel.arrivals.set(
            one.frame, fate,
            flags=flags, lane=one.lane, partner=partner, common_ns=one.common_ns,
        )  # fmt: skip


_Part = tuple[list[_Waiting], list[_Waiting]]
"""What was sent, and what arrived."""


def _clusters(sent: list[_Waiting], arrived: list[_Waiting], channel: Channel) -> list[_Part]:
    """Return the datagrams of a name, parted where no usual delay reaches across.

    What arrived with nobody who sent it just before is put to the latest ones that lack an arrival,
    else to the latest ones. Where more arrived than was sent, and one before was lost, a delay that
    is not usual may be why: those are weighed together.
    """
    found: list[_Part] = []
    reach: i64 = ABSENT
    going = coming = 0
    while going < len(sent) or coming < len(arrived):
        # An arrival that seems to be earlier than its sending must still come after it here.
        if going < len(sent) and (
            coming == len(arrived)
            or sent[going].common_ns <= arrived[coming].common_ns + channel.slack_ns
        ):
            one = sent[going]
            going += 1
            if reach == ABSENT or one.common_ns > reach:
                found.append(([], []))
            found[-1][0].append(one)
            reach = one.common_ns + channel.longest_ns
            continue
        one = arrived[coming]
        coming += 1
        if reach == ABSENT:
            found.append(([], [one]))
        elif one.common_ns + channel.slack_ns <= reach:
            found[-1][1].append(one)
        else:
            lacking = [part for part in found if len(part[0]) > len(part[1])]
            (lacking or found)[-1][1].append(one)
    # From the end: parts that are joined change the places of later ones only.
    for index in range(len(found) - 1, 0, -1):
        (before, came), (sent, arrived) = found[index - 1 : index + 1]
        if len(before) > len(came) and len(arrived) > len(sent):
            found[index - 1 : index + 1] = [(before + sent, came + arrived)]
    return found
