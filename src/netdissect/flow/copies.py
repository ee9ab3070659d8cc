"""Tells a second sight of one packet, in a capture on all interfaces, from a packet sent twice.

Such a capture holds a packet once for each interface that it passes, coming and going. A further
record of the same IP packet (but for hop limit and header checksum) is a copy when it was seen at
a place, that is interface and way, where this packet was not seen before. A second sight at the
*same* place is a new packet: the sender or the network repeated it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

__all__ = ["COPY_WINDOW_NS", "MAX_SIGHTS", "CopyTable"]

COPY_WINDOW_NS: Final = 1_000_000_000
"""Copies of one packet are captured within this time."""
MAX_SIGHTS = 4096
"""Packets remembered."""


class CopyTable:
    """The packets seen lately and the places where they were seen."""

    __slots__ = ("_sights",)

    def __init__(self) -> None:
        self._sights: OrderedDict[int, tuple[int, set[bytes]]] = OrderedDict()

    def is_copy(self, packet: bytes, place: bytes, time_ns: int) -> bool:
        """Return whether this IP packet was seen elsewhere just before."""
        # Routers change the hop limit (byte 7 of IPv6, 8 of IPv4) and the header checksum (10 and
        # 11).
        if packet[:1] >= b"\x60":
            same = packet[:7] + packet[8:]
        else:
            same = packet[:8] + packet[9:10] + packet[12:]
        # Not the packet itself, which may have 64 KB; salted, so that nobody can forge another's.
        identity = hash(same)
        sight = self._sights.get(identity)
        if sight is not None and time_ns - sight[0] <= COPY_WINDOW_NS and place not in sight[1]:
            sight[1].add(place)
            return True
        self._sights[identity] = (time_ns, {place})
        self._sights.move_to_end(identity)
        if len(self._sights) > MAX_SIGHTS:
            self._sights.popitem(last=False)
        return False
