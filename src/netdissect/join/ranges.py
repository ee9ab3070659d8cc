"""TCP by sequence ranges: a segment of one capture may be several of the other, cut or joined by a
network card or a router. What has no segment of its own there is looked for byte by byte.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import islice
from typing import Final

from netdissect.join.pairing import MAX_DELAY_NS, MAX_SLACK_NS
from netdissect.join.table import SENT_AGAIN, FateTable
from netdissect.model.joined import Fate

__all__ = ["MAX_RANGES", "Extent", "Ranges", "Sight"]

MAX_RANGES = 65_536
"""Segments without a segment of their own that wait; beyond, those at hand are settled."""
MAX_LOST: Final = 256
"""Latest lost segments of a channel that are recognised when they are sent again."""
_WRAP: Final = 1 << 32
_HALF: Final = 1 << 31
_LONGEST: Final = 65_536
"""No segment holds more bytes, even where a network card joins them."""

Extent = tuple[int, int]
"""(sequence number, bytes) of a TCP segment with data."""
Sight = tuple[int, int, int, Extent | None]
"""(common time, frame, lane, sequence numbers)."""
_Piece = tuple[int, int, Sight]
"""(first byte, byte after the last, sight)."""


class Ranges:
    """Segments of one channel that were not found as they are."""

    def __init__(self, sender: FateTable, receiver: FateTable) -> None:
        self._sender = sender
        self._receiver = receiver
        self._sent: list[_Piece] = []
        self._arrived: list[_Piece] = []
        self._base: int | None = None
        self._lost: deque[_Piece] = deque(maxlen=MAX_LOST)
        """Segments that did not arrive, latest last."""

    def missing(self, sight: Sight) -> None:
        """Take a segment that did not arrive as it is."""
        self._add(self._sent, sight)
        if sight[3] is not None:
            self._lost.append((*self._octets(sight[3]), sight))

    def sent(self, sight: Sight) -> None:
        """Take any segment, in order of time: what did not arrive and is in it was sent again."""
        if sight[3] is None or not self._lost:
            return
        first, end = self._octets(sight[3])
        # Equal numbers after a wrap of 4 GB are not among the latest 256.
        for low, high, lost in self._lost:
            if low < end and first < high and lost[0] < sight[0]:
                self._sender.flag(lost[1], SENT_AGAIN)

    def found(self, sight: Sight) -> None:
        """Take a segment that was not sent as it is."""
        self._add(self._arrived, sight)

    def _add(self, pieces: list[_Piece], sight: Sight) -> None:
        if sight[3] is None:
            return
        pieces.append((*self._octets(sight[3]), sight))
        if len(self._sent) + len(self._arrived) > MAX_RANGES:
            self.settle()

    def _octets(self, extent: Extent) -> tuple[int, int]:
        """Return (first byte, byte after the last), counted from the first segment."""
        if self._base is None:
            self._base = extent[0]
        # The first segment may have been overtaken: numbers up to 2**31 below it count as before
        # it.
        first = (extent[0] - self._base + _HALF) % _WRAP - _HALF
        return first, first + extent[1]

    def settle(self) -> None:
        """Find the bytes of what was sent in what arrived, and the other way round."""
        sent, arrived = self._sent, self._arrived
        self._sent, self._arrived = [], []
        if not sent or not arrived:
            return
        arrived.sort()
        sent.sort()
        for piece in sent:
            last = _covered(piece, arrived, later=True)
            if last is not None:
                self._set(self._sender, piece[2], Fate.DELIVERED, last)
        for piece in arrived:
            last = _covered(piece, sent, later=False)
            if last is not None:
                self._set(self._receiver, piece[2], Fate.ARRIVED, last)

    def _set(self, table: FateTable, sight: Sight, fate: Fate, partner: Sight) -> None:
        table.set(sight[1], fate, flags=0, lane=sight[2], partner=partner[1], common_ns=sight[0])


def _covered(piece: _Piece, others: list[_Piece], *, later: bool) -> Sight | None:
    """Return what holds the last byte of a piece, where others hold all of it at a time at which
    they may be the same bytes; else None.

    Args:
        piece: a segment.
        others: those of the other capture, in order of their first bytes.
        later: the others must come after it, not before.

    """
    first, end, sight = piece
    reached, last = first, None
    start = max(0, bisect_left(others, (first - _LONGEST,)))
    for low, high, other in islice(others, start, None):
        if low > reached or low >= end:
            break
        delay = other[0] - sight[0] if later else sight[0] - other[0]
        if high > reached and -MAX_SLACK_NS <= delay <= MAX_DELAY_NS:
            reached, last = high, other
    return last if reached >= end else None
