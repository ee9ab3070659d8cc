"""One direction of a TCP connection: bytes put in order once, gaps marked and never filled.

Offsets are extended (they do not wrap): 0 is the byte after the SYN, or the first byte seen where
the SYN is not in the capture. The first copy of a byte stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from netdissect.flow.codes import TCP_OUT_OF_WINDOW, TCP_OVERLAP
from netdissect.flow.pieces import PieceBuffer
from netdissect.model.native import ABSENT, i64, vec
from netdissect.model.segments import StreamPiece

if TYPE_CHECKING:
    from netdissect.flow.stats import FlowStats

__all__ = [
    "ACKED_GAP_GRACE_NS",
    "MAX_AHEAD",
    "MAX_BUFFERED_OCTETS",
    "MAX_HISTORY_COMPARED",
    "MAX_HISTORY_OCTETS",
    "MAX_STREAM_OCTETS",
    "MAX_STREAM_PIECES",
    "PIECE_COST",
    "Pool",
    "Side",
]

MAX_STREAM_OCTETS = 4 * 1024 * 1024
"""Bytes that one direction holds behind a gap; more gives the gap up."""
MAX_STREAM_PIECES = 4096
"""Pieces that one direction holds behind gaps; more gives the first gap up."""
MAX_BUFFERED_OCTETS = 64 * 1024 * 1024
"""Bytes (PIECE_COST included) that all directions hold behind gaps; the one that passes it gives
its gaps up.
"""
PIECE_COST: Final = 256
"""What a piece costs beside its bytes, in bytes, as the bounds count it."""
ACKED_GAP_GRACE_NS: Final = 20_000_000
"""A gap that the receiver has acknowledged is given up after this time: until then its bytes may
only be captured late.
"""
MAX_HISTORY_OCTETS = 8 * 1024 * 1024
"""Bytes (PIECE_COST included) already handed on that all directions keep, to compare
retransmissions with.
"""
MAX_HISTORY_COMPARED = 64
"""Latest pieces of a direction's history that one retransmission is compared with."""
MAX_AHEAD = 1 << 30
"""No window reaches further ahead than this. Source: RFC 7323 section 2.3."""

_LAST: Final = 0xFFFF_FFFF
_HALF: Final = 0x8000_0000
"""The largest wire sequence number, and half of how many there are."""
_FEW: Final = 64
_ROW: Final = 2
"""Pieces that the history has room for at first, a power of two, and numbers that tell of each."""


class Pool:
    """What all directions share: the counters, and the bytes that they hold together.

    Pieces handed on are numbered, and kept in a ring: what is older than the oldest one is gone.
    """

    __slots__ = ("_data", "_next", "_octets", "_oldest", "_rows", "buffered", "stats")

    def __init__(self, stats: FlowStats) -> None:
        self.stats = stats
        self.buffered = 0
        """Bytes held behind gaps, PIECE_COST included."""
        self._oldest: i64 = 0
        self._next: i64 = 0
        """Number of the oldest piece, and of the next one."""
        self._octets: i64 = 0
        self._data = [b""] * _FEW
        self._rows = vec[i64]([0] * (_FEW * _ROW))
        """Of each its offset, and the number of the one before it in its direction."""

    def remember(self, side: Side, offset: i64, data: bytes) -> None:
        """Keep bytes just handed on, and let the oldest go."""
        number = self._next
        if number - self._oldest == len(self._data):
            self._grow()
        kept, rows = self._data, self._rows
        last: i64 = len(kept) - 1
        place = number & last
        kept[place] = data
        rows[place * _ROW] = offset
        rows[place * _ROW + 1] = side.newest
        side.newest = number
        self._next = number + 1
        octets = self._octets + len(data) + PIECE_COST
        while octets > MAX_HISTORY_OCTETS:
            place = self._oldest & last
            octets -= len(kept[place]) + PIECE_COST
            kept[place] = b""
            self._oldest += 1
        self._octets = octets

    def _grow(self) -> None:
        """Make the ring twice as large."""
        kept, rows = self._data, self._rows
        last: i64 = len(kept) - 1
        self._data = [b""] * (2 * len(kept))
        self._rows = vec[i64]([0] * (2 * len(rows)))
        number = self._oldest
        while number < self._next:
            place, at = number & last, number & (2 * last + 1)
            self._data[at] = kept[place]
            self._rows[at * _ROW] = rows[place * _ROW]
            self._rows[at * _ROW + 1] = rows[place * _ROW + 1]
            number += 1

    def differs(self, side: Side, offset: i64, data: bytes) -> bool:
        """Return whether bytes already handed on are now sent with other values."""
        end = offset + len(data)
        last: i64 = len(self._data) - 1
        number, left = side.newest, MAX_HISTORY_COMPARED
        while number >= self._oldest and left:
            place = number & last
            have, held = self._rows[place * _ROW], self._data[place]
            low, high = max(have, offset), min(have + len(held), end)
            if low < high and held[low - have : high - have] != data[low - offset : high - offset]:
                return True
            # All before it lies further ahead in the stream's past.
            if have <= offset:
                break
            number, left = self._rows[place * _ROW + 1], left - 1
        return False

    def forget(self) -> None:
        """Let go of all that was handed on."""
        self._oldest = self._next
        self._octets = 0
        self._data = [b""] * len(self._data)


