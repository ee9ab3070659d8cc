"""Writes the traffic of a link as pcapng: raw IP packets built around the payloads, each with its
case as comment.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from typing import IO

from scapy.utils import checksum

from netdissect.capture.writer import PcapngWriter
from netdissect.fuzz.target import Target, Traffic, Transport

LINKTYPE_RAW = 101  # a capture without hardware addresses
# With headers, a segment must fit into the 16-bit length of an IP packet.
_MAX_SEGMENT = 0xFF00
_ACK_PUSH = 0x18  # TCP flags of a segment with data
_UDP, _TCP = 17, 6


class Packets:
    """Builds the IP packets that carried the traffic with one target."""

    def __init__(self, target: Target, transport: Transport) -> None:
        self._target = target
        self._transport: Transport = transport
        self._sequences: dict[tuple[str, int, bool], int] = {}

    def of(self, each: Traffic) -> Iterator[bytes]:
        """Yield the packets that carry one payload."""
        for at in range(0, max(1, len(each.octets)), _MAX_SEGMENT):
            part = each.octets[at : at + _MAX_SEGMENT]
            yield _packet(each, part, self._target, self._transport, self._sequences)


class TrafficWriter:
    """Writes traffic to an open file, up to a maximum size."""

    def __init__(
        self, file: IO[bytes], target: Target, transport: Transport, *, limit: int = 1 << 62
    ) -> None:
        """Write the file header; `limit` is the maximum size in bytes."""
        self._packets = Packets(target, transport)
        self._limit = limit
        self._file = PcapngWriter(file, comment="netdissect fuzz: addresses and ports as they were")
        self._file.add_interface(LINKTYPE_RAW)
        self.left_out = 0
        """Number of payloads left out because of `limit`."""

    def write(self, each: Traffic) -> None:
        """Add one payload with its note."""
        if self._file.octets + len(each.octets) > self._limit:
            self.left_out += 1
            return
        for packet in self._packets.of(each):
            self._file.write(each.time_ns, packet, comment=each.note or None)

    def close(self) -> None:
        """Flush the writer; the file stays open."""
        self._file.close()


def _packet(
    each: Traffic,
    part: bytes,
    target: Target,
    transport: Transport,
    sequences: dict[tuple[str, int, bool], int],
) -> bytes:
    ends = [each.local, (target.host, target.port)]
    (source, sport), (destination, dport) = ends if each.outgoing else reversed(ends)
    if transport == "udp":
        body = struct.pack(">HHHH", sport, dport, 8 + len(part), 0) + part
    else:
        mine, theirs = (*each.local, each.outgoing), (*each.local, not each.outgoing)
        sequence = sequences.get(mine, 1)
        sequences[mine] = sequence + len(part) & 0xFFFF_FFFF
        header = struct.pack(
            ">HHIIBBHHH",
            sport, dport, sequence, sequences.get(theirs, 1), 5 << 4, _ACK_PUSH, 0xFFFF, 0, 0,
        )  # fmt: skip
        body = header + part
    return _ip(source, destination, _UDP if transport == "udp" else _TCP, body)


def _ip(source: str, destination: str, protocol: int, body: bytes) -> bytes:
    """Return an IP packet. The UDP checksum over IPv6 is computed, as it is mandatory; others stay
    0.
    """
    start, end = ipaddress.ip_address(source).packed, ipaddress.ip_address(destination).packed
    if len(start) == 4:  # noqa: PLR2004 - bytes of an IPv4 address
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0x4000, 64, protocol, 0)
        head += start + end
        return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + body
    at = 6 if protocol == _UDP else 16
    pseudo = start + end + struct.pack(">II", len(body), protocol)
    # 0 would mean "no checksum", which IPv6 does not permit. Source: RFC 8200, section 8.1.
    total = checksum(pseudo + body) or 0xFFFF
    body = body[:at] + struct.pack(">H", total) + body[at + 2 :]
    return struct.pack(">IHBB", 6 << 28, len(body), protocol, 64) + start + end + body
