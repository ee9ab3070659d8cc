"""Bytes at offsets, put together first copy first. Used for IP fragments and for TCP streams."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import NamedTuple

__all__ = ["Added", "PieceBuffer"]


class Added(NamedTuple):
    """What adding bytes to a buffer met."""

    fresh: int
    """Bytes that were not there before."""
    covered: int
    """Bytes that were there already."""
    differs: bool
    """True where some of those had another value."""


class PieceBuffer:
    """Pieces that do not overlap, by offset. The first copy of a byte stays."""

    __slots__ = ("_pieces", "_starts", "octets")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._pieces: dict[int, tuple[bytes, int]] = {}
        self.octets = 0
        """Bytes held."""

    def __len__(self) -> int:
        return len(self._starts)

    def __bool__(self) -> bool:
        """Return True where bytes are held; compiled, `__len__` alone would not say so."""
        return bool(self._starts)

    @property
    def first(self) -> int:
        """Return the lowest offset held; the buffer must not be empty."""
        return self._starts[0]

    def add(self, start: int, data: bytes, frame: int) -> Added:
        """Keep the bytes of `data` (at offset `start`, from `frame`) that are not held yet."""
        starts, pieces = self._starts, self._pieces
        stop = start + len(data)
        # The piece before may reach into these bytes.
        index = max(bisect_right(starts, start) - 1, 0)
        cursor, fresh, differs = start, 0, False
        new: list[int] = []
        for have in starts[index : bisect_right(starts, stop)]:
            held = pieces[have][0]
            have_stop = have + len(held)
            if have_stop <= cursor or have >= stop:
                continue
            if have > cursor:
                new.append(cursor)
                pieces[cursor] = (data[cursor - start : have - start], frame)
                fresh += have - cursor
                cursor = have
            common = min(stop, have_stop)
            differs = differs or (
                held[cursor - have : common - have] != data[cursor - start : common - start]
            )
            cursor = common
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
        """Remove and return all pieces, by offset."""
        drained = [(start, *self._pieces[start]) for start in self._starts]
        self._starts.clear()
        self._pieces.clear()
        self.octets = 0
        return drained
