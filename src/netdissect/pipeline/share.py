"""Which of several processes a flow belongs to. Worked out for each packet: that costs less than to
remember it, and a flood of flows costs no more than few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from netdissect.flow.choice import Choice
from netdissect.model.keys import ipv4_key
from netdissect.model.native import read_i64_be
from netdissect.pipeline.table import PLACES, place_of

if TYPE_CHECKING:
    from mypy_extensions import i64

    from netdissect.model.packets import FlowKey

__all__ = ["OnlyFlows", "Share"]

_SPREAD: Final = 2_654_435_761
"""Multiplier that spreads neighbouring ports. Source: Knuth, TAOCP volume 3, section 6.4."""
_WORD: Final = 0x7FFF_FFFF
_IPV4_KEY: Final = 12
_IPV6_KEY: Final = 36


class FlowKeys:
    """Keys of UDP flows. Most packets are of none, which takes no key to tell."""

    def __init__(self, keys: frozenset[FlowKey]) -> None:
        self.keys = keys
        spots = bytearray(PLACES)
        for key in keys:
            if len(key) == _IPV4_KEY:
                spots[place_of(read_i64_be(key, 0), read_i64_be(key, 4) & 0xFFFF_FFFF)] = 1
        self._spots = bytes(spots)

    def has(self, addresses: i64, ports: i64) -> bool:
        """Return whether a flow over IPv4 is among them."""
        if not self._spots[place_of(addresses, ports)]:
            return False
        return ipv4_key(addresses, ports) in self.keys


class Share(Choice):
    """One share of the flows of a capture, by their addresses and ports: both directions alike."""

    def __init__(self, index: int, count: int, but: frozenset[FlowKey] = frozenset()) -> None:
        """Take which share of how many it is, and the keys of UDP flows that are in none."""
        self._index: i64 = index
        self._count: i64 = count
        self._but = FlowKeys(but) if but else None

    def leaves_udp(self, key: FlowKey) -> bool:
        """Return whether a UDP flow belongs to another share."""
        if self._but is not None and key in self._but.keys:
            return True
        return self._other(_source(key) + _destination(key))

    def leaves(self, addresses: i64, ports: i64) -> bool:
        """Return the same of a flow over IPv4."""
        if self._but is not None and self._but.has(addresses, ports):
            return True
        # Sums: both directions have the same.
        ends = (addresses >> 32 & 0xFFFF) + (addresses & 0xFFFF)
        return self._other((ends << 16) + (ports >> 16) + (ports & 0xFFFF))

    def _other(self, total: i64) -> bool:
        """Return whether what adds up to this belongs to another share."""
        return ((total & _WORD) * _SPREAD >> 16 & 0xFFFF) % self._count != self._index

    def leaves_tcp(self, key: FlowKey) -> bool:
        """Return whether a TCP flow belongs to another share: it is in that of its server, the end
        with the lower port, as what one connection tells about it is for all others.
        """
        source, destination = _source(key), _destination(key)
        ports = (source & 0xFFFF) - (destination & 0xFFFF)
        server = source if ports < 0 or (not ports and source < destination) else destination
        return self._other(server)


class OnlyFlows(Choice):
    """Leaves all flows out but the UDP flows of some keys."""

    def __init__(self, keys: frozenset[FlowKey]) -> None:
        """Take the keys, of both directions."""
        self._chosen = FlowKeys(keys)

    def leaves_udp(self, key: FlowKey) -> bool:
        """Return whether it is none of them."""
        return key not in self._chosen.keys

    def leaves_tcp(self, key: FlowKey) -> bool:
        """Return True."""
        del key
        return True

    def leaves(self, addresses: i64, ports: i64) -> bool:
        """Return whether it is none of them."""
        return not self._chosen.has(addresses, ports)


def _source(key: FlowKey) -> i64:
    """Return the last two bytes of the source address, and the port behind them."""
    at: i64 = 0 if len(key) < _IPV6_KEY else 12
    ports = read_i64_be(key, 4 if len(key) < _IPV6_KEY else 28)
    return read_i64_be(key, at) >> 16 & 0xFFFF_0000 | ports >> 16 & 0xFFFF


def _destination(key: FlowKey) -> i64:
    tail = read_i64_be(key, 4 if len(key) < _IPV6_KEY else 28)
    return tail >> 16 & 0xFFFF_0000 | tail & 0xFFFF
