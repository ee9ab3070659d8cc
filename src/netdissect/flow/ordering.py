"""Puts the data of one direction of a TCP connection in order, and marks gaps.

Offsets do not wrap around. Offset 0 is that of the byte after the SYN, or of the first captured
byte if the SYN is not in the capture. The first copy of a byte counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from netdissect.flow.codes import TCP_OUT_OF_WINDOW, TCP_OVERLAP
from netdissect.flow.pieces import PieceBuffer
from netdissect.model.native import ABSENT, i64, vec
from netdissect.model.packets import HALF_SEQ_SPAN, SEQ_SPAN
from netdissect.model.segments import StreamPiece

if TYPE_CHECKING:
    from netdissect.flow.stats import FlowStats

MAX_STREAM_OCTETS = 4 * 1024 * 1024
"""Bytes that one direction buffers behind gaps; beyond, it gives up its first gap."""
MAX_STREAM_PIECES = 4096
"""Pieces that one direction buffers behind gaps; beyond, it gives up its first gap."""
MAX_BUFFERED_OCTETS = 64 * 1024 * 1024
"""Bytes (PIECE_COST included) that all directions buffer together; the direction that exceeds the
bound gives up its gaps.
"""
PIECE_COST: Final = 256
"""Bytes that one piece is counted for in addition to its data."""
ACKED_GAP_GRACE_NS: Final = 20_000_000
"""Time after which a gap that the receiver has acknowledged is given up. Until then its bytes may
be captured late.
"""
MAX_HISTORY_OCTETS = 8 * 1024 * 1024
"""Bytes (PIECE_COST included) of released data that are kept for all directions together, to
compare retransmissions with.
"""
MAX_HISTORY_COMPARED: Final = 64
"""Most recent pieces of a direction that a retransmission is compared with."""
MAX_AHEAD: Final = 1 << 30
"""Size of the largest window, bytes. Source: RFC 7323 section 2.3."""

_INITIAL_ROOM: Final = 64
"""Pieces that the history has room for at first; a power of two."""
_ROW: Final = 2
"""Numbers in a row of the history."""


class Pool:
    """What all directions share: the counters, the bound of buffers, and released data.

    Released pieces are numbered, and the newest of them are kept in a ring buffer.
    """

    __slots__ = ("_data", "_next", "_octets", "_oldest", "_rows", "buffered", "stats")

    def __init__(self, stats: FlowStats) -> None:
        self.stats = stats
        self.buffered = 0
        """Bytes that all directions buffer, PIECE_COST included."""
        self._oldest: i64 = 0
        """Number of the oldest piece in the ring."""
        self._next: i64 = 0
        """Number of the next piece."""
        self._octets: i64 = 0
        """Bytes of the pieces in the ring, PIECE_COST included."""
        self._data = [b""] * _INITIAL_ROOM
        """Slot -> bytes of the piece."""
        self._rows = vec[i64]([0] * (_INITIAL_ROOM * _ROW))
        """Slot * _ROW -> offset of the piece, number of the previous piece of its direction."""

    def remember(self, side: Side, offset: i64, data: bytes) -> None:
        """Add a piece that was just released, and drop the oldest ones."""
        number = self._next
        if number - self._oldest == len(self._data):
            self._grow()
        pieces, rows = self._data, self._rows
        mask: i64 = len(pieces) - 1
        slot = number & mask
        pieces[slot] = data
        rows[slot * _ROW] = offset
        rows[slot * _ROW + 1] = side.newest
        side.newest = number
        self._next = number + 1
        octets = self._octets + len(data) + PIECE_COST
        while octets > MAX_HISTORY_OCTETS:
            slot = self._oldest & mask
            octets -= len(pieces[slot]) + PIECE_COST
            pieces[slot] = b""
            self._oldest += 1
        self._octets = octets

    def _grow(self) -> None:
        """Double the size of the ring."""
        pieces, rows = self._data, self._rows
        mask: i64 = len(pieces) - 1
        self._data = [b""] * (2 * len(pieces))
        self._rows = vec[i64]([0] * (2 * len(rows)))
        number = self._oldest
        while number < self._next:
            old, new = number & mask, number & (2 * mask + 1)
            self._data[new] = pieces[old]
            self._rows[new * _ROW] = rows[old * _ROW]
            self._rows[new * _ROW + 1] = rows[old * _ROW + 1]
            number += 1

    def differs(self, side: Side, offset: i64, data: bytes) -> bool:
        """Return whether retransmitted bytes differ from those that were released."""
        end = offset + len(data)
        mask: i64 = len(self._data) - 1
        number, left = side.newest, MAX_HISTORY_COMPARED
        while number >= self._oldest and left:
            slot = number & mask
            start, old = self._rows[slot * _ROW], self._data[slot]
            low, high = max(start, offset), min(start + len(old), end)
            if low < high and old[low - start : high - start] != data[low - offset : high - offset]:
                return True
            # All earlier pieces end before these bytes.
            if start <= offset:
                break
            number, left = self._rows[slot * _ROW + 1], left - 1
        return False

    def forget(self) -> None:
        """Drop all released data."""
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
        """Sequence number of its SYN; ABSENT if that was not captured."""
        self.base: i64 = ABSENT
        """Sequence number of offset 0; ABSENT before its first segment."""
        self.next: i64 = 0
        """Offset of the next byte to release."""
        self.acked: i64 = 0
        """Offset up to which the peer has acknowledged the stream."""
        self.end: i64 = ABSENT
        """Offset of its FIN."""
        self.buffer: PieceBuffer | None = None
        """Bytes behind a gap; None if there is no gap."""
        self.newest: i64 = -1
        """Number in `Pool` of the piece that was released last."""
        self._gap: i64 = 0
        """Missing bytes before the next piece."""
        self._gap_since_ns: i64 = ABSENT
        """Time at which the gap at `next` was first known to be acknowledged."""

    def offset(self, wire: i64) -> i64:
        """Return the offset of a sequence number: the one that is nearest to `next`."""
        near = self.next if self.base == ABSENT else self.next + self.base
        return self.next + ((wire - near + HALF_SEQ_SPAN) & SEQ_SPAN - 1) - HALF_SEQ_SPAN

    def rebase(self, isn: i64) -> None:
        """Restart the stream at the byte after the SYN numbered `isn`."""
        self._drop_buffer()
        self.isn, self.base = isn, (isn + 1) & SEQ_SPAN - 1
        self.next, self.acked, self.end, self._gap = 0, 0, ABSENT, 0

    def take(
        self, offset: i64, data: bytes, length: i64, frame: i64
    ) -> tuple[list[StreamPiece], str | None]:
        """Add the data of a segment; return (pieces that it releases, fault code or None).

        Args:
            offset: offset of its first byte.
            data: the captured bytes.
            length: size on the wire; the bytes behind `data` are a gap that is never filled.
            frame: frame number.

        """
        if offset - self.next > MAX_AHEAD:
            self._pool.stats.tcp_out_of_window += 1
            return [], TCP_OUT_OF_WINDOW
        if length == 1 and offset == self.next - 1:
            return [], None  # A keep-alive, whose byte has no meaning (RFC 9293 section 3.8.4).
        differs = False
        end, stop = offset + len(data), offset + length
        if offset < self.next:
            differs = self._pool.differs(self, offset, data)
            data, offset = data[self.next - offset :], self.next
        if data:
            differs = self._buffer(offset, data, frame) or differs
        pieces = self._release()
        # The segment is cut by the snap length: the rest was not captured.
        if stop > end and self.next == end:
            self._skip_to(stop if self.buffer is None else min(stop, self.buffer.first))
            pieces += self._release()
        pieces += self._enforce_bounds()
        if differs:
            self._pool.stats.tcp_overlaps += 1
        return pieces, TCP_OVERLAP if differs else None

    def release_acked(self, time_ns: i64) -> list[StreamPiece]:
        """Give up gaps that the peer acknowledged some time ago; return the pieces behind them.

        The missing bytes did arrive, but were not captured.
        """
        if self.acked <= self.next or not self._has_gap():
            return []
        if self._gap_since_ns == ABSENT:
            self._gap_since_ns = time_ns
        if time_ns - self._gap_since_ns < ACKED_GAP_GRACE_NS:
            return []
        pieces: list[StreamPiece] = []
        while self.acked > self.next and self._has_gap():
            pieces += self._give_up_gap()
        return pieces

    def _has_gap(self) -> bool:
        """Return whether bytes are buffered behind a gap.

        A call is needed: after a test, compiled code assumes that the attribute stays not None.
        """
        return self.buffer is not None

    def is_whole(self) -> bool:
        """Return whether `finish` would return nothing."""
        return self.buffer is None and self.end <= self.next and not self._gap

    def finish(self) -> list[StreamPiece]:
        """Give up all gaps, at the end of the stream; return the pieces behind them."""
        pieces: list[StreamPiece] = []
        while self.buffer is not None:
            pieces += self._give_up_gap()
        # The bytes before a FIN were sent, but not captured.
        if self.end > self.next:
            self._skip_to(self.end)
        # No other piece follows that could carry the gap.
        if self._gap:
            pieces.append(StreamPiece(self.next, b"", (), self._gap))
            self._gap = 0
        return pieces

    def release(self, offset: i64, data: bytes, frame: i64) -> StreamPiece:
        """Return the bytes at `next` as a piece. Nothing may be buffered at this offset."""
        self.next = offset + len(data)
        self._pool.remember(self, offset, data)
        gap, self._gap = self._gap, 0
        return StreamPiece(offset, data, (frame,), gap)

    def _release(self) -> list[StreamPiece]:
        """Return the buffered pieces that are next."""
        pieces: list[StreamPiece] = []
        buffer = self.buffer
        while buffer is not None and buffer.first == self.next:
            offset, data, frame = buffer.pop_first()
            self._pool.buffered -= len(data) + PIECE_COST
            pieces.append(self.release(offset, data, frame))
            if not buffer:
                buffer = self.buffer = None
        if pieces:
            self._gap_since_ns = ABSENT
        return pieces

    def _buffer(self, offset: i64, data: bytes, frame: i64) -> bool:
        """Buffer bytes; return whether some of them were buffered with other values."""
        if self.buffer is None:
            self.buffer = PieceBuffer()
        before = len(self.buffer)
        added = self.buffer.add(offset, data, frame)
        self._pool.buffered += added.fresh + PIECE_COST * (len(self.buffer) - before)
        return added.differs

    def _enforce_bounds(self) -> list[StreamPiece]:
        """Give up gaps until the bounds are kept; return the pieces behind them."""
        pieces: list[StreamPiece] = []
        while self.buffer is not None and (
            self.buffer.octets > MAX_STREAM_OCTETS
            or len(self.buffer) > MAX_STREAM_PIECES
            or self._pool.buffered > MAX_BUFFERED_OCTETS
        ):
            self._pool.stats.tcp_gaps_by_bound += 1
            pieces += self._give_up_gap()
        return pieces

    def _give_up_gap(self) -> list[StreamPiece]:
        """Skip the gap at `next`, and return the pieces behind it. There must be a gap."""
        if self.buffer is not None:
            self._skip_to(self.buffer.first)
        return self._release()

    def _skip_to(self, offset: i64) -> None:
        """Count the bytes from `next` to an offset as missing."""
        missing = offset - self.next
        self._gap += missing
        self.next = offset
        self._pool.stats.tcp_gaps += 1
        self._pool.stats.tcp_gap_octets += missing

    def _drop_buffer(self) -> None:
        if self.buffer is not None:
            self._pool.buffered -= self.buffer.octets + PIECE_COST * len(self.buffer)
        self.buffer = None
