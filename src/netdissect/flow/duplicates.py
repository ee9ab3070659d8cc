"""Tells a packet that was captured twice from a packet that was sent twice.

A capture on all interfaces holds a packet once for each interface that it passes, coming and going.
Another record of the same IP packet, apart from hop limit and header checksum, is a capture
duplicate if its place (interface and direction) is new for this packet. At a place where the packet
was captured before it is a new packet: the sender or the network has repeated it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

DUPLICATE_WINDOW_NS: Final = 1_000_000_000
"""Time within which the records of one packet are captured."""
MAX_RECENT = 4096
"""Packets that are remembered."""


class DuplicateFilter:
    """The most recent packets, and the places where they were captured."""

    __slots__ = ("_recent",)

    def __init__(self) -> None:
        self._recent: OrderedDict[int, tuple[int, set[bytes]]] = OrderedDict()
        """Hash of a packet -> (time of its first record, places)."""

    def is_duplicate(self, packet: bytes, place: bytes, time_ns: int) -> bool:
        """Return whether this IP packet was captured at another place just before."""
        # Routers change the hop limit (byte 7 of IPv6, 8 of IPv4) and the header checksum (bytes
        # 10 and 11).
        if packet[:1] >= b"\x60":
            invariant = packet[:7] + packet[8:]
        else:
            invariant = packet[:8] + packet[9:10] + packet[12:]
        # A packet can have 64 KB, so only a hash is kept. It is salted: nobody can forge one.
        identity = hash(invariant)
        first = self._recent.get(identity)
        if first is not None:
            since_ns, places = first
            if time_ns - since_ns <= DUPLICATE_WINDOW_NS and place not in places:
                places.add(place)
                return True
        self._recent[identity] = (time_ns, {place})
        self._recent.move_to_end(identity)
        if len(self._recent) > MAX_RECENT:
            self._recent.popitem(last=False)
        return False
