"""Finds the network packet in a frame, behind link header, VLAN tags and PPPoE headers.

Sources: https://www.tcpdump.org/linktypes.html and the pages of its link types; IEEE 802.1Q (VLAN);
RFC 2516 (PPPoE); RFC 1661 and 1662 (PPP).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

ETHERNET: Final = 1
_LINUX_SLL: Final = 113
_LINUX_SLL2: Final = 276
"""Link types: Ethernet, and two versions of Linux cooked capture.
Source: tcpdump.org/linktypes.html.
"""
ETHERTYPE_IPV4: Final = 0x0800
ETHERTYPE_IPV6: Final = 0x86DD
MAX_TAGS = 8
"""VLAN and PPPoE headers of one frame that are removed."""

Located: TypeAlias = tuple[int, int]
"""(Ethernet type, offset of the packet of this type)."""

_NOTHING: Located = (0, 0)
"""A frame without a packet."""
_MAX_LENGTH_FIELD: Final = 1500
"""Largest length in the type field; larger values are types. Source: IEEE 802.3."""
_SNAP: Final = b"\xaa\xaa\x03"
"""First bytes of a SNAP header. Source: IEEE 802.2."""
_VLAN_TYPES: Final = frozenset({0x8100, 0x88A8, 0x9100, 0x9200})
"""Ethernet types of VLAN tags: 802.1Q, 802.1ad, older QinQ."""
_PPPOE_SESSION: Final = 0x8864
"""Ethernet type of a PPPoE session. Source: RFC 2516."""
_PPP_TYPES: Final = {0x0021: ETHERTYPE_IPV4, 0x0057: ETHERTYPE_IPV6}
"""PPP protocol -> Ethernet type."""
_PPP_HDLC: Final = b"\xff\x03"
"""Address and control bytes of PPP. Source: RFC 1662."""
_NFLOG_PAYLOAD: Final = 9
"""Attribute with the packet. Source: NFULA_PAYLOAD, linux/netfilter/nfnetlink_log.h."""
_MAX_ATTRIBUTES: Final = 32
"""Attributes of one frame that are looked at; there are 21 types."""
NFLOG: Final = 239
PKTAP: Final = 258
"""Link types whose headers name users and programs."""
_PKTAP_HEADER: Final = 108
"""Smallest header of PKTAP, bytes. Source: tcpdump.org/linktypes/LINKTYPE_PKTAP.html."""
_AF_INET: Final = 2
"""Address family of IPv4, the same on all systems."""
_AF_INET6: Final = frozenset({10, 24, 28, 30})
"""Address families of IPv6: Linux, NetBSD and OpenBSD, FreeBSD, Darwin."""


def _u16(data: bytes, pos: int) -> int:
    """Return a big-endian 16-bit number; 0 if it is cut."""
    return int.from_bytes(data[pos : pos + 2], "big") if len(data) >= pos + 2 else 0


def ethernet(data: bytes, start: int = 0) -> Located:
    """Return the packet in an Ethernet frame at `start`, by its type or by SNAP."""
    kind = _u16(data, start + 12)
    if kind > _MAX_LENGTH_FIELD:
        return kind, start + 14
    if data[start + 14 : start + 17] == _SNAP:
        return _u16(data, start + 20), start + 22
    return _NOTHING


def _null(data: bytes) -> Located:
    """Read the address family, in the capturing host's byte order (NULL) or big-endian (LOOP)."""
    for order in ("little", "big"):
        family = int.from_bytes(data[:4], order)
        if family == _AF_INET:
            return ETHERTYPE_IPV4, 4
        if family in _AF_INET6:
            return ETHERTYPE_IPV6, 4
    return _NOTHING


def _raw(data: bytes, start: int = 0) -> Located:
    version = data[start] >> 4 if len(data) > start else 0
    return {4: ETHERTYPE_IPV4, 6: ETHERTYPE_IPV6}.get(version, 0), start


def _ipv4(_: bytes) -> Located:
    return ETHERTYPE_IPV4, 0


def _ipv6(_: bytes) -> Located:
    return ETHERTYPE_IPV6, 0


def _cooked(data: bytes) -> Located:
    return _u16(data, 14), 16


def _cooked2(data: bytes) -> Located:
    return _u16(data, 0), 20


def _ppp(data: bytes) -> Located:
    """Read a PPP header, with or without the address and control bytes of HDLC-like framing."""
    pos = 2 if data[:2] == _PPP_HDLC else 0
    # An odd first byte is the whole protocol number, compressed.
    size = 1 if data[pos : pos + 1] and data[pos] & 1 else 2
    return _PPP_TYPES.get(int.from_bytes(data[pos : pos + size], "big"), 0), pos + size


def _nflog(data: bytes) -> Located:
    """Find the packet among the attributes of a frame that the firewall of Linux has logged."""
    pos = 4
    for _ in range(_MAX_ATTRIBUTES):
        # Lengths and types have the byte order of the capturing host. All types are below 256.
        order: Literal["little", "big"] = "big" if data[pos + 2 : pos + 3] == b"\0" else "little"
        if int.from_bytes(data[pos + 2 : pos + 4], order) == _NFLOG_PAYLOAD:
            return _raw(data, pos + 4)
        # The length includes its own four bytes, but not the padding.
        pos += max(int.from_bytes(data[pos : pos + 2], order) + 3 & ~3, 4)
    return _NOTHING


def _pktap(data: bytes) -> Located:
    """Read the header that macOS puts before a frame, with the link type of the frame."""
    size, link = int.from_bytes(data[:4], "little"), int.from_bytes(data[8:12], "little")
    reader = LINK_READERS.get(link)
    if reader is None or link == PKTAP or size < _PKTAP_HEADER:
        return _NOTHING
    kind, pos = reader(data[size:])
    return kind, size + pos


LINK_READERS: dict[int, Callable[[bytes], Located]] = {
    0: _null,
    ETHERNET: ethernet,
    9: _ppp,
    12: _raw,
    14: _raw,
    50: _ppp,
    101: _raw,
    108: _null,
    _LINUX_SLL: _cooked,
    228: _ipv4,
    229: _ipv6,
    NFLOG: _nflog,
    PKTAP: _pktap,
    _LINUX_SLL2: _cooked2,
}
"""Link type -> reader of its header. The Ethernet type 0 stands for a frame without a packet."""


def skip_tags(data: bytes, located: Located) -> Located | None:
    """Return the packet behind VLAN tags and PPPoE headers; None if there are too many."""
    kind, pos = located
    for _ in range(MAX_TAGS + 1):
        if kind in _VLAN_TYPES:
            kind, pos = _u16(data, pos + 2), pos + 4
        elif kind == _PPPOE_SESSION:
            kind, pos = _PPP_TYPES.get(_u16(data, pos + 6), 0), pos + 8
        else:
            return kind, pos
    return None


def capture_place(link: int, data: bytes) -> bytes | None:
    """Return the place (interface and direction) of a frame in a cooked capture; None in others."""
    # The first version has no interface number; packet type and device type have to do.
    if link == _LINUX_SLL:
        return data[:4]
    if link == _LINUX_SLL2:
        return data[4:11]
    return None
