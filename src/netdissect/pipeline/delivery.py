"""Reliable messages once each and in the order of their numbers, as an ordered receiver delivers
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from netdissect.model.records import DatagramRecord, MessageRecord

MAX_WAITING = 1024
"""Messages of one space that may wait for a missing number. Beyond that, the gap is skipped."""

_Item = tuple[DatagramRecord, MessageRecord]


class _Queue:
    """Messages of one space in one direction."""

    __slots__ = ("next_seq", "waiting")

    def __init__(self) -> None:
        self.next_seq: int | None = None
        self.waiting: dict[int, _Item] = {}

    def put(self, seq: int, item: _Item) -> Iterator[_Item]:
        """Add a message; yield those that can be delivered now."""
        if self.next_seq is None:
            self.next_seq = seq
        if seq < self.next_seq or seq in self.waiting:
            return
        self.waiting[seq] = item
        if len(self.waiting) > MAX_WAITING:
            # The missing numbers are given up.
            self.next_seq = min(self.waiting)
        while self.next_seq in self.waiting:
            yield self.waiting.pop(self.next_seq)
            self.next_seq += 1

    def rest(self) -> Iterator[_Item]:
        """Yield the messages that are still waiting, by number."""
        for seq in sorted(self.waiting):
            yield self.waiting[seq]


def delivered(records: Iterable[DatagramRecord]) -> Iterator[_Item]:
    """Yield the reliable messages of one connection once each, in the order of their numbers.

    A message waits until those with lower numbers have been delivered. Numbers that are never seen
    are skipped at the end, or when MAX_WAITING messages wait for them.
    """
    queues: dict[tuple[str, int | None], _Queue] = {}
    for record in records:
        for item in record.messages:
            facts = item.reliability
            if facts is None or not facts.reliable or facts.kind != "original":
                continue
            queue = queues.setdefault((facts.space, record.direction), _Queue())
            yield from queue.put(facts.seq, (record, item))
    for queue in queues.values():
        yield from queue.rest()
