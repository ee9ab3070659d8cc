"""Datagrams that wait until all is known of their units: what `Records` is made of."""

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
from netdissect.protocols.base import Protocol as GameProtocol
from netdissect.track.connection import Connection
from netdissect.track.pruning import Pruner
from netdissect.track.recorder import HOLD_NS, Recorder

__all__ = ["MAX_HELD_OCTETS", "MAX_HELD_RECORDS", "DatagramQueue", "RecordMaker", "advance"]

MAX_HELD_RECORDS = 16_384
"""Datagrams held back at most until their units are settled; beyond, the oldest leaves as it
stands."""
MAX_HELD_OCTETS = 64 * 1024 * 1024
"""Memory of the datagrams held back, as a sum of payloads and the estimates below; beyond, the
oldest leaves as it stands. One datagram can bring hundreds of units.
"""
_RECORD_OCTETS: Final = 600
_EVENT_OCTETS: Final = 250
_UNIT_OCTETS: Final = 1000
"""What a datagram, an event and a unit of it take beside their bytes."""


class DatagramQueue:
    """Datagrams held back, in order of frames; none for longer than a call where it is `live`."""

    def __init__(self, *, live: bool = False) -> None:
        self.live = live
        self.early = 0
        """Datagrams that left before all was known of their units, because too many were held."""
        self._octets = 0
        """Memory of what is held."""
        self._items: deque[Datagram] = deque()
        """Those that came in order of frames."""
        self._late: list[tuple[int, int, Datagram]] = []
        """The others, as a heap: (frame, how many came before, datagram)."""
        self._newest = 0
        self._count = 0
        self.pruner = Pruner()

        self.needs: frozenset[str | None] | None = None
        """As in `Records`: datagrams without such a copy are wanted by nobody; None = all are."""
        self.alone: set[GameProtocol] = set()
        """Protocols of which every datagram's tree stands alone."""

    def __len__(self) -> int:
        return len(self._items) + len(self._late)

    def __bool__(self) -> bool:
        return bool(self._items or self._late)

    def add(self, item: Datagram) -> None:
        """Take one datagram."""
        item.octets = (
            _RECORD_OCTETS + 2 * len(item.payload)
            + _EVENT_OCTETS * len(item.events) + _UNIT_OCTETS * len(item.touched)
        )  # fmt: skip
        self._octets += item.octets
        frame = item.frame
        if frame >= self._newest:
            self._newest = frame
            self._items.append(item)
        else:
            self._count += 1
            heapq.heappush(self._late, (frame, self._count, item))

    def take(self, now_ns: int, oldest_frame: int | None) -> Datagram | None:
        """Take out the oldest datagram, if it may leave.

        Args:
            now_ns: time of the newest packet.
            oldest_frame: frame that waits for its flow to be recognised; later ones stay behind it.

        """
        if not self:
            return None
        if not self.live:
            item = self.first()
            waits = oldest_frame is not None and item.frame > oldest_frame
            if waits or not _settled(item, now_ns):
                if len(self) <= MAX_HELD_RECORDS and self._octets <= MAX_HELD_OCTETS:
                    return None
                self.early += 1
        return self.pop()

    def is_unwanted(self, item: Datagram) -> bool:
        """Return whether a datagram matters neither to who asks nor to those after it."""
        needs, protocol = self.needs, item.protocol
        if needs is None or (protocol is not None and protocol not in self.alone):
            return False
        for _, copy in item.touched:  # noqa: SIM110 - compiled, a loop is cheaper
            if None in needs or copy.kind in needs:
                return False
        return True

    def first(self) -> Datagram:
        """Return the oldest datagram: there is one."""
        return self._late[0][2] if self._is_late() else self._items[0]

    def pop(self) -> Datagram:
        """Take out the oldest datagram."""
        item = heapq.heappop(self._late)[2] if self._is_late() else self._items.popleft()
        self._octets -= item.octets
        return item

    def connections(self) -> set[Connection | None]:
        """Return the connections of what is held."""
        found = {item.connection for item in self._items}
        found.update([item.connection for _, _, item in self._late])
        return found

    def _is_late(self) -> bool:
        """Return whether the oldest one came behind later ones."""
        late = self._late
        return bool(late) and (not self._items or late[0][0] < self._items[0].frame)


class RecordMaker(Protocol):
    """What makes records of datagrams, and holds them until then."""

    held: DatagramQueue
    recorder: Recorder

    def next(self, item: Datagram) -> DatagramRecord | None:
        """Return the record of a datagram; None where nobody wants it."""


def advance(
    packets: Sequence[Packet], at: int, pipeline: Pipeline, maker: RecordMaker, *, timeline: bool
) -> tuple[int, list[DatagramRecord | UnitRecord | ConnectionEvent]]:
    """Have a pipeline take packets until one of them lets something leave.

    Args:
        packets: packets in order.
        at: place of the first one to take.
        pipeline: its recorder and observer are those of the maker.
        maker: holds and makes the records.
        timeline: whether units and events are wanted, too.

    Returns:
        The place behind the last packet taken, and what has left.

    """
    found: list[DatagramRecord | UnitRecord | ConnectionEvent] = []
    held, recorder = maker.held, maker.recorder
    for place in range(at, len(packets)):
        pipeline.feed(packets[place])  # which shows what is of no known protocol, too
        now_ns = pipeline.now_ns
        if not recorder.blocked(now_ns):
            left = list(recorder.ready(now_ns))  # it forgets these, wanted or not
            if timeline:
                found += left
        if held:
            oldest = pipeline.oldest_sampled
            item = held.take(now_ns, oldest)
            while item is not None:
                if not held.is_unwanted(item):
                    record = maker.next(item)
                    if record is not None:
                        found.append(record)
                item = held.take(now_ns, oldest)
        if not timeline:
            held.pruner.prune(recorder, held.first().frame if held else packets[place][1] + 1)
        if found:
            return place + 1, found
    return len(packets), found


def _settled(item: Datagram, now_ns: int) -> bool:
    """Return whether nothing more can be learnt about a datagram."""
    if now_ns - item.time_ns > HOLD_NS:
        return True
    for record, copy in item.touched:
        if record.settled_ns is None or copy.doubtful:
            return False
        for other in record.copies:
            if other.doubtful:
                return False  # how often the unit was sent is not known yet
    return True
