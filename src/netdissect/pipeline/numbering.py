"""Numbers of connections, in the order in which they begin, whichever process tracks them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from heapq import merge

__all__ = ["Begun", "common_numbers"]


class Begun:
    """When each connection began, for an order that several processes share. Connection 1 is first.

    A moment is (newest frame, first frame of its flow), and none is less than the one before it.
    """

    __slots__ = ("_first", "_newest")

    def __init__(self) -> None:
        self._newest = array("q")
        self._first = array("q")

    def add(self, newest: int, first: int) -> int:
        """Take the moment at which a connection begins and return the connection's number."""
        if self._newest:
            newest, first = max((newest, first), (self._newest[-1], self._first[-1]))
        self._newest.append(newest)
        self._first.append(first)
        return len(self._newest)

    def __len__(self) -> int:
        return len(self._newest)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._newest, self._first, strict=True)


def common_numbers(shares: Sequence[Begun]) -> list[array[int]]:
    """Return for each share the numbers that its connections have among those of all shares."""
    numbers = [array("q", bytes(8 * len(share))) for share in shares]
    queues = [_queue(index, share) for index, share in enumerate(shares)]
    for new, (_, index, number) in enumerate(merge(*queues), 1):
        numbers[index][number - 1] = new
    return numbers


def _queue(index: int, share: Begun) -> Iterator[tuple[tuple[int, int], int, int]]:
    """Yield (moment, share, number) of the connections of a share."""
    return ((moment, index, number) for number, moment in enumerate(share, 1))
