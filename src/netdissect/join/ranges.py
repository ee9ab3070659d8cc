"""Matches TCP segments by their sequence numbers where they do not match as a whole.

A network card or a router may split or coalesce segments, so that one segment of a capture is
several in the other. Such segments are matched byte by byte.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from typing import Final

from netdissect.join.pairing import MAX_DELAY_NS, MAX_SLACK_NS
from netdissect.join.table import AMBIGUOUS, RESENT, FateTable
from netdissect.model.joined import Fate
from netdissect.model.packets import HALF_SEQ_SPAN, SEQ_SPAN

MAX_RANGES = 65_536
"""Unmatched segments that wait; beyond, those at hand are settled."""
MAX_LOST: Final = 256
"""Latest lost segments of a channel that are recognised when their bytes are sent again."""
_LONGEST: Final = 65_536
"""Bytes of a segment at most, even if a network card coalesces segments."""

Extent = tuple[int, int]
"""(sequence number, bytes) of a TCP segment with data."""
Segment = tuple[int, int, int, Extent]
"""(common time, frame, lane, extent)."""
_Piece = tuple[int, int, Segment]
"""(first byte, byte after the last, segment)."""


class Ranges:
    """The segments of one channel that do not match as a whole.

    Args:
        sender: the fates of the capture next to the sender.
        receiver: those of the other capture.
        longest_ns: the longest usual delay. What seems to have taken longer may as well be bytes
            that were sent again, which the first capture missed.

    """

    def __init__(self, sender: FateTable, receiver: FateTable, longest_ns: int) -> None:
        self._sender = sender
        self._receiver = receiver
        self._longest_ns = longest_ns
        self._missing: list[_Piece] = []
        self._appeared: list[_Piece] = []
        self._base: int | None = None
        """Sequence number from which bytes are counted."""
        self._lost: list[_Piece] = []
        """Segments that did not arrive as a whole, latest last. No deque: an empty one takes ten
        times as much memory, and there may be 100,000 channels.
        """

    def missing(self, segment: Segment) -> None:
        """Add a segment that was sent and did not arrive as a whole."""
        self._lost.append(self._add(self._missing, segment))
        if len(self._lost) > MAX_LOST:
            del self._lost[0]

    def appeared(self, segment: Segment) -> None:
        """Add a segment that arrived and was not sent as a whole."""
        self._add(self._appeared, segment)

    def sent(self, segment: Segment) -> None:
        """Flag lost segments whose bytes are in this later one as sent again."""
        if not self._lost:
            return
        first, end = self._octets(segment[3])
        # Equal numbers after a wrap of 4 GB cannot be among the latest 256.
        for low, high, lost in self._lost:
            if low < end and first < high and lost[0] < segment[0]:
                self._sender.add_flags(lost[1], RESENT)

    def _add(self, pieces: list[_Piece], segment: Segment) -> _Piece:
        piece = (*self._octets(segment[3]), segment)
        pieces.append(piece)
        if len(self._missing) + len(self._appeared) > MAX_RANGES:
            self.settle()
        return piece

    def _octets(self, extent: Extent) -> tuple[int, int]:
        """Return (first byte, byte after the last), counted from the first segment seen."""
        if self._base is None:
            self._base = extent[0]
        # The first segment seen may have been overtaken: up to 2**31 below it count as before it.
        first = (extent[0] - self._base + HALF_SEQ_SPAN) % SEQ_SPAN - HALF_SEQ_SPAN
        return first, first + extent[1]

    def settle(self) -> None:
        """Match the bytes of the missing segments with those that appeared, in both directions."""
        missing, appeared = self._missing, self._appeared
        self._missing, self._appeared = [], []
        if not missing or not appeared:
            return
        appeared.sort()
        missing.sort()
        for piece in missing:
            last = _covered_by(piece, appeared, later=True)
            if last is not None:
                self._set(self._sender, piece[2], Fate.DELIVERED, last)
        for piece in appeared:
            last = _covered_by(piece, missing, later=False)
            if last is not None:
                self._set(self._receiver, piece[2], Fate.ARRIVED, last)

    def _set(self, table: FateTable, segment: Segment, fate: Fate, partner: Segment) -> None:
        common_ns, frame, lane, _ = segment
        flags = AMBIGUOUS if abs(partner[0] - common_ns) > self._longest_ns else 0
        table.set(frame, fate, flags=flags, lane=lane, partner=partner[1], common_ns=common_ns)


def _covered_by(piece: _Piece, others: list[_Piece], *, later: bool) -> Segment | None:
    """Return the segment with the last byte of a piece, if others hold all of its bytes at times at
    which they can be the same bytes; else None.

    Args:
        piece: a segment.
        others: segments of the other capture, in order of their first bytes.
        later: whether the others must come after it, rather than before.

    """
    first, end, segment = piece
    reached, last = first, None
    start = max(0, bisect_left(others, (first - _LONGEST,)))
    for low, high, other in islice(others, start, None):
        # A gap: no later segment can hold the byte at `reached`.
        if low > reached or low >= end:
            break
        if (low, high) == (first, end):
            continue  # the same bytes sent again: as one segment, it would have matched
        delay = other[0] - segment[0] if later else segment[0] - other[0]
        if high > reached and -MAX_SLACK_NS <= delay <= MAX_DELAY_NS:
            reached, last = high, other
    return last if reached >= end else None
