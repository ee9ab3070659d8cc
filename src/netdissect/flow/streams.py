"""The TCP connections of a capture: which segment belongs to which, and what it makes readable."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from netdissect.flow.codes import SNAPPED, joined
from netdissect.flow.ordering import MAX_AHEAD, Pool, Side
from netdissect.model.packets import ACK, FIN, RST, SYN, PacketKind, reverse_key
from netdissect.model.segments import TcpSegment

if TYPE_CHECKING:
    from netdissect.flow.segments import SegmentHeader
    from netdissect.flow.stats import FlowStats
    from netdissect.model.packets import FlowKey, Packet
    from netdissect.model.segments import StreamPiece

__all__ = ["MAX_TCP_CONNECTIONS", "TcpStreams"]

MAX_TCP_CONNECTIONS = 30_000
"""Connections kept; the longest idle is forgotten for one more."""

_WRAP: Final = 1 << 32
_TCP: Final = PacketKind.TCP
_TCP_STREAM: Final = PacketKind.TCP_STREAM


class _Connection:
    """One TCP connection."""

    __slots__ = ("frame", "key", "mid_stream", "ordinal", "sides", "time_ns")

    def __init__(self, key: FlowKey, ordinal: int, pool: Pool) -> None:
        self.key = key
        """Flow key of its first segment: its name in the table."""
        self.ordinal = ordinal
        """Counts the connections on its addresses and ports, from 1."""
        self.sides = (Side(key, pool), Side(reverse_key(key), pool))
        self.mid_stream = True
        """True while no SYN of it was seen."""
        self.frame = 0
        """Its latest frame."""
        self.time_ns = 0
        """Time of that frame."""


class TcpStreams:
    """The TCP connections of a capture, longest idle first."""

    __slots__ = ("_connections", "_pool", "_sides", "_stats")

    def __init__(self, stats: FlowStats) -> None:
        self._stats = stats
        self._pool = Pool(stats)
        self._connections: OrderedDict[FlowKey, _Connection] = OrderedDict()
        self._sides: dict[FlowKey, tuple[_Connection, Side, Side]] = {}

    def take(
        self,
        key: FlowKey,
        header: SegmentHeader,
        frame: int,
        time_ns: int,
        ip_id: int | None,
        *,
        faults: tuple[str, ...],
    ) -> list[Packet]:
        """Return the packet of one segment, behind whatever else it released."""
        seq, ack, flags, window, payload, length, timestamps, sack = header
        out: list[Packet] = []
        connection, side, peer = self._find(key, header, frame, time_ns, out)
        connection.frame, connection.time_ns = frame, time_ns
        offset = 0
        if side.base is not None:
            offset = side.offset(seq + 1 if flags & SYN else seq)
        pieces: list[StreamPiece] = []
        if length and side.base is not None and not flags & RST:
            pieces, fault = side.take(offset, payload, length, frame)
            if fault is not None:
                faults = joined(faults, fault)
        if len(payload) < length:
            self._stats.snapped += 1
            faults = joined(faults, SNAPPED)
        if flags & FIN and side.end is None and offset - side.next < MAX_AHEAD:
            side.end = offset + length
        if flags & ACK and peer.base is not None:
            _acknowledge(peer, ack)
        if peer.buffer:
            _release(connection, peer, peer.release_acked(time_ns), out)
        if side.buffer:
            pieces += side.release_acked(time_ns)
        self._stats.tcp += 1
        segment = TcpSegment(
            seq, ack, flags, window, length, ip_id, timestamps, sack, offset, connection.ordinal,
            tuple(pieces), connection.mid_stream,
        )  # fmt: skip
        out.append((_TCP, frame, time_ns, key, payload, segment, faults))
        return out

    def finish(self) -> list[Packet]:
        """Return what is still held at the end of the capture, and forget all connections."""
        out: list[Packet] = []
        for connection in self._connections.values():
            _close(connection, out)
        self._connections.clear()
        self._sides.clear()
        return out

    def _find(
        self, key: FlowKey, header: SegmentHeader, frame: int, time_ns: int, out: list[Packet]
    ) -> tuple[_Connection, Side, Side]:
        """Return (connection, side of the sender, other side). A new SYN begins a new one."""
        found = self._sides.get(key)
        if found is None:
            found = self._open(key, 1, out)
        else:
            self._connections.move_to_end(found[0].key)
        connection, side, peer = found
        seq, ack, flags, _, _, _, _, _ = header
        if flags & SYN:
            if side.base is not None and side.base != (seq + 1) % _WRAP:
                answers = flags & ACK and peer.isn is not None and ack == (peer.isn + 1) % _WRAP
                if not answers or side.isn is not None:
                    connection.frame, connection.time_ns = frame, time_ns
                    _close(connection, out)
                    del self._connections[connection.key]
                    found = self._open(key, connection.ordinal + 1, out)
                    connection, side, peer = found
            connection.mid_stream = False
            if side.base != (seq + 1) % _WRAP:
                side.rebase(seq)
            side.isn = seq
            if flags & ACK and peer.base is None:
                peer.base = ack
        elif side.base is None and not flags & RST:
            side.base = seq
        return found

    def _open(
        self, key: FlowKey, ordinal: int, out: list[Packet]
    ) -> tuple[_Connection, Side, Side]:
        self._stats.tcp_connections += 1
        connection = _Connection(key, ordinal, self._pool)
        first, second = connection.sides
        self._connections[key] = connection
        self._sides[second.key] = (connection, second, first)
        found = self._sides[key] = (connection, first, second)
        if len(self._connections) > MAX_TCP_CONNECTIONS:
            _, old = self._connections.popitem(last=False)
            self._stats.tcp_evicted += 1
            _close(old, out)
            for side in old.sides:
                self._sides.pop(side.key, None)
        return found


def _acknowledge(side: Side, ack: int) -> None:
    """Note what the peer of `side` acknowledges."""
    offset = side.offset(ack)
    if side.acked < offset <= side.next + MAX_AHEAD:
        side.acked = offset


def _close(connection: _Connection, out: list[Packet]) -> None:
    """Release all that a connection holds, at its latest frame."""
    for side in connection.sides:
        _release(connection, side, side.finish(), out)


def _release(
    connection: _Connection, side: Side, pieces: list[StreamPiece], out: list[Packet]
) -> None:
    """Add the pieces of a direction that no segment of its own released."""
    if not pieces:
        return
    offset = pieces[0].offset
    segment = TcpSegment(
        seq=((side.base or 0) + offset) % _WRAP,
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
    out.append((_TCP_STREAM, connection.frame, connection.time_ns, side.key, b"", segment, ()))
