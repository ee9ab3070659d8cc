"""Tells a packet that was captured twice from a packet that was sent twice.

A capture on all interfaces holds a packet once for each interface that it passes, coming and going.
Another record of the same IP packet, apart from hop limit and header checksum, is a capture
duplicate if its place (interface and direction) is new for this packet. At a place where the packet
was captured before it is a new packet: the sender or the network has repeated it.

A capture of a mirror port may hold every packet twice at one place, once for each port that the
packet passes. Then the second record of each is a capture duplicate.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from netdissect.flow.links import ETHERNET, ETHERTYPE_IPV4, ethernet, skip_tags
from netdissect.model.packets import Frame

DUPLICATE_WINDOW_NS: Final = 1_000_000_000
"""Time within which the records of one packet are captured."""
MIRROR_WINDOW_NS: Final = 10_000_000
"""The same for a mirror port, whose switch sends both at once."""
MAX_RECENT = 4096
"""Packets that are remembered."""
MIRRORED_FRAMES: Final = 64
"""Frames at the start of a capture that show whether it holds every packet twice."""
_MIN_PAIRS: Final = 4
"""Packets in pairs that are needed to show it."""
_NEARLY_ALL: Final = 0.9
"""Share of the frames that have to be in pairs. Others may be cut off, or passed one port only."""


def is_mirrored(frames: Sequence[Frame]) -> bool:
    """Return whether the first frames of a capture show that it holds every packet twice.

    Equal packets of one sender differ in their IP identification. Where it has none, only frames
    with different headers of the link, such as a VLAN tag, show that a packet was captured twice.
    """
    waiting: dict[bytes, tuple[int, bytes]] = {}
    ids: set[bytes] = set()
    pairs = looked_at = 0
    for _, time_ns, link, data, _ in frames[:MIRRORED_FRAMES]:
        located = skip_tags(data, ethernet(data)) if link == ETHERNET else None
        if located is None or not located[0]:
            continue
        looked_at += 1
        kind, start = located
        packet = _invariant(data[start:])
        before = waiting.pop(packet, None)
        if before is None or time_ns - before[0] > MIRROR_WINDOW_NS:
            waiting[packet] = time_ns, data[:start]
            continue
        ip_id = data[start + 4 : start + 6] if kind == ETHERTYPE_IPV4 else b""
        if before[1] != data[:start] or any(ip_id):
            pairs += 1
            ids.add(ip_id)
    told = len(ids) > pairs // 2 or not any(map(any, ids))
    return told and pairs >= _MIN_PAIRS and 2 * pairs >= _NEARLY_ALL * looked_at


def _invariant(packet: bytes) -> bytes:
    """Return what routers leave as it is: all but the hop limit (byte 7 of IPv6, 8 of IPv4) and the
    header checksum (bytes 10 and 11), without the padding of the frame.
    """
    if packet[:1] >= b"\x60":
        return packet[:7] + packet[8:]
    end = int.from_bytes(packet[2:4], "big") or len(packet)
    return packet[:8] + packet[9:10] + packet[12 : max(12, end)]


class DuplicateFilter:
    """The most recent packets, and the places where they were captured."""

    __slots__ = ("_recent",)

    def __init__(self) -> None:
        self._recent: OrderedDict[int, tuple[int, set[bytes]]] = OrderedDict()
        """Hash of a packet -> (time of its first record, places)."""

    def is_duplicate(self, packet: bytes, place: bytes, time_ns: int) -> bool:
        """Return whether this IP packet was captured at another place just before."""
        # A packet can have 64 KB, so only a hash is kept. It is salted: nobody can forge one.
        identity = hash(_invariant(packet))
        first = self._recent.get(identity)
        if first is not None:
            since_ns, places = first
            if time_ns - since_ns <= DUPLICATE_WINDOW_NS and place not in places:
                places.add(place)
                return True
        self._remember(identity, time_ns, {place})
        return False

    def is_second(self, packet: bytes, time_ns: int) -> bool:
        """Return whether this is the second record of an IP packet, if each has two."""
        identity = hash(_invariant(packet))
        first = self._recent.pop(identity, None)
        if first is not None and time_ns - first[0] <= MIRROR_WINDOW_NS:
            return True
        self._remember(identity, time_ns, set())
        return False

    def _remember(self, identity: int, time_ns: int, places: set[bytes]) -> None:
        """Remember the first record of a packet."""
        self._recent[identity] = (time_ns, places)
        self._recent.move_to_end(identity)
        if len(self._recent) > MAX_RECENT:
            self._recent.popitem(last=False)
