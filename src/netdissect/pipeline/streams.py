"""What is particular to TCP in the pipeline: segments, pieces of stream, framing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from netdissect.model.events import Ev, Event
from netdissect.model.packets import Packet, PacketKind, StreamPiece, TcpSegment
from netdissect.protocols.base import Framed, Protocol, in_full
from netdissect.track.stream import StreamTrack

if TYPE_CHECKING:
    from netdissect.pipeline.ports import Flow
    from netdissect.pipeline.table import Pipeline

__all__ = ["StreamPort", "TcpFeeder"]

_FIN: Final = 0x01
_SYN: Final = 0x02
_RST: Final = 0x04
_SPECIAL: Final = _FIN | _SYN | _RST
_MESSAGE: Final = int(Ev.MESSAGE)
_UNIT: Final = int(Ev.UNIT)


class StreamPort:
    """One direction of a claimed TCP flow that nobody watches: the fast way for usual segments."""

    __slots__ = (
        "_connection", "_direction", "_feed", "_lane", "_ordinal", "_pipeline",
        "_scan", "_stream", "_texts",
    )  # fmt: skip

    def __init__(self, pipeline: Pipeline, flow: Flow, protocol: Protocol, side: int) -> None:
        connection = flow.connection
        assert connection is not None  # noqa: S101 - made where a connection begins
        assert connection.stream is not None  # noqa: S101 - as above
        self._pipeline = pipeline
        self._connection = connection
        self._direction = side ^ flow.client
        self._lane = connection.lanes[self._direction]
        self._stream: StreamTrack = connection.stream
        self._texts = self._stream.messages[self._direction]
        self._feed = flow.framers[self._direction].feed
        self._scan = protocol.scan
        self._ordinal = flow.ordinal

    def take(self, frame: int, time_ns: int, segment: TcpSegment) -> bool:
        """Track one segment; False where it belongs to another connection or is not usual."""
        if segment.connection != self._ordinal or segment.flags & _SPECIAL:
            return False
        if segment.mid_stream and segment.stream_start <= 0:
            return False
        direction, lane = self._direction, self._lane
        self._stream.segment(direction, frame, time_ns, segment)
        if segment.payload_length:
            lane.datagrams += 1
            lane.last_ns = time_ns
            lane.last_frame = frame
        else:
            # An acknowledgement alone is no sign of life of the program.
            self._connection.after = (time_ns, frame)
        for piece in segment.stream:
            texts = self._texts
            texts.digest.update(piece.data)
            texts.octets += len(piece.data)
            lane.octets += len(piece.data)
            texts.gaps += piece.gap_octets
            try:
                found = self._feed(piece)
                if found:
                    self._messages(frame, time_ns, found)
            except Exception as bug:  # noqa: BLE001 - as in the other ports
                self._pipeline.bug(self._connection, direction, frame, time_ns, bug)
        return True

    def _messages(self, frame: int, time_ns: int, found: list[Framed]) -> None:
        """Scan and track what a framer has cut off."""
        connection, direction = self._connection, self._direction
        messages = self._lane.messages
        for octets, _, faults, offset in found:
            for fault in faults:
                code, text = in_full(fault)
                connection.findings.add(code, frame, time_ns, direction, text)
            if not octets:
                continue
            events = self._scan(octets, direction, connection.hints)
            type_ = events[0][1] if events[0][0] == _MESSAGE else None
            cell = messages.get(type_) if type_ is not None and len(events) == 1 else None
            if cell is None:
                connection.further(direction, frame, time_ns, events)
            else:
                cell.add(1, time_ns, frame)
            if type_ is None:
                continue
            end = offset + len(octets)
            if not self._stream.next_message(direction, offset, end, time_ns):
                self._stream.message(direction, type_, (offset, end), frame, time_ns)


class TcpFeeder:
    """Feeds the segments of claimed TCP flows to their connections."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def segment(self, flow: Flow, packet: Packet, segment: TcpSegment) -> None:
        """Take one segment, or octets released behind a gap, of a claimed flow."""
        connection = flow.connection
        if connection is None:
            return
        kind, frame, time_ns, key, _, _, faults = packet
        direction = (0 if key == flow.key else 1) ^ flow.client
        connection.mid_stream |= segment.mid_stream
        if self._pipeline.recorder is not None:
            self._pipeline.recorder.connection = connection.number
        if kind == PacketKind.TCP:
            if segment.payload_length:
                # Segments count as sent, repeats included; octets once, as the stream has them.
                octets = sum(len(piece.data) for piece in segment.stream)
                connection.segment(direction, frame, time_ns, octets)
            connection.transport_segment(direction, frame, time_ns, segment)
        for code in faults:
            connection.findings.add(code, frame, time_ns, direction)
        for piece in segment.stream:
            self._piece(flow, direction, frame, time_ns, piece, mid_stream=segment.mid_stream)
        if segment.flags & (_FIN | _RST) and connection.stream is None:
            name = "reset" if segment.flags & _RST else "fin"
            connection.transport_end(name, direction, frame, time_ns)

    def _piece(
        self, flow: Flow, direction: int, frame: int, time_ns: int, piece: StreamPiece,
        *, mid_stream: bool,
    ) -> None:  # fmt: skip
        connection = flow.connection
        if connection is None:
            return
        if connection.stream is not None:
            connection.stream.octets(direction, piece)
        if not flow.framers:
            return
        if mid_stream and not piece.offset and not piece.gap_octets:
            # Nobody knows how much came before: at least one octet counts as missing.
            piece = StreamPiece(piece.offset, piece.data, piece.frames, 1)
        try:
            found = flow.framers[direction].feed(piece)
        except Exception as bug:  # noqa: BLE001 - as in the ports
            self._pipeline.bug(connection, direction, frame, time_ns, bug)
            return
        self.framed(flow, direction, frame, time_ns, found)

    def framed(
        self, flow: Flow, direction: int, frame: int, time_ns: int, found: Iterable[Framed]
    ) -> None:
        """Take what a framer has cut off."""
        connection = flow.connection
        if connection is None:
            return
        for octets, frames, faults, offset in found:
            for fault in faults:
                code, text = in_full(fault)
                connection.findings.add(code, frame, time_ns, direction, text)
            if octets:
                flow.faults, flow.offset = faults, offset
                self._pipeline.watched(
                    flow, direction, frame, time_ns, octets, frames, offset=offset
                )
                flow.faults = ()

    def numbered(
        self, flow: Flow, direction: int, frame: int, time_ns: int, events: list[Event],
        span: tuple[int, int],
    ) -> list[Event]:  # fmt: skip
        """Time the message of a stream; returns its events with the number that it got."""
        connection = flow.connection
        stream = None if connection is None else connection.stream
        if stream is None or not events or events[0][0] != _MESSAGE:
            return events
        type_ = events[0][1]
        number = stream.message(direction, type_, span, frame, time_ns)
        return [(_UNIT, type_, "message", number, None, None), *events[1:]]

    def finish(self, flow: Flow) -> None:
        """Take what the framers of a flow still hold, at the end of its connection."""
        connection = flow.connection
        if connection is None:
            return
        ended = connection.stream is None or connection.stream.ended
        for direction, framer in enumerate(flow.framers):
            frame, time_ns = connection.last_frame, connection.last_ns
            try:
                left = framer.finish()
            except Exception as bug:  # noqa: BLE001 - as in the ports
                self._pipeline.bug(connection, direction, frame, time_ns, bug)
                continue
            if not ended:
                # Where the capture ends before the stream, an incomplete message is no fault.
                left = [item for item in left if item[0]]
            if connection.stream is None:
                left = [(b"", *item[1:]) for item in left]
            self.framed(flow, direction, frame, time_ns, left)
