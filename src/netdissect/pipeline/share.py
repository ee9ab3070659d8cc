"""Decides which of several processes tracks a flow. It is computed for each packet, which is faster
than remembering it, and costs no memory in a flood of flows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from netdissect.flow.flowfilter import FlowFilter
from netdissect.model.keys import ipv4_key
from netdissect.model.native import read_i64_be
from netdissect.pipeline.spreading import spread, tcp_ends, udp_ends
from netdissect.pipeline.table import PLACES, place_of

if TYPE_CHECKING:
    from mypy_extensions import i64

    from netdissect.model.packets import FlowKey

_IPV4_KEY: Final = 12
"""Length of an IPv4 flow key, bytes."""


class FlowKeys:
    """A set of keys of UDP flows that rejects most other packets without building their key."""

    def __init__(self, keys: frozenset[FlowKey]) -> None:
        self.keys = keys
        spots = bytearray(PLACES)
        for key in keys:
            if len(key) == _IPV4_KEY:
                spots[place_of(read_i64_be(key, 0), read_i64_be(key, 4) & 0xFFFF_FFFF)] = 1
        self._spots = bytes(spots)

    def has(self, addresses: i64, ports: i64) -> bool:
        """Return whether an IPv4 flow is in the set; for the arguments see `ipv4_key`."""
        if not self._spots[place_of(addresses, ports)]:
            return False
        return ipv4_key(addresses, ports) in self.keys


class Share(FlowFilter):
    """One share of the flows of a capture. Both directions of a flow are in the same share."""

    def __init__(self, index: int, count: int, but: frozenset[FlowKey] = frozenset()) -> None:
        """Create share `index` of `count`; the UDP flows with the keys `but` are in no share."""
        self._index: i64 = index
        self._count: i64 = count
        self._but = FlowKeys(but) if but else None

    def skips_udp(self, key: FlowKey) -> bool:
        """Return whether a UDP flow belongs to another share."""
        if self._but is not None and key in self._but.keys:
            return True
        return self._other(udp_ends(key))

    def skips_ipv4_udp(self, addresses: i64, ports: i64) -> bool:
        """Return the same for an IPv4 flow; for the arguments see `ipv4_key`."""
        if self._but is not None and self._but.has(addresses, ports):
            return True
        # Sums, which are the same in both directions.
        ends = (addresses >> 32 & 0xFFFF) + (addresses & 0xFFFF)
        return self._other((ends << 16) + (ports >> 16) + (ports & 0xFFFF))

    def _other(self, total: i64) -> bool:
        """Return whether a flow whose ends have this sum belongs to another share."""
        return spread(total) % self._count != self._index

    def skips_tcp(self, key: FlowKey) -> bool:
        """Return whether a TCP flow belongs to another share. It is in that of its server, because
        other connections to it help to recognise it.
        """
        return self._other(tcp_ends(key))


class OnlyFlows(FlowFilter):
    """Leaves out all flows but some UDP flows."""

    def __init__(self, keys: frozenset[FlowKey]) -> None:
        """Create one from the keys of these flows, in both directions."""
        self._chosen = FlowKeys(keys)

    def skips_udp(self, key: FlowKey) -> bool:
        """Return whether a UDP flow is not one of them."""
        return key not in self._chosen.keys

    def skips_tcp(self, key: FlowKey) -> bool:
        """Return True."""
        del key
        return True

    def skips_ipv4_udp(self, addresses: i64, ports: i64) -> bool:
        """Return the same for an IPv4 flow; for the arguments see `ipv4_key`."""
        return not self._chosen.has(addresses, ports)
