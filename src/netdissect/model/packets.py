"""What `capture` and `flow` produce: frames, datagrams, TCP segments and ICMP errors.

Frames and packets are plain tuples, because creating one costs a tenth of creating a dataclass with
slots. The type aliases below describe their layouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from netdissect.model.keys import (
    FlowKey,
    endpoint_text,
    flow_addresses,
    flow_ports,
    flow_sides,
    flow_texts,
    reverse_key,
)

if TYPE_CHECKING:
    from netdissect.model.segments import TcpSegment

__all__ = [
    "ACK",
    "FIN",
    "LINK_BITS",
    "LINK_TYPE",
    "NS_PER_S",
    "RST",
    "SIDES",
    "SYN",
    "Direction",
    "Endpoint",
    "FlowKey",
    "Frame",
    "Packet",
    "PacketKind",
    "endpoint_text",
    "flow_endpoints",
    "flow_ports",
    "flow_sides",
    "flow_texts",
    "reverse_key",
]

Frame: TypeAlias = tuple[int, int, int, bytes, int]
"""(frame number from 1, time in ns since the Unix epoch, link type, captured bytes, length on the
wire in bytes). If a pcapng file has several interfaces, the bits of the link type above `LINK_BITS`
are the number, from 1, of the frame's interface.
"""

NS_PER_S: Final = 1_000_000_000
"""Nanoseconds per second."""
MAX_SNAP_OCTETS: Final = 262_144
"""Largest number of bytes captured of a frame. Source: libpcap MAXIMUM_SNAPLEN."""
LINK_BITS: Final = 16
"""Width of a link type, bits. Source: the pcapng specification, Interface Description Block."""
LINK_TYPE: Final = (1 << LINK_BITS) - 1
"""Mask of the link type alone."""
FIN: Final = 0x01
SYN: Final = 0x02
RST: Final = 0x04
ACK: Final = 0x10
"""TCP flags. Source: RFC 9293 section 3.1."""
SEQ_SPAN: Final = 1 << 32
"""Modulus of TCP sequence numbers."""
HALF_SEQ_SPAN: Final = 1 << 31
"""Half of it: numbers less than this ahead of another are later ones."""


class PacketKind(IntEnum):
    """Kinds of packets that `flow` produces."""

    UDP = 0
    """A complete UDP datagram (IP fragments reassembled)."""
    TCP = 1
    """One TCP segment, with the bytes of the stream that it made available in order."""
    ICMP_UNREACHABLE = 2
    """An ICMP or ICMPv6 destination-unreachable error. The key is that of the quoted datagram or
    segment. The payload is text: its transport, a space, the reason.
    """
    TCP_STREAM = 3
    """Not a packet: bytes of a TCP direction behind a gap that will not be filled, because the peer
    acknowledged it, a bound was reached, the connection was replaced or evicted, or the capture
    ended. The payload is empty, `TcpSegment.flags` is 0, and `TcpSegment.stream` has the bytes. It
    counts neither as a packet nor as a segment. Frame and time are those of the packet that
    released the bytes.
    """


PORT_UNREACHABLE: Final = "port unreachable"
"""What the host itself says if no program listens."""


Packet: TypeAlias = tuple[
    PacketKind, int, int, FlowKey, bytes, "TcpSegment | None", tuple[str, ...]
]
"""(kind, frame number, time_ns, flow key, payload bytes, TCP segment for kind TCP, fault codes).

For TCP the payload is the segment's own bytes; `TcpSegment.stream` has the bytes that became
readable in order. Fault codes are codes of the catalogue (`ip-fragment-overlap`, `udp-length`,
`snapped` ...), normally an empty tuple.
"""


class Direction(IntEnum):
    """Direction of a datagram. The values are indexes into pairs with one item per direction."""

    C2S = 0
    """Client to server."""
    S2C = 1
    """Server to client."""

    @property
    def label(self) -> str:
        """Return the word used in output, `c2s` or `s2c`."""
        return "c2s" if self is Direction.C2S else "s2c"


SIDES: Final = ("client", "server")
"""Names of the two sides, by the direction in which each of them sends."""


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """One address and port."""

    address: str
    """IPv4 dotted quad or compressed IPv6 text."""
    port: int
    """UDP or TCP port."""

    def __str__(self) -> str:
        return endpoint_text(self.address, self.port)


def flow_endpoints(key: FlowKey) -> tuple[Endpoint, Endpoint]:
    """Return (source, destination) of a flow key."""
    addresses, ports = flow_addresses(key), flow_ports(key)
    return Endpoint(addresses[0], ports[0]), Endpoint(addresses[1], ports[1])
