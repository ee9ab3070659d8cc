"""Names what a packet carries, so that the same packet has the same name in another capture.

Addresses, ports, hop limits and checksums are left out: relays and NAT change them.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from netdissect.flow.codes import CAPTURE_DUPLICATE, SNAPPED
from netdissect.model.packets import Packet, PacketKind
from netdissect.model.segments import TcpSegment

__all__ = ["NO_LIMIT", "Tokens"]

NO_LIMIT: Final = 1 << 30
"""Captured bytes compared where no datagram was cut."""

_UDP: Final = int(PacketKind.UDP)
_TCP: Final = int(PacketKind.TCP)


class Tokens:
    """Makes the names of the packets of one capture.

    Args:
        limit: bytes of a payload that are compared; captures with other snap lengths are compared
            by what the shorter one holds, and by the length on the wire.
        loose: leave out what a firewall or a translator between IPv4 and IPv6 rewrites in TCP
            headers: IP identification, options and window.

    """

    __slots__ = ("limit", "loose", "shortest")

    def __init__(self, limit: int = NO_LIMIT, *, loose: bool = False) -> None:
        self.limit = limit
        self.loose = loose
        self.shortest = NO_LIMIT
        """Captured bytes of the most severely cut payload so far."""

    def datagram(self, payload: bytes) -> int:
        """Return the name of a UDP datagram in which nothing is odd."""
        if self.limit == NO_LIMIT:
            # Salted in every run: no sender can prepare payloads of one name.
            return hash(payload)
        return hash((len(payload), payload[: self.limit]))

    def of(self, packet: Packet, data: bytes) -> int | None:
        """Return the name of a packet; None where it is none that travels: an ICMP error, bytes
        released later, a second sight on another interface.

        Args:
            packet: what `flow` found.
            data: of one with faults the frame it was found in, for the length on the wire.

        """
        kind, _, _, _, payload, segment, faults = packet
        if kind == _UDP:
            if CAPTURE_DUPLICATE in faults:
                return None
            if SNAPPED not in faults:
                # What was joined from fragments or has another fault is named by its length, too.
                return (
                    hash((len(payload), payload[: self.limit]))
                    if faults
                    else self.datagram(payload)
                )
            self.shortest = min(self.shortest, len(payload))
            return hash((_stated_length(len(payload), data), payload[: self.limit]))
        if kind != _TCP or segment is None or CAPTURE_DUPLICATE in faults:
            return None
        if SNAPPED in faults:
            self.shortest = min(self.shortest, len(payload))
        return self._segment(segment, payload)

    def _segment(self, segment: TcpSegment, payload: bytes) -> int:
        facts = (
            segment.seq,
            segment.ack,
            segment.flags,
            segment.payload_length,
            payload[: self.limit],
        )
        if self.loose:
            return hash(facts)
        return hash((facts, segment.window, segment.ip_id, segment.timestamps))


def choice(segment: TcpSegment | None, payload: bytes, limit: int) -> int:
    """Return a number by which both captures sample the same packets, the same in every run.

    Args:
        segment: of TCP.
        payload: what it carries.
        limit: as for `Tokens`: of more, one of the captures may have nothing.

    """
    if segment is None:
        return crc32(payload[: min(64, limit)])
    return crc32(b"%d %d" % (segment.seq, segment.ack))


def _stated_length(captured: int, data: bytes) -> int:
    """Return the payload length that the UDP header of a cut datagram states."""
    start = len(data) - captured - 4
    return int.from_bytes(data[start : start + 2], "big") - 8 if start >= 0 else captured
