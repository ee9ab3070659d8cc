"""Spreads flows evenly, both directions alike: over the processes that share a capture, and over
the places for quiet connections, so that each process has whole places.
"""

from __future__ import annotations

from typing import Final

from netdissect.model.keys import FlowKey
from netdissect.model.native import i64, read_i64_be

COUNTS: Final = (1, 2, 3, 4, 6, 8)
"""Numbers of processes that may share a capture."""
QUIET_PLACES = 24
"""Places for quiet connections: a multiple of each of COUNTS."""
_SPREAD: Final = 2_654_435_761
"""Multiplier that spreads neighbouring ports. Source: Knuth, TAOCP volume 3, section 6.4."""
_WORD: Final = 0x7FFF_FFFF
"""Mask that keeps the product below 63 bits."""
_IPV6_KEY: Final = 36
"""Length of an IPv6 flow key, bytes."""


def spread(ends: i64) -> i64:
    """Return 0 to 65,535 for the ends of a flow; modulo their number, its process or its place."""
    return (ends & _WORD) * _SPREAD >> 16 & 0xFFFF


def udp_ends(key: FlowKey) -> i64:
    """Return the argument of `spread` for a UDP flow."""
    return _source(key) + _destination(key)


def tcp_ends(key: FlowKey) -> i64:
    """Return the same for a TCP flow: its server, which is the endpoint with the lower port."""
    source, destination = _source(key), _destination(key)
    ports = (source & 0xFFFF) - (destination & 0xFFFF)
    # Equal ports are decided by the addresses, so that both directions agree.
    return source if ports < 0 or (not ports and source < destination) else destination


def _source(key: FlowKey) -> i64:
    """Return the last two bytes of the source address, followed by the source port."""
    at: i64 = 0 if len(key) < _IPV6_KEY else 12
    ports = read_i64_be(key, 4 if len(key) < _IPV6_KEY else 28)
    return read_i64_be(key, at) >> 16 & 0xFFFF_0000 | ports >> 16 & 0xFFFF


def _destination(key: FlowKey) -> i64:
    """Return the last two bytes of the destination address, followed by the destination port."""
    tail = read_i64_be(key, 4 if len(key) < _IPV6_KEY else 28)
    return tail >> 16 & 0xFFFF_0000 | tail & 0xFFFF
