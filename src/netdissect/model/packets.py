"""What `capture` and `flow` hand on: frames, datagrams, TCP segments and ICMP errors.

The per-datagram path uses plain tuples: a tuple literal costs a tenth of a slotted dataclass. Their
layouts are the type
aliases below; index names are constants so that no reader has to count.
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
wire in bytes). In batches of a pcapng file with several interfaces the link type has the number of
the frame's interface, from 1, above its 16 bits: see `LINK_BITS`.
"""

NS_PER_S: Final = 1_000_000_000
"""Nanoseconds of a second."""
LINK_BITS: Final = 16
"""Width of a link type."""
LINK_TYPE: Final = (1 << LINK_BITS) - 1
"""The link type alone."""
FIN: Final = 0x01
SYN: Final = 0x02
RST: Final = 0x04
ACK: Final = 0x10
"""TCP flags. Source: RFC 9293 section 3.1."""


class PacketKind(IntEnum):
    """What a packet yielded by `flow` is."""

    UDP = 0
    """A whole UDP datagram (IP fragments already joined)."""
    TCP = 1
    """One TCP segment, with the bytes of the stream that it made available in order."""
    ICMP_UNREACHABLE = 2
    """An ICMP/ICMPv6 port-unreachable error quoting a datagram; the key is that of the quoted
    datagram.
    """
    TCP_STREAM = 3
    """No packet: bytes of a TCP direction released behind a gap that will not be filled (the peer
    acknowledged it, a bound was reached, the connection was replaced or evicted, or the capture
    ended). The payload is empty, `TcpSegment.flags` is 0, `TcpSegment.stream` holds the pieces. It
    counts neither as a packet nor as a segment; frame and time are those of what released it."""


Packet: TypeAlias = tuple[
    PacketKind, int, int, FlowKey, bytes, "TcpSegment | None", tuple[str, ...]
]
"""(kind, frame number, time_ns, flow key, payload bytes, TCP segment for kind TCP, fault codes).

For TCP the payload is the segment's own bytes; `TcpSegment.stream` holds what became readable in
order.
Fault codes are rows of the catalogue (`ip-fragment-overlap`, `udp-length`, `snapped` ...), normally
the empty tuple.
"""


class Direction(IntEnum):
    """Which way a datagram travels. The values index per-direction pairs."""

    C2S = 0
    """Client to server."""
    S2C = 1
    """Server to client."""

    @property
    def label(self) -> str:
        """Return the name used in output, "c2s" or "s2c"."""
        return "c2s" if self is Direction.C2S else "s2c"


SIDES: Final = ("client", "server")
"""Names of the sides; each sends the direction of its index."""


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
