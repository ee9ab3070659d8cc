"""Reliable messages in the order of their numbers, once each: what an ordered receiver hands on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from netdissect.model.records import DatagramRecord, MessageRecord

__all__ = ["MAX_WAITING", "delivered"]

MAX_WAITING = 1024
"""Messages of one space that wait for a missing number at most; beyond, the gap is passed over."""

_Item = tuple[DatagramRecord, MessageRecord]


class _Queue:
    """Messages of one space in one direction."""

    __slots__ = ("next_seq", "waiting")

    def __init__(self) -> None:
        self.next_seq: int | None = None
        self.waiting: dict[int, _Item] = {}

    def put(self, seq: int, item: _Item) -> Iterator[_Item]:
        """Take a message and yield those that are in order now."""
        if self.next_seq is None:
            self.next_seq = seq
        if seq < self.next_seq or seq in self.waiting:
            return
        self.waiting[seq] = item
        if len(self.waiting) > MAX_WAITING:
            self.next_seq = min(self.waiting)
        while self.next_seq in self.waiting:
            yield self.waiting.pop(self.next_seq)
            self.next_seq += 1

    def rest(self) -> Iterator[_Item]:
        """Yield what still waits, by number."""
        for seq in sorted(self.waiting):
            yield self.waiting[seq]


def delivered(records: Iterable[DatagramRecord]) -> Iterator[_Item]:
    """Yield the reliable messages of one connection in the order of their numbers, each once.

    A message that came before one with a lower number is held until that one is there; numbers that
    are never seen are passed over when MAX_WAITING messages wait behind them, or at the end.
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
