"""Tokens: hashes of what packets carry. The same packet has the same token in both captures.

Addresses, ports, hop limits and checksums are left out, because relays and NAT change them.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from netdissect.flow.codes import CAPTURE_DUPLICATE, SNAPPED
from netdissect.model.packets import Packet, PacketKind
from netdissect.model.segments import TcpSegment

NO_LIMIT: Final = 1 << 30
"""Bytes of a payload that are compared if no datagram was cut."""
_KEY_OCTETS: Final = 64
"""Bytes at the start of a payload that decide whether its datagram is sampled."""

_UDP: Final = int(PacketKind.UDP)
_TCP: Final = int(PacketKind.TCP)


class Tokens:
    """Computes the tokens of the packets of one capture.

    Args:
        limit: bytes of a payload that are compared. Captures with different snap lengths are
            compared by what the shorter one holds, and by the length on the wire.
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
        """Return the token of a UDP datagram without faults."""
        if self.limit == NO_LIMIT:
            # Python salts hashes per run, so no sender can prepare payloads with equal tokens.
            return hash(payload)
        return hash((len(payload), payload[: self.limit]))

    def of(self, packet: Packet, data: bytes) -> int | None:
        """Return the token of a packet.

        Return None for what does not travel by itself: an ICMP error, stream data released later,
        a second sighting on another interface.

        Args:
            packet: what `flow` decoded.
            data: the frame of a packet with faults, which holds its length on the wire.

        """
        kind, _, _, _, payload, segment, faults = packet
        if kind == _UDP:
            if CAPTURE_DUPLICATE in faults:
                return None
            if SNAPPED not in faults:
                # The token of a reassembled or otherwise faulty datagram includes its length.
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


def sampling_key(segment: TcpSegment | None, payload: bytes, limit: int) -> int:
    """Return 32 bits that select the packets to sample: equal for both captures and in every run.

    Args:
        segment: the TCP segment; None for UDP.
        payload: what the packet carries.
        limit: as for `Tokens`; one of the captures may hold nothing beyond it.

    """
    if segment is None:
        length = min(_KEY_OCTETS, limit)
        return crc32(payload if len(payload) <= length else payload[:length])
    return crc32(b"%d %d" % (segment.seq, segment.ack))


def _stated_length(captured: int, data: bytes) -> int:
    """Return the payload length that the UDP header of a cut datagram states."""
    start = len(data) - captured - 4
    return int.from_bytes(data[start : start + 2], "big") - 8 if start >= 0 else captured
