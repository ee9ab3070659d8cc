"""The queue in which datagrams wait until everything is known about their units."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from netdissect.model.packets import Packet
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.pipeline.observer import Datagram
from netdissect.pipeline.stages import Pipeline
from netdissect.track.connection import Connection
from netdissect.track.pruning import Pruner
from netdissect.track.recorder import HOLD_NS, LINGER_NS, Recorder

MAX_HELD_RECORDS = 16_384
"""Datagrams that may wait. Beyond that, the oldest leaves with what is known about it."""
MAX_HELD_OCTETS = 64 * 1024 * 1024
"""Memory of the waiting datagrams, as `Datagram.weigh` estimates it. Beyond that, the oldest leaves
with what is known about it. One datagram can have hundreds of units.
"""
MAX_LINGERING: Final = 2048
"""Waiting datagrams up to which a message over TCP waits for retransmissions of what has been
acknowledged, which have no record of their own, and a copy for others that a stalled network
releases together with it.
"""
_MOST_AT_ONCE: Final = 32
"""Datagrams emitted at once: thousands may have waited for one, with hundreds of messages each."""


class DatagramQueue:
    """Waiting datagrams in the order of frames."""

    def __init__(self, *, live: bool = False) -> None:
        """Create an empty queue; if `live`, datagrams may leave at once."""
        self.live = live
        self.early = 0
        """Datagrams that left before their units were settled, because of the bounds."""
        self.stopped = False
        """Whether `advance` has emitted enough at once, and more may leave."""
        self._octets = 0
        """Estimated memory of the waiting datagrams."""
        self._oldest: Datagram | None = None
        """The oldest datagram; None = the queue is empty."""
        self._items: deque[Datagram] = deque()
        """The datagrams that were added in the order of frames."""
        self._late: list[tuple[int, int, Datagram]] = []
        """The others, as a heap of (frame, ordinal, datagram)."""
        self._newest = 0
        self._count = 0
        self.pruner = Pruner()
        self.needs: frozenset[str | None] | None = None
        """As `Records.needs`."""

    def __len__(self) -> int:
        return len(self._items) + len(self._late)

    def __bool__(self) -> bool:
        return self._oldest is not None

    def add(self, item: Datagram) -> None:
        """Add one datagram."""
        self._octets += item.weigh()
        frame = item.frame
        if frame >= self._newest:
            self._newest = frame
            self._items.append(item)
        else:
            self._count += 1
            heapq.heappush(self._late, (frame, self._count, item))
        if self._oldest is None or frame < self._oldest.frame:
            self._oldest = item

    def take(self, now_ns: int, oldest_frame: int | None) -> Datagram | None:
        """Remove and return the oldest datagram if it may leave. Those before it that are set aside
        leave with it.

        Args:
            now_ns: time of the newest packet.
            oldest_frame: oldest frame whose flow is not recognised yet; later datagrams wait for
                it. None = there is none.

        """
        while True:
            item = self._oldest
            if item is None:
                return None
            if not self.live:
                waits = oldest_frame is not None and item.frame > oldest_frame
                if waits or not _settled(item, now_ns):
                    if not self._is_full():
                        return None
                    self.early += 1
                elif (len(self) <= MAX_LINGERING and now_ns - item.time_ns < LINGER_NS
                        and (item.stream is not None or _may_be_revised(item))):  # fmt: skip
                    return None
            self.pop()
            if not item.is_aside:
                return item

    def is_blocked(self, now_ns: int) -> bool:
        """Return whether nothing may leave: the queue is empty, or its oldest datagram waits for
        its own units. That is cheaper to know than what `take` must be told.
        """
        item = self._oldest
        if item is None:
            return True
        return not (self.live or self._is_full() or _settled(item, now_ns))

    def _is_full(self) -> bool:
        """Return whether so much waits that the oldest datagram must leave."""
        return len(self) > MAX_HELD_RECORDS or self._octets > MAX_HELD_OCTETS

    def first(self) -> Datagram:
        """Return the oldest datagram; the queue must not be empty."""
        if self._oldest is None:
            raise IndexError
        return self._oldest

    def pop(self) -> Datagram:
        """Remove and return the oldest datagram; the queue must not be empty."""
        item = self.first()
        items, late = self._items, self._late
        if late and late[0][2] is item:
            heapq.heappop(late)
        else:
            items.popleft()
        if late and (not items or late[0][0] < items[0].frame):
            self._oldest = late[0][2]
        else:
            self._oldest = items[0] if items else None
        self._octets -= item.octets
        return item

    def prune(self, recorder: Recorder, following: int, now_ns: int) -> None:
        """Sometimes drop the records of settled units that no waiting datagram needs.

        Args:
            recorder: has the records.
            following: the frame after the newest one.
            now_ns: time of the newest packet.

        """
        if not self.pruner.is_due(recorder):
            return
        before, kept = following, set[int]()
        if self.needs is None:
            before = self.first().frame if self else following
        else:
            for item in self._items:
                _free(item, now_ns, kept)
            for _, _, item in self._late:
                _free(item, now_ns, kept)
        self.pruner.prune(recorder, before, kept, least=len(self) // 4)

    def connections(self) -> set[Connection | None]:
        """Return the connections of the waiting datagrams."""
        found = {item.connection for item in self._items}
        found.update([item.connection for _, _, item in self._late])
        return found


class RecordMaker(Protocol):
    """Creates records from the datagrams that leave its queue."""

    held: DatagramQueue
    recorder: Recorder

    def next(self, item: Datagram) -> DatagramRecord | None:
        """Return the record of a datagram; None if it is not needed."""


def advance(
    packets: Sequence[Packet], at: int, pipeline: Pipeline, maker: RecordMaker, *, timeline: bool
) -> tuple[int, list[DatagramRecord | UnitRecord | ConnectionEvent]]:
    """Feed packets to a pipeline until something can be emitted.

    Args:
        packets: packets in order.
        at: index of the first packet to process.
        pipeline: a pipeline with the recorder and the observer of the maker.
        maker: has the queue, and creates the records.
        timeline: whether to emit units and events too.

    Returns:
        The index after the last packet processed, that of this packet if more may be emitted with
        it, and what is emitted.

    """
    found: list[DatagramRecord | UnitRecord | ConnectionEvent] = []
    held, recorder = maker.held, maker.recorder
    others = pipeline.options.others
    for place in range(at, len(packets)):
        packet = packets[place]
        if held.stopped:  # this packet was fed before
            held.stopped = False
        elif others:
            pipeline.feed(packet)
        else:  # faster, but it does not show the observer datagrams of unknown protocols
            pipeline.packet(packet)
        now_ns = pipeline.now_ns
        if not recorder.blocked(now_ns):
            left = list(recorder.ready(now_ns))  # called in any case, to free these records
            if timeline:
                found += left
        if held:
            _emit(pipeline, maker, found)
            if held.stopped:
                return place, found
        if not timeline:
            held.prune(recorder, packet[1] + 1, now_ns)
        if found:
            return place + 1, found
    return len(packets), found


def _emit(
    pipeline: Pipeline,
    maker: RecordMaker,
    found: list[DatagramRecord | UnitRecord | ConnectionEvent],
) -> None:
    """Append the records of the datagrams that may leave, or of some of them."""
    held, now_ns = maker.held, pipeline.now_ns
    if held.is_blocked(now_ns):
        return
    oldest, most = pipeline.oldest_sampled, len(found) + _MOST_AT_ONCE
    while len(found) < most:
        item = held.take(now_ns, oldest)
        if item is None:
            return
        record = maker.next(item)
        if record is not None:
            found.append(record)
    held.stopped = True


def _free(item: Datagram, now_ns: int, kept: set[int]) -> None:
    """Free the units of a datagram that is set aside once they are settled; add the frames of any
    other to `kept`.
    """
    if item.is_aside:
        if item.touched and _settled(item, now_ns):
            item.touched = ()
    else:
        kept.add(item.frame)
        if item.frames:
            kept.update(item.frames)


def may_have(item: Datagram, needs: frozenset[str | None]) -> bool:
    """Return whether a datagram has a copy of a kind that a filter needs, or may have one: the
    bytes of a message over TCP may be retransmitted later, in a frame without a record.
    """
    if item.stream is not None:
        return True
    for _, copy in item.touched:  # noqa: SIM110 - compiled, a loop is cheaper
        if None in needs or copy.kind in needs:
            return True
    return False


def _may_be_revised(item: Datagram) -> bool:
    """Return whether copies that come soon may change what is said of a copy of a datagram."""
    for _, copy in item.touched:  # noqa: SIM110 - compiled, a loop is cheaper
        if copy.by_place:
            return True
    return False


def _settled(item: Datagram, now_ns: int) -> bool:
    """Return whether nothing more will be learnt about the units of a datagram."""
    if now_ns - item.time_ns > HOLD_NS:
        return True
    for record, copy in item.touched:
        if record.settled_ns is None or copy.doubtful:
            return False
        for other in record.copies:
            if other.doubtful:
                return False  # it is not yet known how often the unit was sent
    return True
