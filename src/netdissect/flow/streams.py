"""The TCP connections of a capture: finds that of a segment, and puts its data in order."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final

from netdissect.flow.codes import SNAPPED, joined
from netdissect.flow.ordering import MAX_AHEAD, Pool, Side
from netdissect.model.native import ABSENT
from netdissect.model.packets import ACK, FIN, RST, SEQ_SPAN, SYN, PacketKind, reverse_key
from netdissect.model.segments import StreamPiece, TcpSegment
from netdissect.model.sinks import PacketList, PacketSink

if TYPE_CHECKING:
    from mypy_extensions import i64

    from netdissect.flow.segments import SegmentHeader
    from netdissect.flow.stats import FlowStats
    from netdissect.model.packets import FlowKey, Packet

MAX_TCP_CONNECTIONS = 30_000
"""Connections that are kept; the longest idle is evicted for one more."""

_TCP: Final = PacketKind.TCP
_TCP_STREAM: Final = PacketKind.TCP_STREAM


class _Connection:
    """One TCP connection."""

    __slots__ = ("first", "frame", "mid_stream", "ordinal", "second", "time_ns")

    def __init__(self, key: FlowKey, way: FlowKey, ordinal: int, pool: Pool) -> None:
        self.ordinal = ordinal
        """Its place among the connections on the same addresses and ports, from 1."""
        self.first = Side(key, pool)
        """The side that sent the first segment."""
        self.second = Side(way, pool)
        """The other side."""
        self.mid_stream = True
        """True until a SYN of the connection is seen."""
        self.frame: i64 = 0
        """Frame of its last segment."""
        self.time_ns: i64 = 0
        """Time of that frame."""


class TcpStreams:
    """The TCP connections of a capture."""

    __slots__ = ("_count", "_idle", "_pool", "_sides", "_stats")

    def __init__(self, stats: FlowStats) -> None:
        self._stats = stats
        self._pool = Pool(stats)
        self._sides: dict[FlowKey, _Connection] = {}
        """Flow key of the first side -> connection. The key of the second side is added when it
        answers, which in a flood it never does.
        """
        self._count = 0
        """Number of connections."""
        self._idle: list[tuple[int, _Connection]] = []
        """(last frame, connection) of the candidates for eviction, the longest idle last. Those
        that have continued since are passed over.
        """

    def take(  # noqa: C901, PLR0912 - hot path: calls would cost more than what they do
        self,
        key: FlowKey,
        header: SegmentHeader,
        frame: i64,
        time_ns: i64,
        ip_id: int | None,
        into: PacketSink,
        faults: tuple[str, ...] = (),
    ) -> None:
        """Process one segment: pass on its packet, after any other that it releases.

        Args:
            key: flow key of the segment.
            header: its header and data.
            frame: frame number.
            time_ns: time of the frame.
            ip_id: identification of IPv4, if any.
            into: receives the packets.
            faults: fault codes found so far.

        """
        seq, ack, flags, window, payload, length, timestamps, sack = header
        connection = self._find(key, seq, ack, flags, frame, time_ns, into)
        side, peer = connection.first, connection.second
        if side.key != key:
            side, peer = peer, side
        connection.frame, connection.time_ns = frame, time_ns
        offset: i64 = 0
        pieces: tuple[StreamPiece, ...] = ()
        if side.base != ABSENT:
            # The SYN takes a sequence number: data in it (TCP Fast Open) begins with the next one.
            offset = side.offset(seq + 1 if flags & SYN else seq)
            # The data of an RST is an explanation (RFC 1122 section 4.2.2.12), not stream data.
            if not length or flags & RST:
                pass
            elif offset == side.next and side.buffer is None and length == len(payload):
                pieces = (side.release(offset, payload, frame),)
            else:
                ready, fault = side.take(offset, payload, length, frame)
                pieces = tuple(ready)
                if fault is not None:
                    faults = joined(faults, fault)
        if len(payload) < length:
            self._stats.snapped += 1
            faults = joined(faults, SNAPPED)
        # A FIN or ACK that is further ahead than any window is not of this connection.
        if flags & FIN and side.end == ABSENT and offset - side.next < MAX_AHEAD:
            side.end = offset + length
        if flags & ACK and peer.base != ABSENT:
            acked = peer.offset(ack)
            if peer.acked < acked <= peer.next + MAX_AHEAD:
                peer.acked = acked
        # The ACK may show that missing bytes did arrive, so that they were not captured.
        if peer.buffer is not None:
            _release(connection, peer, peer.release_acked(time_ns), into)
        if side.buffer is not None:
            pieces += tuple(side.release_acked(time_ns))
        self._stats.tcp += 1
        segment = TcpSegment(
            seq, ack, flags, window, length, ip_id, timestamps, sack, offset, connection.ordinal,
            pieces, connection.mid_stream,
        )  # fmt: skip
        if faults:
            into.packet((_TCP, frame, time_ns, key, payload, segment, faults))
        else:
            into.segment(frame, time_ns, key, payload, segment)

    def finish(self) -> list[Packet]:
        """Return the packets that are left at the end of the capture; remove all connections."""
        taken = PacketList()
        self._find_idle()
        while self._idle:
            _close(self._idle.pop()[1], taken)
        self._sides.clear()
        self._count = 0
        self._pool.forget()
        return taken.packets

    def _find(
        self, key: FlowKey, seq: int, ack: int, flags: int, frame: i64, time_ns: i64,
        into: PacketSink,
    ) -> _Connection:
        """Return the connection of a segment. A new SYN begins a new one."""
        connection = self._sides.get(key)
        if connection is None:
            way = reverse_key(key)
            connection = self._sides.get(way)
            if connection is None:
                connection = self._open(key, way, 1, frame, into)
            else:
                self._sides[key] = connection
        side, peer = connection.first, connection.second
        if side.key != key:
            side, peer = peer, side
        if flags & SYN:
            base = (seq + 1) % SEQ_SPAN
            # A SYN after other segments begins a new connection on the same ports, unless it is the
            # answer to the SYN of this one and was captured late.
            if side.base != ABSENT and side.base != base:  # noqa: PLR1714 - compiled
                answers = flags & ACK and peer.isn != ABSENT and ack == (peer.isn + 1) % SEQ_SPAN
                if not answers or side.isn != ABSENT:
                    connection.frame, connection.time_ns = frame, time_ns
                    _close(connection, into)
                    connection = self._open(key, peer.key, connection.ordinal + 1, frame, into)
                    side, peer = connection.first, connection.second
            connection.mid_stream = False
            if side.base != base:
                side.rebase(seq)
            side.isn = seq
            # If the peer's SYN was not captured, the answer still tells its sequence number.
            if flags & ACK and peer.base == ABSENT:
                peer.base = ack
        # Without its SYN a direction begins at the first captured byte. An RST may have any number.
        elif side.base == ABSENT and not flags & RST:
            side.base = seq
        return connection

    def _open(
        self, key: FlowKey, way: FlowKey, ordinal: int, frame: i64, into: PacketSink
    ) -> _Connection:
        """Return a new connection, and add it; evict another one if there are too many."""
        self._stats.tcp_connections += 1
        connection = _Connection(key, way, ordinal, self._pool)
        connection.frame = frame
        self._sides[key] = connection
        if ordinal > 1:
            self._sides[way] = connection
            return connection  # It has replaced one.
        self._count += 1
        if self._count > MAX_TCP_CONNECTIONS:
            self._evict(into)
        return connection

    def _evict(self, into: PacketSink) -> None:
        """Close and remove the connection that is idle for longest."""
        while True:
            if not self._idle:
                self._find_idle()
            frame, old = self._idle.pop()
            # Unless it has continued, or was replaced, since the list was made.
            if old.frame == frame and self._sides.get(old.first.key) is old:
                break
        self._count -= 1
        self._stats.tcp_evicted += 1
        _close(old, into)
        del self._sides[old.first.key]
        if old.second.key in self._sides:
            del self._sides[old.second.key]

    def _find_idle(self) -> None:
        """Sort all connections by their last frames. The list serves for as many evictions."""
        known = self._sides.items()
        self._idle = [(int(one.frame), one) for key, one in known if key == one.first.key]
        self._idle.sort(key=itemgetter(0), reverse=True)


def _close(connection: _Connection, into: PacketSink) -> None:
    """Release all data of a connection, at its last frame."""
    for side in (connection.first, connection.second):
        if not side.is_whole():
            _release(connection, side, side.finish(), into)


def _release(
    connection: _Connection, side: Side, pieces: list[StreamPiece], into: PacketSink
) -> None:
    """Pass on the pieces of a direction that were not released by a segment of that direction."""
    if not pieces:
        return
    offset = pieces[0].offset
    base = 0 if side.base == ABSENT else side.base
    segment = TcpSegment(
        seq=(base + offset) % SEQ_SPAN,
        ack=0,
        flags=0,
        window=0,
        payload_length=0,
        ip_id=None,
        timestamps=None,
        sack=(),
        stream_start=offset,
        connection=connection.ordinal,
        stream=tuple(pieces),
        mid_stream=connection.mid_stream,
    )
    into.packet(
        (_TCP_STREAM, connection.frame, connection.time_ns, side.key, b"", segment, ())
    )
