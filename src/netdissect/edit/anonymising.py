"""Anonymised captures: addresses and texts are overwritten, times and sizes stay.

The checksums of IP, UDP, TCP and ICMP are correct afterwards. In a packet that is incomplete (a
fragment, a frame that was cut) they are as correct as they were.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from struct import pack, pack_into
from typing import IO

from netdissect.capture.blocks import INTERFACE, OTHER, PACKET, SECTION, Block, BlockReader
from netdissect.capture.writer import BlockWriter, block_bytes, option
from netdissect.edit.frames import Fragments
from netdissect.edit.plain import options
from netdissect.edit.plan import Plan
from netdissect.edit.pseudonyms import Pseudonyms
from netdissect.flow import Decapsulator
from netdissect.flow.ip import IP_READERS, OPTIONS_LIKE, IpHeader
from netdissect.flow.links import (
    ETHERNET,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    LINK_READERS,
    NFLOG,
    PKTAP,
    skip_tags,
)
from netdissect.flow.tunnels import MAX_DEPTH, inside
from netdissect.model.packets import FlowKey, Frame, Packet, PacketKind

MAX_QUOTABLE = 4096
"""Flows whose last datagram is remembered, in case an ICMP error quotes it."""
_ARP = 0x0806
_ICMP, _TCP, _UDP, _GRE, _ICMPV6 = 1, 6, 17, 47, 58
_CHECKSUM = {_UDP: 6, _TCP: 16, _ICMP: 2, _ICMPV6: 2}
"""IP protocol -> offset of its checksum."""
_ICMP_ERRORS = {_ICMP: (3, 4, 5, 11, 12), _ICMPV6: (1, 2, 3, 4)}
"""IP protocol -> types of the messages that quote a packet. *Source:* RFC 792, RFC 4443."""
_IPV4_HEADER, _IPV6_HEADER = 20, 40
_NO_OPERATION, _TIMES = 1, 68  # options of IPv4. Source: RFC 791
_ROUTES = frozenset({7, 131, 137})
"""Options of IPv4 with addresses: record route, loose and strict source route."""
_WITH_ADDRESSES = (1, 3)
"""Flags of a time stamp option that contains addresses."""
_ROUTING, _DESTINATION = 43, 60  # next headers of IPv6
_SIGNALS = frozenset({135, 139, 140})
"""Next headers of mobility, HIP and shim6, which are full of addresses."""
_HOME_ADDRESS = 0xC9  # option for the destination. Source: RFC 6275
_SEGMENTS = 4  # segment routing: options may follow its addresses. Source: RFC 8754
_ADDRESSED = (0, 2, _SEGMENTS)
"""Types of routing headers that contain addresses."""
_UDP_HEADER = _ICMP_HEADER = _VXLAN_HEADER = 8
_TCP_HEADER = 20
_TCP_OPTIONS = frozenset({2, 3, 4, 5, 8})
"""Options of TCP whose values stay: segment size, window scale, selective acknowledgements and time
stamps. Others have addresses (RFC 8684), cookies or keys.
"""
_ETHERNET_HEADER = 14
_TRANSPARENT_ETHERNET = b"\x65\x58"
"""Protocol type in GRE for a whole Ethernet frame. *Source:* RFC 1701."""
_V4 = 4
_MACS = {ETHERNET: (0, 6), 113: (6,), 276: (12,)}
"""Link type -> offsets of its hardware addresses (Ethernet, Linux cooked)."""
_PADDED = {113: (12,), 276: (18,)}
"""Link type -> offsets of two bytes that are part of longer addresses, such as those of tunnels."""
_PRIVATE = frozenset({NFLOG, PKTAP})
"""Link types of whose frames nothing is kept: the headers name users and programs."""
_KEPT = {INTERFACE: frozenset({9, 14}), PACKET: frozenset({2, 4, 5, 6, 7})}
"""Options of pcapng that say nothing about people or machines. Of an interface: resolution
and offset of its times. Of a packet: flags, drops, identity, queue and verdict.
"""


@dataclass(slots=True)
class Anonymised:
    """Counts of what was written."""

    frames: int = 0
    cut: int = 0
    """Frames of no known connection, which were cut after their headers."""
    dropped: int = 0
    """Blocks of pcapng that were not written because they are neither frames nor interfaces."""
    ended: bool = False
    """Whether there are frames that the plan does not know, and that were not written."""


def anonymise(
    reader: BlockReader,
    target: str | os.PathLike[str] | IO[bytes],
    plan: Plan,
    names: Pseudonyms,
    known: Callable[[Packet], bool] | None,
    loose: Callable[[Packet, bytes], bytes],
) -> Anonymised:
    """Write every frame in the same format, with other addresses and the payloads of a plan.

    Args:
        reader: the open capture; afterwards `damage` says whether it was damaged.
        target: a path, `-` for standard output, or an open binary file.
        plan: the new payloads.
        names: the pseudonyms of addresses.
        known: returns whether a packet belongs to a known connection; the payloads of all others
            are cut off. None = they stay.
        loose: returns new bytes for a part of a TCP segment that belongs to no message.

    Raises:
        OSError: the target cannot be written; what was written ends with a whole record.

    """
    done = Anonymised()
    frames = _Frames(plan, names, known, loose)
    with BlockWriter(target) as writer:
        for block in reader:
            if block.kind == PACKET:
                if block.frame > plan.frames:
                    done.ended = True
                    break
                data = frames.rewritten(block)
                done.frames += 1
                done.cut += len(data) < block.captured
                writer.write(_record(block, data, reader))
            elif block.kind == OTHER:
                # Names, secrets, custom blocks: any of them may identify somebody.
                done.dropped += 1
            else:
                writer.write(_bare(block) if not reader.is_pcap else block.raw)
    return done


def plan_fragments(
    batches: Iterable[Sequence[Frame]],
    plan: Plan,
    names: Pseudonyms,
    known: Callable[[Packet], bool] | None,
    loose: Callable[[Packet, bytes], bytes],
) -> None:
    """Add the fragments of a capture to a plan that has everything else; arguments as above.

    A fragment does not tell what it belongs to, and may come before the one that does.
    """
    rewriter = _Frames(plan, names, known, loose)
    for frame in chain.from_iterable(batches):
        for number, new in rewriter.fragments(frame):
            plan.piece(number, new)


def _record(block: Block, data: bytes, reader: BlockReader) -> bytes:
    """Return the record of a frame with other, perhaps fewer, bytes."""
    head = bytearray(block.raw[: block.start])
    if reader.is_pcap:
        pack_into(f"{block.order}I", head, 8, len(data))
        return bytes(head) + data
    if not block.timed:
        data = data.ljust(block.captured, b"\0")  # it has only the length on the wire
    padded = data + b"\0" * (-len(data) % 4)
    if not block.timed:
        return block_bytes(3, bytes(head[8:]) + padded, block.order)
    pack_into(f"{block.order}I", head, 20, len(data))
    kept = _options(block, block.options, PACKET) if block.options else b""
    kind = int.from_bytes(head[:4], "little" if block.order == "<" else "big")
    return block_bytes(kind, bytes(head[8:]) + padded + kept, block.order)


def _bare(block: Block) -> bytes:
    """Return the description of a section or an interface without what identifies its maker."""
    if block.kind == SECTION:
        # Byte order and version without a length; the options identify machine and programs.
        body = block.raw[8:16] + pack(f"{block.order}q", -1)
        return block_bytes(0x0A0D0D0A, body, block.order)
    return block_bytes(1, block.raw[8:16] + _options(block, 16, INTERFACE), block.order)


def _options(block: Block, start: int, kind: str) -> bytes:
    kept = b"".join(
        option(code, value, block.order)
        for code, value in options(block.raw, start, len(block.raw) - 4, block.order)
        if code in _KEPT[kind]
    )
    return kept + b"\0\0\0\0" if kept else b""


class _Frames:
    """Rewrites frames in the order of the file."""

    def __init__(
        self,
        plan: Plan,
        names: Pseudonyms,
        known: Callable[[Packet], bool] | None,
        loose: Callable[[Packet, bytes], bytes],
    ) -> None:
        self._plan = plan
        self._loose = loose
        self._names = names
        self._known = known
        self._flow = Decapsulator()
        self._fragments = Fragments()
        self._sent: OrderedDict[FlowKey, tuple[bytes, bytes]] = OrderedDict()
        """Flow -> its last payload, before and after."""
        self._packet: Packet | None = None
        self._frame = 0

    def _look(self, frame: Frame) -> None:
        """Find the packet that a frame completes."""
        # Leave out data of earlier frames that waited for a gap in a TCP stream to close.
        found = [
            packet for packet in self._flow.take([frame]) if packet[0] != PacketKind.TCP_STREAM
        ]
        self._packet = found[0] if found else None
        self._frame = frame[0]

    def fragments(self, frame: Frame) -> Iterator[tuple[int, bytes]]:
        """Yield (frame, new bytes) of the fragments of the packet that a frame completes."""
        self._look(frame)
        whole = self._fragments.take(frame)
        if whole is not None:
            out = bytearray(whole.payload)
            end = self._transport(out, whole.header, whole.payload, 0)
            self._sum(out, whole.header, whole.payload)
            octets = bytes(out if self._known is None else out[:end])
            for number, at, size in whole.pieces:
                yield number, octets[at : at + size]

    def rewritten(self, block: Block) -> bytes:
        """Return the new bytes of a frame."""
        data = block.data
        self._look((block.frame, block.time_ns, block.sight, data, block.wire))
        reader = None if block.link in _PRIVATE else LINK_READERS.get(block.link)
        located = None if reader is None else skip_tags(data, reader(data))
        if located is None:
            return b""  # its addresses cannot be found
        out = bytearray(data)
        for place in _MACS.get(block.link, ()):
            self._mac(out, place)
        for place in _PADDED.get(block.link, ()):
            out[place : place + 2] = bytes(len(out[place : place + 2]))
        kind, end = located
        if kind == _ARP:
            end = self._arp(out, end)
        elif kind in IP_READERS:
            end = self._network(out, kind, end, max(block.wire, len(data)), 0)
        return bytes(out if self._known is None else out[:end])

    def _arp(self, out: bytearray, at: int) -> int:
        """Rewrite the addresses of an ARP packet; return its end."""
        if out[at + 2 : at + 6] == b"\x08\x00\x06\x04" and len(out) >= at + 28:
            for place in (at + 8, at + 18):
                self._mac(out, place)
                self._address(out, slice(place + 6, place + 10))
            return at + 28
        return at

    def _mac(self, out: bytearray, place: int) -> None:
        """Rewrite a hardware address, if all of it is there."""
        if 0 <= place <= len(out) - 6:
            out[place : place + 6] = self._names.mac(bytes(out[place : place + 6]))

    def _address(self, out: bytearray, where: slice) -> None:
        out[where] = self._names.address(bytes(out[where]))

    def _network(self, out: bytearray, kind: int, at: int, wire_end: int, depth: int) -> int:
        """Rewrite an IP packet; return the end of what may be published."""
        before = bytes(out)
        header = IP_READERS[kind](before, at, wire_end)
        if header is None or depth > MAX_DEPTH:
            return at
        self._addresses(out, kind, at)
        if header.fragment is not None:
            return self._piece(out, header)
        end = self._transport(out, header, before, depth)
        self._sum(out, header, before)
        return end

    def _addresses(self, out: bytearray, kind: int, at: int) -> None:
        """Rewrite source and destination, and the checksum of IPv4."""
        size, place = (4, at + 12) if kind == ETHERTYPE_IPV4 else (16, at + 8)
        for start in (place, place + size):
            self._address(out, slice(start, start + size))
        if kind == ETHERTYPE_IPV4:
            end = at + (out[at] & 15) * 4
            if len(out) >= end:
                self._route(out, at + _IPV4_HEADER, end)
                _check(out, at + 10, at, end)
        else:
            self._extensions(out, out[at + 6], at + _IPV6_HEADER)

    def _route(self, out: bytearray, at: int, end: int) -> None:
        """Rewrite the addresses in options of IPv4 that prescribe or record a route (RFC 791)."""
        for start, size in _items(out, at, end):
            first, step = (3, 4) if out[start] in _ROUTES else (0, 0)
            if out[start] == _TIMES and size > 4 and out[start + 3] & 15 in _WITH_ADDRESSES:  # noqa: PLR2004 - pointer and flags
                first, step = 4, 8
            for place in range(start + first, start + size - step + 1, step) if step else ():
                self._address(out, slice(place, place + 4))

    def _extensions(self, out: bytearray, kind: int, at: int) -> None:
        """Rewrite the addresses in extension headers of IPv6 (RFC 8200, 6275, 8754)."""
        while kind in OPTIONS_LIKE and at + 8 <= len(out):
            behind = at + 8 * (out[at + 1] + 1)
            end = min(behind, len(out))
            if kind == _ROUTING and out[at + 2] in _ADDRESSED:
                last = end if out[at + 2] != _SEGMENTS else at + 8 + 16 * (out[at + 4] + 1)
                for place in range(at + 8, min(last, end) - 15, 16):
                    self._address(out, slice(place, place + 16))
            elif kind == _DESTINATION:
                for place, size in _items(out, at + 2, end, ipv6=True):
                    if out[place] == _HOME_ADDRESS and size == 2 + 16:
                        self._address(out, slice(place + 2, place + size))
            elif kind in _SIGNALS:
                out[at + 8 : end] = bytes(end - at - 8)
            kind, at = out[at], behind

    def _transport(self, out: bytearray, header: IpHeader, before: bytes, depth: int) -> int:
        """Rewrite what an IP packet carries; return the end of what may be published."""
        protocol, start = header.protocol, header.start
        if protocol in (_ICMP, _ICMPV6):
            return self._icmp(out, header)
        inner = inside(header, before)
        if inner is not None:
            untagged = skip_tags(before, inner)
            if untagged is not None and untagged[0] in IP_READERS:
                self._inner_macs(out, header, inner[1])
                return self._network(out, *untagged, header.end, depth + 1)
        if protocol not in (_UDP, _TCP):
            return start
        packet = self._packet
        body = start + (_UDP_HEADER if protocol == _UDP else _data_offset(out, start))
        if protocol == _TCP:
            for place, size in _items(out, start + _TCP_HEADER, min(body, len(out))):
                if out[place] not in _TCP_OPTIONS:
                    out[place + 2 : place + size] = bytes(size - 2)
        if packet is None or (self._known is not None and not self._known(packet)):
            return body if self._known is not None else len(out)
        key, payload, segment = packet[3:6]
        if segment is not None:
            ordinal, first = segment.connection, segment.stream_start
            new = self._plan.segment(key, ordinal, first, payload, partial(self._loose, packet))
        else:
            planned = self._plan.of_frame(self._frame)
            fits = planned is not None and len(planned[1]) == len(payload)
            new = planned[1] if planned is not None and fits else payload
            self._remember(key, payload, new)
        out[body : body + len(new)] = new
        return max(body + len(new), min(len(out), header.end))

    def _inner_macs(self, out: bytearray, header: IpHeader, inner: int) -> None:
        """Rewrite the hardware addresses of the Ethernet frame in a tunnel, if there is one."""
        # Its start is computed forwards where possible: VLAN tags may follow it.
        start, carried = header.start, out[header.start + 2 : header.start + 4]
        if header.protocol == _UDP:
            start += _UDP_HEADER + _VXLAN_HEADER
        elif header.protocol == _GRE and carried == _TRANSPARENT_ETHERNET:
            start = inner - _ETHERNET_HEADER
        else:
            return
        for place in _MACS[ETHERNET]:
            self._mac(out, start + place)

    def _remember(self, key: FlowKey, old: bytes, new: bytes) -> None:
        self._sent[key] = (old, new)
        self._sent.move_to_end(key)
        if len(self._sent) > MAX_QUOTABLE:
            self._sent.popitem(last=False)

    def _icmp(self, out: bytearray, header: IpHeader) -> int:
        """Rewrite the packet that an error quotes; of other messages only the header is kept."""
        start = header.start
        quoted = start + _ICMP_HEADER
        kind = ETHERTYPE_IPV4 if header.protocol == _ICMP else ETHERTYPE_IPV6
        error = len(out) > start and out[start] in _ICMP_ERRORS[header.protocol]
        inner = IP_READERS[kind](bytes(out), quoted, header.end) if error else None
        if inner is None:
            return min(len(out), quoted)
        key = inner.addresses + bytes(out[inner.start : inner.start + 4])
        self._addresses(out, kind, quoted)
        body = inner.start + _UDP_HEADER
        rest = bytes(out[body : min(len(out), header.end)])
        old, new = self._sent.get(key, (b"", b""))
        # The quoted beginning of a datagram that was seen here changes as that datagram did;
        # unknown contents are blanked.
        known = inner.protocol == _UDP and bool(rest) and old.startswith(rest)
        out[body : body + len(rest)] = new = new[: len(rest)] if known else bytes(len(rest))
        if known:
            self._patch(out, inner, rest, new)
        return min(len(out), header.end)

    def _patch(self, out: bytearray, header: IpHeader, old: bytes, new: bytes) -> None:
        """Adapt the quoted UDP checksum; it stays wrong if it was wrong."""
        place = header.start + _CHECKSUM[_UDP]
        if out[place : place + 2] != b"\0\0":
            change = _difference(header.addresses + old, self._both(header) + new)
            _adjust(out, place, change)

    def _both(self, header: IpHeader) -> bytes:
        """Return the pseudonyms of source and destination."""
        size = len(header.addresses) // 2
        source, target = header.addresses[:size], header.addresses[size:]
        return self._names.address(source) + self._names.address(target)

    def _piece(self, out: bytearray, header: IpHeader) -> int:
        """Rewrite a fragment; return the end of what may be published."""
        new = self._plan.of_piece(self._frame)
        if new is None:
            return header.start if self._known is not None else len(out)
        out[header.start : header.start + len(new)] = new
        return header.start + len(new)

    def _sum(self, out: bytearray, header: IpHeader, before: bytes) -> None:
        """Set the checksum of what an IP packet carries."""
        protocol, start = header.protocol, header.start
        if protocol == _GRE and out[start : start + 1] and out[start] & 0x80:
            _check(out, start + 4, start, min(len(out), header.end))
        place = start + _CHECKSUM.get(protocol, 0)
        if protocol not in _CHECKSUM or len(out) < place + 2:
            return
        # 0 over IPv4: the sender did not compute a checksum (RFC 768).
        unsummed = protocol == _UDP and before[place : place + 2] == b"\0\0"
        if unsummed and len(header.addresses) == 2 * _V4:
            return
        both = self._both(header) if protocol != _ICMP else b""
        # The packet is cut: its sum cannot be computed, but can be adapted to the change.
        if header.end > len(out):
            old = b"" if protocol == _ICMP else header.addresses
            _adjust(out, place, _difference(old + before[start:], both + bytes(out[start:])))
            return
        # As 32-bit words, length and protocol have the same sum in IPv4 and IPv6.
        pseudo = both + pack(">II", header.end - start, protocol) if both else b""
        _check(out, place, start, header.end, pseudo)
        if protocol == _UDP and out[place : place + 2] == b"\0\0":
            # In UDP 0 means no checksum; 0xFFFF is the same sum (RFC 768).
            pack_into(">H", out, place, 0xFFFF)


def _items(out: bytearray, at: int, end: int, *, ipv6: bool = False) -> Iterator[tuple[int, int]]:
    """Yield (offset, size) of the options of IPv4, TCP or IPv6 but for those of one byte."""
    # Where 0 ends the options of the others, it is padding in IPv6.
    while at + 1 < end and (ipv6 or out[at]):
        if out[at] == (0 if ipv6 else _NO_OPERATION):
            at += 1
            continue
        size = out[at + 1] + (2 if ipv6 else 0)
        if size < 2 or at + size > end:  # noqa: PLR2004 - the kind and the size
            return
        yield at, size
        at += size


def _data_offset(out: bytearray, start: int) -> int:
    return (out[start + 12] >> 4) * 4 if len(out) > start + 12 else 20


def _folded(octets: bytes) -> int:
    """Return the sum of the 16-bit words with end-around carry (RFC 1071)."""
    if len(octets) & 1:
        octets += b"\0"
    # 65536 = 1 modulo 65535, so the sum of the words is a remainder.
    number = int.from_bytes(octets, "big")
    return number and (number % 0xFFFF or 0xFFFF)


def _check(out: bytearray, place: int, start: int, end: int, pseudo: bytes = b"") -> None:
    """Set the checksum at `place` over the bytes from `start` to `end` and a pseudo header."""
    pack_into(">H", out, place, 0)
    pack_into(">H", out, place, _folded(pseudo + bytes(out[start:end])) ^ 0xFFFF)


def _difference(old: bytes, new: bytes) -> int:
    return (_folded(new) - _folded(old)) % 0xFFFF


def _adjust(out: bytearray, place: int, change: int) -> None:
    """Adapt a checksum to a change in the sum of its words (RFC 1624)."""
    if change and len(out) >= place + 2:
        held = int.from_bytes(out[place : place + 2], "big")
        held = ((held ^ 0xFFFF) + change) % 0xFFFF
        pack_into(">H", out, place, held ^ 0xFFFF)
