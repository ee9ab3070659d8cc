"""Push interfaces of the hot path. A reader calls the methods of a sink for each frame, packet or
event as it is read, so that no object is created for those that the sink does not keep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from netdissect.model.native import i64
from netdissect.model.packets import PacketKind

if TYPE_CHECKING:
    from netdissect.model.events import Event
    from netdissect.model.packets import FlowKey, Frame, Packet
    from netdissect.model.segments import TcpSegment

_UDP: Final = PacketKind.UDP
_TCP: Final = PacketKind.TCP


class FrameSink:
    """Receives the frames of a capture in file order."""

    __slots__ = ()

    def frame(
        self, number: i64, time_ns: i64, link: i64, data: bytes, start: i64, stop: i64, wire: i64
    ) -> None:
        """Process the frame `data[start:stop]`; the other arguments are those of `Frame`."""
        raise NotImplementedError


class FrameList(FrameSink):
    """Collects frames in a list."""

    __slots__ = ("frames",)

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def frame(
        self, number: i64, time_ns: i64, link: i64, data: bytes, start: i64, stop: i64, wire: i64
    ) -> None:
        """Append one frame."""
        self.frames.append((number, time_ns, link, data[start:stop], wire))


class PacketSink:
    """Receives the packets of a capture, each as soon as it is complete."""

    __slots__ = ()

    def ipv4_datagram(
        self, frame: i64, time_ns: i64, addresses: i64, ports: i64, payload: bytes
    ) -> bool:
        """Process a datagram of a known IPv4 flow without building its key: `addresses` and `ports`
        are the two parts of the key as integers (see `ipv4_key`).

        Return False if the key is needed. Nothing was processed then, and the caller passes the
        datagram to `datagram`.
        """
        del frame, time_ns, addresses, ports, payload
        return False

    def datagram(self, frame: i64, time_ns: i64, key: FlowKey, payload: bytes) -> None:
        """Process a complete UDP datagram without faults."""
        raise NotImplementedError

    def segment(
        self, frame: i64, time_ns: i64, key: FlowKey, payload: bytes, segment: TcpSegment
    ) -> None:
        """Process a TCP segment without faults. By default it goes to `packet`."""
        self.packet((_TCP, frame, time_ns, key, payload, segment, ()))

    def packet(self, packet: Packet) -> None:
        """Process a packet of any kind."""
        raise NotImplementedError

    def tick(self, frame: i64, time_ns: i64) -> None:
        """Advance the time to that of a packet that was filtered out."""


class PacketList(PacketSink):
    """Collects packets in a list."""

    __slots__ = ("packets",)

    def __init__(self) -> None:
        self.packets: list[Packet] = []

    def datagram(self, frame: i64, time_ns: i64, key: FlowKey, payload: bytes) -> None:
        """Append one datagram."""
        self.packets.append((_UDP, frame, time_ns, key, payload, None, ()))

    def packet(self, packet: Packet) -> None:
        """Append one packet."""
        self.packets.append(packet)


class EventSink:
    """Receives the events of one datagram in wire order. `Ev` describes what each of them means.
    Types and spaces are indexes into lists that caller and sink share (see `Scanner`).
    """

    __slots__ = ()

    def begin(self) -> None:
        """Start the events of a datagram, none of which begins a connection."""
        raise NotImplementedError

    def message(self, type_: i64) -> None:
        """Process a MESSAGE."""
        raise NotImplementedError

    def unit(
        self, type_: i64, space: i64, wire_seq: i64, labelled: bool | None, content: Any  # noqa: FBT001
    ) -> None:  # fmt: skip
        """Process a UNIT; type -1 counts as no message."""
        raise NotImplementedError

    def plain_unit(self, type_: i64, space: i64, wire_seq: i64, content: Any) -> None:
        """Process a PLAIN_UNIT; type -1 counts as no message."""
        raise NotImplementedError

    def run(self, space: i64, wire_seq: i64, types: list[str]) -> None:
        """Process a RUN."""
        raise NotImplementedError

    def same_run(self, type_: i64, space: i64, wire_seq: i64, count: i64) -> None:
        """Process a RUN of `count` messages of one type."""
        raise NotImplementedError

    def numbered(self, type_: i64, space: i64, wire_seq: i64) -> None:
        """Process a NUMBERED."""
        raise NotImplementedError

    def ack(self, space: i64, base: i64, bits: i64) -> None:
        """Process an ACK."""
        raise NotImplementedError

    def nack(self, space: i64, base: i64, bits: i64) -> None:
        """Process a NACK."""
        raise NotImplementedError

    def event(self, event: Event) -> None:
        """Process an event of any kind."""
        raise NotImplementedError
