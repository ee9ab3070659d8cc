"""Reads IPv4 and IPv6 headers. Source: RFC 791, RFC 8200 (extension headers), RFC 4302 (AH)."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from netdissect.flow.codes import IP_LENGTH
from netdissect.flow.links import ETHERTYPE_IPV4, ETHERTYPE_IPV6

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_EXTENSION_HEADERS = 16
"""Extension headers of one packet that are read."""

_V4: Final = 0x40
_V6: Final = 0x60
"""Versions, in the upper half of the first byte."""
_V4_HEADER: Final = 20
_V6_HEADER: Final = 40
"""Sizes of headers without options or extension headers, bytes."""
_FRAGMENT_BITS: Final = 0x3FFF
"""Mask of the more-fragments flag and the offset; both are zero in a packet that is no fragment."""
_MORE: Final = 0x2000
"""The more-fragments flag."""
_OFFSET_BITS: Final = 0x1FFF
"""Mask of the offset, in units of eight bytes."""

OPTIONS_LIKE: Final = frozenset({0, 43, 60, 135, 139, 140})
"""Extension headers that begin with next header and length in units of 8 bytes, minus 1:
hop-by-hop, routing, destination, mobility, HIP, shim6.
"""
_FRAGMENT: Final = 44
_AUTHENTICATION: Final = 51
"""Its length is in units of 4 bytes, minus 2. Source: RFC 4302."""

_v4 = Struct(">BBHHHBB").unpack_from


class IpHeader(NamedTuple):
    """The header of one IP packet."""

    protocol: int
    """Protocol of the payload."""
    addresses: bytes
    """Source and destination, as on the wire."""
    start: int
    """Offset of the payload in the buffer."""
    end: int
    """Offset of the end of the payload, by the IP length; may be behind the captured bytes."""
    ip_id: int | None
    """Identification of IPv4; None for IPv6."""
    fragment: tuple[bytes, int, bool] | None
    """(identity, offset, more fragments follow) of a fragment, else None."""
    faults: tuple[str, ...]
    """Fault codes."""


def _read_v4(data: bytes, pos: int, wire_end: int) -> IpHeader | None:
    if len(data) < pos + _V4_HEADER:
        return None
    version_ihl, _, total, ip_id, fragment_bits, _, protocol = _v4(data, pos)
    header = (version_ihl & 15) * 4
    if version_ihl & 0xF0 != _V4 or header < _V4_HEADER:
        return None
    # Length 0: segmentation offload, where the network card fills it in (Wireshark reads it so).
    end = pos + total if total else wire_end
    if end < pos + header:
        return None
    faults: tuple[str, ...] = ()
    if end > wire_end:
        end, faults = wire_end, (IP_LENGTH,)
    addresses = data[pos + 12 : pos + 20]
    fragment = None
    if fragment_bits & _FRAGMENT_BITS:
        # RFC 791 section 2.3: an identification is unique per addresses and protocol.
        identity = addresses + bytes([protocol]) + data[pos + 4 : pos + 6]
        fragment = (identity, (fragment_bits & _OFFSET_BITS) * 8, bool(fragment_bits & _MORE))
    start = pos + header
    if protocol == _AUTHENTICATION and fragment is None:
        protocol, start = _skip_authentication(data, start)
    # The authentication header may claim to end behind the packet, and no slice may end before it
    # begins.
    return IpHeader(protocol, addresses, start, max(start, end), ip_id, fragment, faults)


def _skip_authentication(data: bytes, pos: int) -> tuple[int, int]:
    """Return (protocol, offset) of the payload behind an IPv4 authentication header."""
    if len(data) < pos + 2:
        return _AUTHENTICATION, pos
    return data[pos], pos + (data[pos + 1] + 2) * 4


def _read_v6(data: bytes, pos: int, wire_end: int) -> IpHeader | None:
    if len(data) < pos + _V6_HEADER or data[pos] & 0xF0 != _V6:
        return None
    length = int.from_bytes(data[pos + 4 : pos + 6], "big")
    start = pos + _V6_HEADER
    # Length 0: a jumbogram (RFC 2675), or segmentation offload as over IPv4.
    end = start + length if length else wire_end
    faults: tuple[str, ...] = ()
    if end > wire_end:
        end, faults = wire_end, (IP_LENGTH,)
    addresses = data[pos + 8 : pos + 40]
    found = _skip_extensions(data, start, data[pos + 6], addresses)
    if found is None:
        return None
    protocol, start, fragment = found
    # Extension headers may claim to end behind the packet.
    return IpHeader(protocol, addresses, start, max(start, end), None, fragment, faults)


def _skip_extensions(
    data: bytes, pos: int, protocol: int, addresses: bytes
) -> tuple[int, int, tuple[bytes, int, bool] | None] | None:
    """Return (protocol, offset, fragment) of the payload behind the extension headers.

    None if they are cut, or too many.
    """
    for _ in range(MAX_EXTENSION_HEADERS + 1):
        if protocol in OPTIONS_LIKE:
            unit, extra = 8, 1
        elif protocol == _AUTHENTICATION:
            unit, extra = 4, 2
        elif protocol == _FRAGMENT:
            if len(data) < pos + 8:
                return None
            bits = int.from_bytes(data[pos + 2 : pos + 4], "big")
            offset, more = bits & 0xFFF8, bool(bits & 1)
            protocol, pos = data[pos], pos + 8
            if offset or more:
                # Only the protocol of the first fragment counts (RFC 8200), so it is no part of the
                # identity.
                return protocol, pos, (addresses + data[pos - 4 : pos], offset, more)
            continue
        else:
            return protocol, pos, None
        if len(data) < pos + 2:
            return None
        protocol, pos = data[pos], pos + (data[pos + 1] + extra) * unit
    return None


IP_READERS: dict[int, Callable[[bytes, int, int], IpHeader | None]] = {
    ETHERTYPE_IPV4: _read_v4,
    ETHERTYPE_IPV6: _read_v6,
}
"""Ethernet type -> reader: (buffer, offset, end of the frame on the wire) -> header, or None if it
is broken.
"""
