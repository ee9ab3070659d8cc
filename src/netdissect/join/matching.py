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
from netdissect.join.ranges import Ranges, Sight
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


class _Equal:
    """Datagrams of one name."""

    __slots__ = ("arrived", "last_ns", "sent", "tried_ns")

    # Written out: what a dataclass makes is not compiled, and there are as many as datagrams.
    def __init__(self, sent: list[Sight], arrived: list[Sight], last_ns: int) -> None:
        self.sent = sent
        self.arrived = arrived
        self.last_ns = last_ns
        self.tried_ns = 0
        """When they were last looked at for some that can be settled early."""


_TRIES_NS: Final = 500_000_000
"""Many equal datagrams are looked through no more often than this."""


class Channel:
    """One direction between the captures, of one group of flows."""

    __slots__ = ("chances", "equals", "longest_ns", "ranges", "receiver", "sender")

    def __init__(self, toward: int, chances: Chances, tables: tuple[FateTable, FateTable]) -> None:
        self.sender = 0 if toward > 0 else 1
        """Capture next to the sender."""
        self.receiver = 1 - self.sender
        self.chances = chances
        self.longest_ns = max(2 * chances.delays.quantile(1.0), 5_000_000)
        """Usual delays are shorter."""
        self.equals: dict[int, _Equal] = {}
        self.ranges = Ranges(tables[self.sender], tables[self.receiver])


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
        self._queue: deque[tuple[int, Channel, int]] = deque()
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
        name: int = row.name
        channel = place.channel
        equal = channel.equals.get(name)
        if equal is None:
            equal = channel.equals[name] = _Equal([], [], common_ns)
        sight: Sight = (common_ns, row.frame, place.lane, row.extent())
        (equal.sent if place.sends else equal.arrived).append(sight)
        if common_ns > equal.last_ns:  # noqa: PLR1730 - the builtin would cost more
            equal.last_ns = common_ns
        queue = self._queue
        if not queue:
            self._oldest_ns = common_ns
        queue.append((common_ns, channel, name))
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
        since_ns, channel, name = self._queue.popleft()
        if self._queue:
            self._oldest_ns = self._queue[0][0]
        equal = channel.equals.get(name)
        # A datagram of the same name and time had its turn before.
        if equal is None:
            return
        if equal.last_ns <= since_ns:
            del channel.equals[name]
            self._settle(channel, equal)
        elif early or len(equal.sent) + len(equal.arrived) > MAX_GROUP:
            self._settle_old(channel, equal, since_ns)

    def _settle_old(self, channel: Channel, equal: _Equal, since_ns: int) -> None:
        """Settle the leading datagrams of a name, up to a pause longer than a usual delay."""
        count = len(equal.sent) + len(equal.arrived)
        if since_ns - equal.tried_ns < _TRIES_NS and count <= 4 * MAX_GROUP:
            return
        equal.tried_ns = since_ns
        equal.sent.sort()
        equal.arrived.sort()
        parts = _clusters(equal.sent, equal.arrived, channel)
        # What came to it before this has had half of MAX_DELAY_NS or more to arrive.
        old_ns = since_ns + MAX_DELAY_NS // 2
        ready = 0
        for sent, arrived in parts[:-1]:
            if max(sight[0] for sight in (*sent[-1:], *arrived[-1:])) > old_ns:
                break
            ready += 1
        if not ready and count > 4 * MAX_GROUP:
            # No pause anywhere, as in a flood of equal datagrams: half goes, or they would pile
            # up.
            times = sorted([time for time, *_ in equal.sent] + [time for time, *_ in equal.arrived])
            limit = times[len(times) // 2]
            parts = [
                (
                    [sight for sight in equal.sent if early == (sight[0] < limit)],
                    [sight for sight in equal.arrived if early == (sight[0] < limit)],
                )
                for early in (True, False)
            ]
            ready = 1
        for sent, arrived in parts[:ready]:
            self._weigh(channel, sent, arrived)
        equal.sent = [sight for sent, _ in parts[ready:] for sight in sent]
        equal.arrived = [sight for _, arrived in parts[ready:] for sight in arrived]

    def _settle(self, channel: Channel, equal: _Equal) -> None:
        sent, arrived = equal.sent, equal.arrived
        if len(sent) == 1 and len(arrived) <= 1:
            if not arrived:
                self._sent(channel, sent[0], None, flags=0)
            elif not self._pair(channel, sent[0], arrived[0]):
                self._sent(channel, sent[0], None, flags=0)
                self._arrived(channel, arrived[0], 0, APPEARED, flags=0)
            return
        sent.sort()
        arrived.sort()
        for some_sent, some_arrived in _clusters(sent, arrived, channel):
            self._weigh(channel, some_sent, some_arrived)

    def _pair(self, channel: Channel, sent: Sight, arrived: Sight) -> bool:
        """Take one datagram and its arrival; return False where that came before it was sent."""
        if arrived[0] - sent[0] < -channel.chances.slack_ns:
            return False
        self._sent(channel, sent, arrived[1], flags=0)
        self._arrived(channel, arrived, sent[1], ARRIVED, flags=0)
        return True

    def _weigh(self, channel: Channel, sent: list[Sight], arrived: list[Sight]) -> None:
        if not sent or not arrived:
            for sight in sent:
                self._sent(channel, sight, None, flags=0)
            for sight in arrived:
                self._arrived(channel, sight, 0, APPEARED, flags=0)
            return
        if len(sent) == len(arrived) == 1 and self._pair(channel, sent[0], arrived[0]):
            return  # no other reading has any weight
        if max(len(sent), len(arrived)) > MAX_WEIGHED:
            self._in_order(channel, sent, arrived)
            return
        reading = weigh(
            [time for time, *_ in sent], [time for time, *_ in arrived], channel.chances
        )
        firsts: dict[int, int] = {}
        copied: set[int] = set()
        for index, who in enumerate(reading.sender):
            flags = AMBIGUOUS if reading.doubtful_arrived[index] else 0
            if who < 0:
                self._arrived(channel, arrived[index], 0, APPEARED, flags=flags)
            elif reading.first[index]:
                firsts[who] = arrived[index][1]
                self._arrived(channel, arrived[index], sent[who][1], ARRIVED, flags=flags)
            else:
                copied.add(who)
                self._arrived(channel, arrived[index], sent[who][1], COPY, flags=flags)
        for index, sight in enumerate(sent):
            flags = AMBIGUOUS if reading.doubtful_sent[index] else 0
            flags |= COPIED if index in copied else 0
            self._sent(channel, sight, firsts.get(index), flags=flags)

    def _in_order(self, channel: Channel, sent: list[Sight], arrived: list[Sight]) -> None:
        """Tell the first of the first, and that it is a guess: there are too many to weigh."""
        self.too_many_equal += len(sent) + len(arrived)
        waiting = deque(sent)
        for sight in arrived:
            if waiting and sight[0] - waiting[0][0] >= -channel.chances.slack_ns:
                source = waiting.popleft()
                self._sent(channel, source, sight[1], flags=AMBIGUOUS)
                self._arrived(channel, sight, source[1], ARRIVED, flags=AMBIGUOUS)
            else:
                self._arrived(channel, sight, 0, APPEARED, flags=AMBIGUOUS)
        for sight in waiting:
            self._sent(channel, sight, None, flags=AMBIGUOUS)

    def _sent(self, channel: Channel, sight: Sight, partner: int | None, *, flags: int) -> None:
        fate = LOST if partner is None else DELIVERED
        self.tables[channel.sender].set(
            sight[1],
            fate,
            flags=flags,
            lane=sight[2],
            partner=partner or 0,
            common_ns=sight[0],
        )
        # Only TCP segments are cut or joined on the way.
        if sight[3] is not None:
            channel.ranges.sent(sight)
            if partner is None:
                channel.ranges.missing(sight)

    def _arrived(
        self, channel: Channel, sight: Sight, partner: int, fate: int, *, flags: int
    ) -> None:
        if fate == APPEARED:
            channel.ranges.found(sight)
        self.tables[channel.receiver].set(
            sight[1],
            fate,
            flags=flags,
            lane=sight[2],
            partner=partner,
            common_ns=sight[0],
        )


def _clusters(
    sent: list[Sight], arrived: list[Sight], channel: Channel
) -> list[tuple[list[Sight], list[Sight]]]:
    """Return the datagrams of a name, parted where no usual delay reaches across.

    What arrived with nobody who sent it just before is put to the latest ones that lack an arrival,
    else to the latest ones. Where more arrived than was sent, and one before was lost, a delay that
    is not usual may be why: those are weighed together.
    """
    slack = channel.chances.slack_ns
    events = [(sight[0], 0, sight) for sight in sent]
    # An arrival that seems to be earlier than its sending must still come after it here.
    events += [(sight[0] + slack, 1, sight) for sight in arrived]
    events.sort()
    found: list[tuple[list[Sight], list[Sight]]] = []
    reach = None
    for time, side, sight in events:
        if side == 0:
            if reach is None or time > reach:
                found.append(([], []))
            found[-1][0].append(sight)
            reach = time + channel.longest_ns
        elif reach is None:
            found.append(([], [sight]))
        elif time <= reach:
            found[-1][1].append(sight)
        else:
            lacking = [part for part in found if len(part[0]) > len(part[1])]
            (lacking or found)[-1][1].append(sight)
    # From the end: parts that are joined change the places of later ones only.
    for index in range(len(found) - 1, 0, -1):
        (before, came), (sent, arrived) = found[index - 1 : index + 1]
        if len(before) > len(came) and len(arrived) > len(sent):
            found[index - 1 : index + 1] = [(before + sent, came + arrived)]
    return found
