"""TCP in the pipeline: tracking segments, and framing messages out of the stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from netdissect.model.packets import FIN, RST, SYN, Packet, PacketKind
from netdissect.model.segments import StreamPiece, TcpSegment
from netdissect.pipeline.handlers import DirectionHandler
from netdissect.protocols.base import Framed, Framer, in_full

_SPECIAL: Final = FIN | SYN | RST
_TCP: Final = int(PacketKind.TCP)


class StreamPort:
    """One direction of a claimed TCP flow. It passes each message of the stream to the handler."""

    __slots__ = (
        "_connection", "_direction", "_ended", "_framer", "_lane", "_ordinal", "_port", "_stream",
        "_texts",
    )  # fmt: skip

    def __init__(self, port: DirectionHandler, framer: Framer | None) -> None:
        self._port = port
        self._framer = framer
        self._connection = port.connection
        self._direction = port.direction
        self._lane = port.connection.lanes[port.direction]
        self._stream = port.connection.stream
        self._texts = None if self._stream is None else self._stream.messages[port.direction]
        self._ordinal = port.flow.ordinal
        self._ended = False
        """Whether its sender has ended the stream."""

    def take(self, frame: int, time_ns: int, segment: TcpSegment) -> bool:
        """Process an ordinary segment. Return False, having done nothing, for a segment of another
        TCP connection and for one that `segment` has to process.
        """
        stream, texts = self._stream, self._texts
        if segment.connection != self._ordinal or segment.flags & _SPECIAL:
            return False
        if stream is None or texts is None or (segment.mid_stream and segment.stream_start <= 0):
            return False
        lane = self._lane
        stream.segment(self._direction, frame, time_ns, segment)
        if segment.payload_length:
            lane.datagrams += 1
            lane.last_ns = time_ns
            lane.last_frame = frame
        else:
            # A bare acknowledgement comes from the kernel, not from the program.
            self._connection.after = (time_ns, frame)
        for piece in segment.stream:
            texts.digest.update(piece.data)
            texts.octets += len(piece.data)
            # Only bytes that are new to the stream count, as in `segment`.
            lane.octets += len(piece.data)
            texts.gaps += piece.gap_octets
            self._feed(frame, time_ns, piece)
        return True

    def segment(self, packet: Packet, segment: TcpSegment) -> None:
        """Process any segment of the connection, or bytes released behind a gap."""
        connection, direction = self._connection, self._direction
        kind, frame, time_ns, _, _, _, faults = packet
        connection.mid_stream |= segment.mid_stream
        if kind == _TCP:
            if segment.payload_length:
                # Count all segments, also retransmitted ones, but each byte of the stream once.
                octets = sum(len(piece.data) for piece in segment.stream)
                connection.segment(direction, frame, time_ns, octets)
            connection.transport_segment(direction, frame, time_ns, segment)
        for code in faults:
            connection.findings.add(code, frame, time_ns, direction)
        for piece in segment.stream:
            if self._stream is not None:
                self._stream.octets(direction, piece)
            if segment.mid_stream and not piece.offset and not piece.gap_octets:
                # How much came before is unknown: at least one byte counts as missing.
                piece = StreamPiece(piece.offset, piece.data, piece.frames, 1)  # noqa: PLW2901
            self._feed(frame, time_ns, piece)
        self._ended |= bool(segment.flags & (FIN | RST))
        if segment.flags & (FIN | RST) and self._stream is None:
            reset = bool(segment.flags & RST)
            connection.transport_end(direction, frame, time_ns, reset=reset)

    def finish(self) -> None:
        """Process what the framer still holds at the end of the connection."""
        if self._framer is None:
            return
        connection, stream = self._connection, self._stream
        frame, time_ns = connection.last_frame, connection.last_ns
        try:
            left = self._framer.finish()
        except Exception as bug:  # noqa: BLE001 - as in the ports
            self._port.bug(frame, time_ns, bug)
            return
        if not (self._ended if stream is None else stream.ended):
            # If the capture ends before the stream does, an incomplete message is not a fault.
            left = [item for item in left if item[0] and "truncated" not in item[2]]
        # Without a space for messages none is counted; only the faults are kept.
        if stream is None:
            left = [(b"", *item[1:]) for item in left]
        self._framed(frame, time_ns, left)

    def _feed(self, frame: int, time_ns: int, piece: StreamPiece) -> None:
        if self._framer is None:
            return
        try:
            found = self._framer.feed(piece)
        except Exception as bug:  # noqa: BLE001 - as in the ports
            self._port.bug(frame, time_ns, bug)
            return
        if found:
            self._framed(frame, time_ns, found)

    def _framed(self, frame: int, time_ns: int, found: Iterable[Framed]) -> None:
        """Process the messages that the framer has completed."""
        for octets, frames, faults, offset in found:
            for fault in faults:
                code, text = in_full(fault)
                self._connection.findings.add(code, frame, time_ns, self._direction, text)
            if octets:
                self._port.message(frame, time_ns, octets, offset, frames, faults)
