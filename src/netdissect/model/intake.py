"""What takes frames and packets one by one, as they are read: no object is made of those that the
taker has no use for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from netdissect.model.packets import PacketKind

if TYPE_CHECKING:
    from mypy_extensions import i64

    from netdissect.model.packets import FlowKey, Frame, Packet
    from netdissect.model.segments import TcpSegment

__all__ = ["Frames", "FramesTaken", "Packets", "PacketsTaken"]

_UDP: Final = PacketKind.UDP
_TCP: Final = PacketKind.TCP


class Frames:
    """Takes the frames of a capture in file order."""

    __slots__ = ()

    def frame(
        self, number: i64, time_ns: i64, link: i64, data: bytes, start: i64, stop: i64, wire: i64
    ) -> None:
        """Take the frame that is `data[start:stop]`; the other arguments are as in `Frame`."""
        raise NotImplementedError


class FramesTaken(Frames):
    """Keeps them."""

    __slots__ = ("frames",)

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def frame(
        self, number: i64, time_ns: i64, link: i64, data: bytes, start: i64, stop: i64, wire: i64
    ) -> None:
        """Keep one."""
        self.frames.append((number, time_ns, link, data[start:stop], wire))


class Packets:
    """Takes the packets of a capture, each as soon as it is whole."""

    __slots__ = ()

    def known(
        self, frame: i64, time_ns: i64, addresses: i64, ports: i64, payload: bytes
    ) -> bool:
        """Take the same as `datagram`, over IPv4, where that needs no key: the addresses and ports
        are those of a key as two numbers. Return False where it does; nothing was taken then.
        """
        del frame, time_ns, addresses, ports, payload
        return False

    def datagram(self, frame: i64, time_ns: i64, key: FlowKey, payload: bytes) -> None:
        """Take a whole UDP datagram in which nothing is odd."""
        raise NotImplementedError

    def segment(
        self, frame: i64, time_ns: i64, key: FlowKey, payload: bytes, segment: TcpSegment
    ) -> None:
        """Take a TCP segment in which nothing is odd; else as `packet`."""
        self.packet((_TCP, frame, time_ns, key, payload, segment, ()))

    def packet(self, packet: Packet) -> None:
        """Take a packet of any kind."""
        raise NotImplementedError

    def tick(self, frame: i64, time_ns: i64) -> None:
        """Take note of the time of a packet that was left out."""


class PacketsTaken(Packets):
    """Keeps them."""

    __slots__ = ("packets",)

    def __init__(self) -> None:
        self.packets: list[Packet] = []

    def datagram(self, frame: i64, time_ns: i64, key: FlowKey, payload: bytes) -> None:
        """Keep one."""
        self.packets.append((_UDP, frame, time_ns, key, payload, None, ()))

    def packet(self, packet: Packet) -> None:
        """Keep one."""
        self.packets.append(packet)
