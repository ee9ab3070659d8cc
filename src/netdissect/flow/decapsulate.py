"""From frames to packets: a fast path for ordinary frames, and a general one for all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from netdissect.flow.codes import CAPTURE_DUPLICATE, SNAPPED, UDP_LENGTH, joined
from netdissect.flow.duplicates import DuplicateFilter, is_mirrored
from netdissect.flow.flowfilter import FlowFilter
from netdissect.flow.fragments import Fragment, FragmentTable
from netdissect.flow.interfaces import Interfaces
from netdissect.flow.ip import IP_READERS, IpHeader
from netdissect.flow.links import (
    ETHERNET,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    LINK_READERS,
    capture_place,
    skip_tags,
)
from netdissect.flow.segments import read_segment
from netdissect.flow.stats import FlowStats
from netdissect.flow.streams import TcpStreams
from netdissect.flow.tunnels import MAX_DEPTH, inside_ip, inside_udp
from netdissect.model.native import read_i64_be
from netdissect.model.packets import LINK_BITS, LINK_TYPE, PORT_UNREACHABLE, PacketKind
from netdissect.model.sinks import FrameSink, PacketList, PacketSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mypy_extensions import i64

    from netdissect.flow.links import Located
    from netdissect.model.packets import FlowKey, Frame, Packet

_ICMP: Final = 1
_TCP: Final = 6
_UDP: Final = 17
_ICMPV6: Final = 58
"""IP protocol numbers."""
_QUOTED: Final = {_TCP: "tcp", _UDP: "udp"}
"""IP protocol -> transport of what an error may quote."""
_UDP_HEADER: Final = 8
_ICMP_HEADER: Final = 8
"""Sizes of headers, bytes."""
_LEAST_QUOTED: Final = 8
"""Least that an error quotes of what IP carried, bytes. Source: RFC 792."""
_UNREACHABLE: Final = {
    _ICMP: {
        b"\x03\x00": "network unreachable",
        b"\x03\x01": "host unreachable",
        b"\x03\x02": "protocol unreachable",
        b"\x03\x03": PORT_UNREACHABLE,
        b"\x03\x06": "network unknown",
        b"\x03\x07": "host unknown",
        b"\x03\x09": "network administratively prohibited",
        b"\x03\x0a": "host administratively prohibited",
        b"\x03\x0d": "communication administratively prohibited",
    },
    _ICMPV6: {
        b"\x01\x00": "no route to destination",
        b"\x01\x01": "communication administratively prohibited",
        b"\x01\x03": "address unreachable",
        b"\x01\x04": PORT_UNREACHABLE,
        b"\x01\x05": "prohibited by the policy for source addresses",
        b"\x01\x06": "route to destination rejected",
    },
}
"""IP protocol -> type and code of an error -> why the destination is unreachable.
Source: RFC 792, RFC 1122 section 3.2.2.1, RFC 1812 section 5.2.7.1, RFC 4443 section 3.1.
"""
_VXLAN: Final = 4789
"""UDP port of VXLAN. Source: RFC 7348."""
_VXLAN_PORT: Final = _VXLAN.to_bytes(2, "big")

_IPV4_PLAIN: Final = 0x0800_45
"""Ethernet type of IPv4, then version and header length of a header without options."""
_USUAL_OCTETS: Final = 42
"""Size of the headers of Ethernet, IPv4 and UDP, bytes: 14 + 20 + 8."""


class Capture(Protocol):
    """A capture that passes its frames on by calls."""

    def head(self) -> Sequence[Frame]:
        """Return some of the first frames, before `feed`."""

    def feed(self, taker: FrameSink, after: Callable[[], None] | None = None) -> None:
        """Pass all frames to the taker; `after` is called from time to time."""


class Decapsulator(FrameSink):
    """Turns the frames of one capture into packets. It holds fragments and TCP streams."""

    __slots__ = (
        "_duplicates", "_filter", "_fragments", "_interface", "_interfaces", "_into", "_mirrored",
        "_streams", "_usual_link", "stats",
    )  # fmt: skip

    def __init__(self, skips: FlowFilter | None = None) -> None:
        """Create a decapsulator. Of the flows that `skips` selects only frames are counted."""
        self._filter = skips
        self.stats = FlowStats()
        """Counters of the frames and packets so far."""
        self._fragments = FragmentTable(self.stats)
        self._streams = TcpStreams(self.stats)
        self._duplicates = DuplicateFilter()
        self._interfaces = Interfaces()
        self._interface = -1
        """Interface of the current frame; -1 in a capture of one interface."""
        self._into: PacketSink = PacketList()
        self._mirrored = False
        """Whether the capture holds every packet twice."""
        self._usual_link: i64 = ETHERNET
        """Link type of the frames that the fast path takes; -1 = none."""

    def packets(self, frames: Iterable[Frame]) -> Iterator[Packet]:
        """Yield the packets of the frames, each as soon as it is complete, then those left over."""
        for frame in frames:
            yield from self.take((frame,))
        yield from self._rest()

    def batches(self, batches: Iterable[Sequence[Frame]]) -> Iterator[list[Packet]]:
        """Yield the same packets as one list per batch of frames, which costs less."""
        for frames in batches:
            yield self.take(frames)
        yield self._rest()

    def take(self, frames: Sequence[Frame]) -> list[Packet]:
        """Return the packets that these frames complete; more frames may follow."""
        if not self.stats.frames:
            self._begin(frames)
        taken = self._into = PacketList()
        for number, time_ns, link, data, wire in frames:
            self.frame(number, time_ns, link, data, 0, len(data), wire)
        return taken.packets

    def hand_over(
        self, capture: Capture, into: PacketSink, after: Callable[[], None] | None = None
    ) -> None:
        """Pass the packets of a whole capture to a taker, without creating lists or frame objects.

        `after` is called after each batch of frames.
        """
        self._into = into
        self._begin(capture.head())
        capture.feed(self, after)
        for packet in self._rest():
            into.packet(packet)

    def _begin(self, frames: Sequence[Frame]) -> None:
        """Look at the first frames of the capture."""
        if is_mirrored(frames):
            self._mirrored = True
            self._usual_link = -1

    def frame(
        self, number: i64, time_ns: i64, link: i64, data: bytes, start: i64, stop: i64, wire: i64
    ) -> None:
        """Pass on the packets that this frame completes. An ordinary one is read as four words."""
        self.stats.frames += 1
        if stop - start < _USUAL_OCTETS or link != self._usual_link:
            self._general((number, time_ns, link, data[start:stop], wire))
            return
        # Ethernet type, version and header length, service, total length, identification.
        first = read_i64_be(data, start + 12)
        # Fragment bits, time to live, protocol, checksum, two bytes of an address.
        second = read_i64_be(data, start + 20)
        end = start + 14 + (first >> 16 & 0xFFFF)
        # It has options, is a fragment, or is cut by the snap length.
        if first >> 40 & 0xFF_FFFF != _IPV4_PLAIN or second >> 48 & 0x3FFF or stop < end:
            self._general((number, time_ns, link, data[start:stop], wire))
            return
        protocol = second >> 32 & 0xFF
        if protocol == _UDP:
            # Ports, length, checksum.
            third = read_i64_be(data, start + 34)
            length = third >> 16 & 0xFFFF
            # Its length is that of IP, and it is no tunnel.
            if (
                length == end - start - 34
                and length >= _UDP_HEADER
                and third >> 32 & 0xFFFF != _VXLAN
            ):
                addresses = read_i64_be(data, start + 26)
                ports = third >> 32 & 0xFFFF_FFFF
                into, skips = self._into, self._filter
                if skips is not None and skips.skips_ipv4_udp(addresses, ports):
                    into.tick(number, time_ns)
                    return
                self.stats.udp += 1
                payload = data[start + 42 : end]
                # A key is only created for a flow that the taker does not know by these numbers.
                if not into.ipv4_datagram(number, time_ns, addresses, ports, payload):
                    into.datagram(number, time_ns, data[start + 26 : start + 38], payload)
                return
        elif protocol == _TCP:
            key = data[start + 26 : start + 38]
            skips = self._filter
            if skips is not None and skips.skips_tcp(key):
                self._into.tick(number, time_ns)
                return
            segment = read_segment(data, start + 34, end)
            if segment[5] >= 0:
                ip_id = int(first & 0xFFFF)
                self._streams.take(key, segment, number, time_ns, ip_id, self._into)
                return
        self._general((number, time_ns, link, data[start:stop], wire))

    def _rest(self) -> list[Packet]:
        """Return the packets that are left at the end of the capture."""
        self._fragments.finish()
        return list(self._streams.finish())

    # -- the general path --------------------------------------------------------------------------

    def _general(self, frame: Frame) -> None:
        """Pass on the packets that a frame of any kind completes."""
        into = self._into
        for packet in self._frame(frame):
            into.packet(packet)

    def _frame(self, frame: Frame) -> list[Packet]:
        """Return the packets that a frame of any kind completes."""
        _, time_ns, link, data, wire = frame
        self._interface = (link >> LINK_BITS) - 1
        link &= LINK_TYPE
        reader = LINK_READERS.get(link)
        if reader is None:
            self.stats.unknown_link[link] = self.stats.unknown_link.get(link, 0) + 1
            return []
        located = reader(data)
        place = capture_place(link, data)
        if self._interface >= 0:
            self._interfaces.frame(self._interface)
            place = self._interface.to_bytes(4, "big") + (place or b"")
        faults: tuple[str, ...] = ()
        if self._is_duplicate(data, located, place, time_ns):
            self.stats.capture_duplicates += 1
            faults = (CAPTURE_DUPLICATE,)
        # A damaged record may state fewer bytes on the wire than it holds.
        wire_end = max(wire, len(data))
        return self._network(frame, data, located, wire_end=wire_end, faults=faults, depth=0)

    def _is_duplicate(
        self, data: bytes, located: Located, place: bytes | None, time_ns: int
    ) -> bool:
        """Return whether the packet of a frame was captured before. In other captures of one
        interface (no place) than those of mirror ports, none was.
        """
        if place is None and not self._mirrored:
            return False
        untagged = skip_tags(data, located)
        packet = data[located[1] if untagged is None else untagged[1] :]
        if place is None:
            return self._duplicates.is_second(packet, time_ns)
        return self._duplicates.is_duplicate(packet, place, time_ns)

    def _network(
        self,
        frame: Frame,
        data: bytes,
        located: Located,
        *,
        wire_end: int,
        faults: tuple[str, ...],
        depth: int,
    ) -> list[Packet]:
        """Return the packets of the network packet at `located`, inside `depth` tunnels."""
        untagged = skip_tags(data, located)
        if untagged is None or depth > MAX_DEPTH:
            self.stats.too_deep += 1
            return []
        kind, pos = untagged
        if kind not in IP_READERS:
            self.stats.non_ip += 1
            return []
        header = IP_READERS[kind](data, pos, wire_end)
        if header is None:
            self.stats.malformed += 1
            return []
        header = header._replace(faults=joined(faults, *header.faults)) if faults else header
        if header.fragment is None:
            return self._transport(frame, data, header, depth)
        return self._fragment(frame, data, header, depth)

    def _fragment(self, frame: Frame, data: bytes, header: IpHeader, depth: int) -> list[Packet]:
        """Add a fragment; return the packets of the datagram that it completes."""
        self.stats.fragments += 1
        # A fragment that is cut by the snap length completes nothing.
        if header.fragment is None or header.end > len(data):
            self.stats.fragments_bad += 1
            return []
        identity, offset, more = header.fragment
        octets = data[header.start : header.end]
        piece = Fragment(identity, offset, more, octets, header.protocol, header.faults)
        found = self._fragments.add(piece, frame[1])
        if found is None:
            return []
        whole = header._replace(
            protocol=found.protocol, start=0, end=len(found.data), fragment=None,
            faults=found.faults,
        )  # fmt: skip
        return self._transport(frame, found.data, whole, depth)

    def _transport(self, frame: Frame, data: bytes, header: IpHeader, depth: int) -> list[Packet]:
        protocol = header.protocol
        if protocol == _UDP:
            return self._udp(frame, data, header, depth)
        if protocol == _TCP:
            return self._tcp(frame, data, header)
        if protocol in _UNREACHABLE:
            return self._icmp(frame, data, header)
        inner = inside_ip(protocol, data, header.start)
        if inner is None:
            self.stats.other_protocols += 1
            return []
        self.stats.tunnelled += 1
        return self._network(
            frame, data, inner, wire_end=header.end, faults=header.faults, depth=depth + 1
        )

    def _udp(self, frame: Frame, data: bytes, header: IpHeader, depth: int) -> list[Packet]:
        start, end, faults = header.start, header.end, header.faults
        body = start + _UDP_HEADER
        if len(data) < body or end < body:
            self.stats.malformed += 1
            return []
        length = int.from_bytes(data[start + 4 : start + 6], "big")
        if length != end - start:
            faults = joined(faults, UDP_LENGTH)
            # If it is less than IP carries, the rest is padding. It cannot be more.
            if _UDP_HEADER <= length < end - start:
                end = start + length
        snapped = end > len(data)
        if snapped:
            faults = joined(faults, SNAPPED)
        if data[start + 2 : start + 4] == _VXLAN_PORT:
            inner = inside_udp(data, body)
            if inner is not None:
                self.stats.tunnelled += 1
                return self._network(
                    frame, data, inner, wire_end=end, faults=faults, depth=depth + 1
                )
        key = self._key(header.addresses + data[start : start + 4], faults)
        if self._skips(key, frame, _UDP):
            return []
        self.stats.udp += 1
        self.stats.snapped += snapped
        return [(PacketKind.UDP, frame[0], frame[1], key, data[body:end], None, faults)]

    def _key(self, key: FlowKey, faults: tuple[str, ...]) -> FlowKey:
        """Return the key of the flow of a packet with these endpoints."""
        if self._interface < 0:
            return key
        return self._interfaces.key(key, self._interface, new=CAPTURE_DUPLICATE not in faults)

    def _skips(self, key: FlowKey, frame: Frame, protocol: int) -> bool:
        """Return whether a flow is skipped; then only the time of the frame is passed on."""
        chosen = self._filter
        if chosen is None:
            return False
        if not (chosen.skips_udp(key) if protocol == _UDP else chosen.skips_tcp(key)):
            return False
        self._into.tick(frame[0], frame[1])
        return True

    def _tcp(self, frame: Frame, data: bytes, header: IpHeader) -> list[Packet]:
        segment = read_segment(data, header.start, header.end)
        if segment[5] < 0:
            self.stats.malformed += 1
            return []
        key = self._key(header.addresses + data[header.start : header.start + 4], header.faults)
        if self._skips(key, frame, _TCP):
            return []
        taken = PacketList()
        self._streams.take(
            key, segment, frame[0], frame[1], header.ip_id, taken, header.faults
        )
        return taken.packets

    def _icmp(self, frame: Frame, data: bytes, header: IpHeader) -> list[Packet]:
        """Return the packet of an error that quotes a datagram or segment."""
        start = header.start
        reason = _UNREACHABLE[header.protocol].get(data[start : start + 2])
        quoted = None
        if reason is not None:
            kind = ETHERTYPE_IPV4 if header.protocol == _ICMP else ETHERTYPE_IPV6
            # The quoted packet is cut to what fits, so its own length is no limit.
            quoted = IP_READERS[kind](data, start + _ICMP_HEADER, header.end)
        if (
            reason is None
            or quoted is None
            or quoted.protocol not in _QUOTED
            or (quoted.fragment is not None and quoted.fragment[1])
            or len(data) < quoted.start + _LEAST_QUOTED
        ):
            self.stats.other_protocols += 1
            return []
        key = quoted.addresses + data[quoted.start : quoted.start + 4]
        # The interface of the error need not be one on which the quoted packet was captured.
        key = self._key(key, (CAPTURE_DUPLICATE,))
        if self._skips(key, frame, quoted.protocol):
            return []
        self.stats.icmp_unreachable += 1
        payload = f"{_QUOTED[quoted.protocol]} {reason}".encode()
        kind_of = PacketKind.ICMP_UNREACHABLE
        return [(kind_of, frame[0], frame[1], key, payload, None, header.faults)]


def packets(frames: Iterable[Frame]) -> Iterator[Packet]:
    """Yield the packets of a capture's frames. For the counters, use a `Decapsulator`."""
    return Decapsulator().packets(frames)
