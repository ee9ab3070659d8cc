"""Finds packets inside packets: IP-in-IP, GRE and VXLAN. Sources: RFC 2003, RFC 2784 and 2890, RFC
7348.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from netdissect.flow.links import ETHERTYPE_IPV4, ETHERTYPE_IPV6, Located, ethernet, skip_tags

if TYPE_CHECKING:
    from netdissect.flow.ip import IpHeader

MAX_DEPTH = 8
"""Nested tunnels that are followed."""

_IPIP: Final = 4
_UDP: Final = 17
_IPV6_IN_IP: Final = 41
_GRE: Final = 47
_TRANSPARENT_ETHERNET: Final = 0x6558
"""Protocol type of a whole Ethernet frame in GRE. Source: RFC 1701."""
_UDP_HEADER: Final = 8
_GRE_HEADER: Final = 4
"""Size of the fixed part of a GRE header, bytes."""
_GRE_OPTIONAL: Final = (0x80, 0x20, 0x10)
"""Flags of the optional fields (checksum, key, sequence number) of four bytes each."""
_GRE_ROUTING: Final = 0x40
"""Flag of source routes, which are not followed."""
_VXLAN_HEADER: Final = 8
"""Size of a VXLAN header, bytes."""
_VXLAN_FLAGS: Final = b"\x08\x00\x00\x00"
"""Flags and reserved bytes of a VXLAN header. Source: RFC 7348 section 5."""
_IP_TYPES: Final = frozenset({ETHERTYPE_IPV4, ETHERTYPE_IPV6})


def inside(header: IpHeader, data: bytes) -> Located | None:
    """Return the packet inside an IP packet that is no fragment; None if it is no tunnel."""
    if header.protocol == _UDP:
        return inside_udp(data, header.start + _UDP_HEADER)
    return inside_ip(header.protocol, data, header.start)


def inside_ip(protocol: int, data: bytes, start: int) -> Located | None:
    """Return the packet inside a tunnel protocol at `start`; None for other protocols."""
    if protocol == _IPIP:
        return ETHERTYPE_IPV4, start
    if protocol == _IPV6_IN_IP:
        return ETHERTYPE_IPV6, start
    if protocol != _GRE or len(data) < start + _GRE_HEADER:
        return None
    flags = data[start]
    # Source routes are not followed; version 1 (PPTP, RFC 2637) carries no Ethernet type.
    if flags & _GRE_ROUTING or data[start + 1] & 7:
        return None
    kind = int.from_bytes(data[start + 2 : start + 4], "big")
    body = start + _GRE_HEADER + sum(4 for bit in _GRE_OPTIONAL if flags & bit)
    return ethernet(data, body) if kind == _TRANSPARENT_ETHERNET else (kind, body)


def inside_udp(data: bytes, start: int) -> Located | None:
    """Return the packet inside a VXLAN datagram; None if no VXLAN header and IP are at `start`."""
    # Anybody may use port 4789. Flags, a reserved byte and IP inside make a datagram VXLAN.
    if data[start : start + 4] != _VXLAN_FLAGS or data[start + 7 : start + 8] != b"\0":
        return None
    inner = skip_tags(data, ethernet(data, start + _VXLAN_HEADER))
    return inner if inner is not None and inner[0] in _IP_TYPES else None