class Side:
    """One direction of a connection."""

    __slots__ = (
        "_gap",
        "_gap_since_ns",
        "_pool",
        "acked",
        "base",
        "buffer",
        "end",
        "isn",
        "key",
        "newest",
        "next",
    )

    def __init__(self, key: bytes, pool: Pool) -> None:
        self._pool = pool
        self.key = key
        """Flow key of its segments."""
        self.isn: i64 = ABSENT
        """Sequence number of its SYN; ABSENT where that was not seen."""
        self.base: i64 = ABSENT
        """Wire sequence number of offset 0; ABSENT before its first segment."""
        self.next: i64 = 0
        """Offset of the next byte to hand on."""
        self.acked: i64 = 0
        """Offset up to which the peer has acknowledged it."""
        self.end: i64 = ABSENT
        """Offset of its FIN."""
        self.buffer: PieceBuffer | None = None
        """Bytes behind a gap; None without any."""
        self.newest: i64 = -1
        """Number of the piece handed on last, as `Pool` has it."""
        self._gap: i64 = 0
        """Bytes skipped since the last piece."""
        self._gap_since_ns: i64 = ABSENT
        """When the gap at `next` was first seen to be acknowledged."""

    def offset(self, wire: i64) -> i64:
        """Return the extended offset of a wire sequence number: the one nearest to `next`."""
        near = self.next if self.base == ABSENT else self.next + self.base
        return self.next + ((wire - near + _HALF) & _LAST) - _HALF

    def rebase(self, isn: i64) -> None:
        """Start the stream at the byte after the SYN numbered `isn`."""
        self._drop_buffer()
        self.isn, self.base = isn, (isn + 1) & _LAST
        self.next, self.acked, self.end, self._gap = 0, 0, ABSENT, 0

    def take(
        self, offset: i64, data: bytes, length: i64, frame: i64
    ) -> tuple[list[StreamPiece], str | None]:
        """Take a segment's data in; return what became readable, and a fault code or None.

        Args:
            offset: extended offset of its first byte.
            data: the captured bytes.
            length: bytes on the wire; those beyond `data` are a gap that nothing can fill.
            frame: frame number.

        """
        if offset - self.next > MAX_AHEAD:
            self._pool.stats.tcp_out_of_window += 1
            return [], TCP_OUT_OF_WINDOW
        if length == 1 and offset == self.next - 1:
            return [], None  # A keep-alive: its byte is meaningless (RFC 9293 section 3.8.4).
        differs = False
        end, stop = offset + len(data), offset + length
        if offset < self.next:
            differs = self._pool.differs(self, offset, data)
            data, offset = data[self.next - offset :], self.next
        if data:
            differs = self._hold(offset, data, frame) or differs
        pieces = self._ready()
        # Cut by the snap length: nothing will ever fill the rest.
        if stop > end and self.next == end:
            self._skip_to(stop if self.buffer is None else min(stop, self.buffer.first))
            pieces += self._ready()
        pieces += self._keep_bounds()
        if differs:
            self._pool.stats.tcp_overlaps += 1
        return pieces, TCP_OVERLAP if differs else None

    def release_acked(self, time_ns: i64) -> list[StreamPiece]:
        """Give up the gaps that the peer acknowledged some time ago: their bytes were not
        captured.
        """
        if self.acked <= self.next or not self._holds():
            return []
        if self._gap_since_ns == ABSENT:
            self._gap_since_ns = time_ns
        if time_ns - self._gap_since_ns < ACKED_GAP_GRACE_NS:
            return []
        pieces: list[StreamPiece] = []
        while self.acked > self.next and self._holds():
            pieces += self._give_up()
        return pieces

    def _holds(self) -> bool:
        """Return whether anything waits behind a gap.

        Asked anew each time: tested once, the attribute is compiled as if it could not become None.
        """
        return self.buffer is not None

    def finish(self) -> list[StreamPiece]:
        """Give up every gap, at the end of the connection or of the capture."""
        pieces: list[StreamPiece] = []
        while self.buffer is not None:
            pieces += self._give_up()
        # Bytes before a FIN were sent; these were not captured.
        if self.end > self.next:
            self._skip_to(self.end)
        # No further piece will carry the gap.
        if self._gap:
            pieces.append(StreamPiece(self.next, b"", (), self._gap))
            self._gap = 0
        return pieces

    def hand_on(self, offset: i64, data: bytes, frame: i64) -> StreamPiece:
        """Return the bytes at `next` as readable; nothing may be held."""
        self.next = offset + len(data)
        self._pool.remember(self, offset, data)
        gap, self._gap = self._gap, 0
        return StreamPiece(offset, data, (frame,), gap)

    def _ready(self) -> list[StreamPiece]:
        """Hand on what is held at `next`."""
        pieces: list[StreamPiece] = []
        buffer = self.buffer
        while buffer is not None and buffer.first == self.next:
            offset, data, frame = buffer.pop_first()
            self._pool.buffered -= len(data) + PIECE_COST
            pieces.append(self.hand_on(offset, data, frame))
            if not buffer:
                buffer = self.buffer = None
        if pieces:
            self._gap_since_ns = ABSENT
        return pieces

    def _hold(self, offset: i64, data: bytes, frame: i64) -> bool:
        """Keep bytes; return whether some were held with other values."""
        if self.buffer is None:
            self.buffer = PieceBuffer()
        before = len(self.buffer)
        added = self.buffer.add(offset, data, frame)
        self._pool.buffered += added.fresh + PIECE_COST * (len(self.buffer) - before)
        return added.differs

    def _keep_bounds(self) -> list[StreamPiece]:
        pieces: list[StreamPiece] = []
        while self.buffer is not None and (
            self.buffer.octets > MAX_STREAM_OCTETS
            or len(self.buffer) > MAX_STREAM_PIECES
            or self._pool.buffered > MAX_BUFFERED_OCTETS
        ):
            self._pool.stats.tcp_gaps_by_bound += 1
            pieces += self._give_up()
        return pieces

    def _give_up(self) -> list[StreamPiece]:
        """Skip the gap before the first piece held, which there must be."""
        if self.buffer is not None:
            self._skip_to(self.buffer.first)
        return self._ready()

    def _skip_to(self, offset: i64) -> None:
        missing = offset - self.next
        self._gap += missing
        self.next = offset
        self._pool.stats.tcp_gaps += 1
        self._pool.stats.tcp_gap_octets += missing

    def _drop_buffer(self) -> None:
        if self.buffer is not None:
            self._pool.buffered -= self.buffer.octets + PIECE_COST * len(self.buffer)
        self.buffer = None
