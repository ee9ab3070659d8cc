"""Writes what went over a link as a capture file: raw IP packets, made around the payloads."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable
from typing import IO

from netdissect.fuzz.target import Target, Traffic, Transport

__all__ = ["write_pcap"]

_LINKTYPE_RAW = 101
_MAGIC_NS = 0xA1B23C4D
_MAX_SEGMENT = 0xFF00
_ACK_PUSH = 0x18
_UDP, _TCP = 17, 6


def write_pcap(
    file: IO[bytes], traffic: Iterable[Traffic], target: Target, transport: Transport
) -> None:
    """Write a pcap with nanosecond times. Headers are as the system would have made them."""
    sequences: dict[tuple[str, int, bool], int] = {}
    file.write(struct.pack("<IHHiIII", _MAGIC_NS, 2, 4, 0, 0, 1 << 18, _LINKTYPE_RAW))
    for each in traffic:
        for at in range(0, max(1, len(each.octets)), _MAX_SEGMENT):
            part = each.octets[at : at + _MAX_SEGMENT]
            packet = _packet(each, part, target, transport, sequences)
            seconds, rest = divmod(each.time_ns, 1_000_000_000)
            file.write(struct.pack("<IIII", seconds, rest, len(packet), len(packet)) + packet)


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
        sequences[mine] = sequence + len(part)
        header = struct.pack(
            ">HHIIBBHHH",
            sport, dport, sequence, sequences.get(theirs, 1), 5 << 4, _ACK_PUSH, 0xFFFF, 0, 0,
        )  # fmt: skip
        body = header + part
    return _ip(source, destination, _UDP if transport == "udp" else _TCP, body)


def _ip(source: str, destination: str, protocol: int, body: bytes) -> bytes:
    """Return an IP packet; the UDP checksum of IPv6 is filled in, others are left to offloading."""
    start, end = ipaddress.ip_address(source).packed, ipaddress.ip_address(destination).packed
    if len(start) == 4:  # noqa: PLR2004 - octets of an IPv4 address
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0x4000, 64, protocol, 0)
        head += start + end
        return head[:10] + _checksum(head).to_bytes(2, "big") + head[12:] + body
    at = 6 if protocol == _UDP else 16
    pseudo = start + end + struct.pack(">II", len(body), protocol)
    total = _checksum(pseudo + body) or 0xFFFF
    body = body[:at] + total.to_bytes(2, "big") + body[at + 2 :]
    return struct.pack(">IHBB", 6 << 28, len(body), protocol, 64) + start + end + body


def _checksum(data: bytes) -> int:
    """Return the Internet checksum. Source: RFC 1071."""
    padded = data + b"\0" * (len(data) & 1)
    total: int = sum(struct.unpack(f">{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
