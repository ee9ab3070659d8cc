"""Bytes at offsets, of which the first copy counts. Used for IP fragments and TCP streams."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import NamedTuple


class Added(NamedTuple):
    """The result of adding bytes to a buffer."""

    fresh: int
    """Number of bytes that were not there before."""
    covered: int
    """Number of bytes that were there."""
    differs: bool
    """Whether one of these has another value."""


class PieceBuffer:
    """Pieces that do not overlap, by offset."""

    __slots__ = ("_pieces", "_starts", "octets")

    def __init__(self) -> None:
        self._starts: list[int] = []
        """Offsets of the pieces, sorted."""
        self._pieces: dict[int, tuple[bytes, int]] = {}
        """Offset -> (bytes, frame)."""
        self.octets = 0
        """Bytes in all pieces."""

    def __len__(self) -> int:
        return len(self._starts)

    def __bool__(self) -> bool:
        """Return whether there are any pieces. Compiled, `__len__` alone would not decide that."""
        return bool(self._starts)

    @property
    def first(self) -> int:
        """Return the lowest offset. The buffer must not be empty."""
        return self._starts[0]

    def add(self, start: int, data: bytes, frame: int) -> Added:
        """Add those bytes of `data`, at offset `start` and from `frame`, that are not there yet."""
        starts, pieces = self._starts, self._pieces
        stop = start + len(data)
        # The previous piece may reach into these bytes.
        index = max(bisect_right(starts, start) - 1, 0)
        cursor, fresh, differs = start, 0, False
        new: list[int] = []
        for old_start in starts[index : bisect_right(starts, stop)]:
            old = pieces[old_start][0]
            old_stop = old_start + len(old)
            if old_stop <= cursor or old_start >= stop:
                continue
            if old_start > cursor:
                new.append(cursor)
                pieces[cursor] = (data[cursor - start : old_start - start], frame)
                fresh += old_start - cursor
                cursor = old_start
            common_stop = min(stop, old_stop)
            differs = differs or (
                old[cursor - old_start : common_stop - old_start]
                != data[cursor - start : common_stop - start]
            )
            cursor = common_stop
        if cursor < stop:
            new.append(cursor)
            pieces[cursor] = (data[cursor - start :], frame)
            fresh += stop - cursor
        for offset in new:
            insort(starts, offset)
        self.octets += fresh
        return Added(fresh, len(data) - fresh, differs)

    def pop_first(self) -> tuple[int, bytes, int]:
        """Remove and return the piece at the lowest offset as (offset, bytes, frame)."""
        start = self._starts.pop(0)
        data, frame = self._pieces.pop(start)
        self.octets -= len(data)
        return start, data, frame

    def drain(self) -> list[tuple[int, bytes, int]]:
        """Remove and return all pieces as (offset, bytes, frame), by offset."""
        drained = [(start, *self._pieces[start]) for start in self._starts]
        self._starts.clear()
        self._pieces.clear()
        self.octets = 0
        return drained
