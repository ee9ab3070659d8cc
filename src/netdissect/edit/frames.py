"""Sets of frame numbers, and the frames that belong together because a datagram was fragmented."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from netdissect.flow import Decapsulator
from netdissect.flow.fragments import FRAGMENT_TIMEOUT_NS, Fragment, FragmentTable
from netdissect.flow.ip import IP_READERS, IpHeader
from netdissect.flow.links import LINK_READERS, skip_tags
from netdissect.flow.stats import FlowStats
from netdissect.flow.tunnels import MAX_DEPTH, inside
from netdissect.model.errors import UsageError
from netdissect.model.packets import LINK_TYPE, Frame, Packet, flow_endpoints
from netdissect.model.reports import ConnectionReport
from netdissect.model.text import quoted

MAX_PENDING = 4096
"""Fragmented datagrams followed at once; beyond, the oldest are forgotten, and their pieces not
kept together.
"""
MAX_PIECES = 8192
"""Fragments of a packet that are kept together: as many as there are offsets. Of more, which repeat
others, the newest are.
"""
_RANGE = re.compile(r"([0-9]{1,12})(?:(-)([0-9]{1,12})?)?")


class FrameSet:
    """A set of frame numbers: one bit per frame, so that it is small for a large capture."""

    __slots__ = ("_bits",)

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._bits = bytearray()
        for number in numbers:
            self.add(number)

    def add(self, number: int) -> None:
        """Add a frame number, from 1."""
        place = number >> 3
        if place >= len(self._bits):
            # An eighth more than needed: else nearly every frame would copy the set.
            self._bits.extend(bytes(place + 1 - len(self._bits) + (len(self._bits) >> 3)))
        self._bits[place] |= 1 << (number & 7)

    def __contains__(self, number: int) -> bool:
        place = number >> 3
        return place < len(self._bits) and bool(self._bits[place] >> (number & 7) & 1)

    def __len__(self) -> int:
        return int.from_bytes(self._bits, "little").bit_count()

    def __bool__(self) -> bool:
        return any(self._bits)


def parse_frames(text: str) -> list[tuple[int, int | None]]:
    """Return the ranges of `1-100,250,300-` as (first, last); last None = to the end.

    Raises:
        UsageError: the text is not of this form.

    """
    found: list[tuple[int, int | None]] = []
    for word in text.split(","):
        match = _RANGE.fullmatch(word.strip())
        if match is None or (match[3] and int(match[3]) < int(match[1])) or not int(match[1]):
            given = quoted(word.strip())
            raise UsageError(f"frames are written 1-100,250,300-; {given} is no range")
        last = int(match[3]) if match[3] else None if match[2] else int(match[1])
        found.append((int(match[1]), last))
    return found


def pieces(
    batches: Iterable[Sequence[Frame]], wanted: Callable[[Packet], bool]
) -> Iterator[int]:
    """Yield the frames of the packets that are wanted, with all fragments of a fragmented one.

    The order is not that of the file: whether a fragment belongs is known when its datagram is
    complete.
    """
    for packet, found in assembled(batches):
        if wanted(packet):
            yield packet[1]
            yield from found


def of_connections(reports: Iterable[ConnectionReport]) -> Callable[[Packet], bool]:
    """Return a function that returns whether a packet went between the endpoints of one of these
    connections, while that connection lasted.
    """
    spans: dict[tuple[str, frozenset[str]], list[tuple[int, int]]] = {}
    for report in reports:
        ends = frozenset({report.client, report.server})
        span = report.first_frame, report.last_frame
        spans.setdefault((report.transport, ends), []).append(span)

    def known(packet: Packet) -> bool:
        transport = "tcp" if packet[5] is not None else "udp"
        ends = frozenset(map(str, flow_endpoints(packet[3])))
        found = spans.get((transport, ends), ())
        return any(first <= packet[1] <= last for first, last in found)

    return known


def assembled(batches: Iterable[Sequence[Frame]]) -> Iterator[tuple[Packet, tuple[int, ...]]]:
    """Yield each packet, with the frames of the fragments that it was joined from."""
    flow, fragments = Decapsulator(), Fragments()
    for frame in chain.from_iterable(batches):
        packets, whole = flow.take([frame]), fragments.take(frame)
        numbers = () if whole is None else tuple(number for number, _, _ in whole.pieces)
        for packet in packets:
            yield packet, numbers


class Whole(NamedTuple):
    """A fragmented IP packet that is complete."""

    header: IpHeader
    """Its header, as that of a packet that begins with its payload."""
    payload: bytes
    pieces: Sequence[tuple[int, int, int]]
    """(frame, offset in the payload, size) of its fragments."""


class Fragments:
    """The frames of the fragmented IP packets of a capture, also of those in tunnels."""

    def __init__(self) -> None:
        self._table = FragmentTable(FlowStats())
        self._pending: OrderedDict[bytes, tuple[int, deque[tuple[int, int, int]]]] = OrderedDict()
        """Identity -> time of the first fragment, and the pieces so far."""

    def take(self, frame: Frame) -> Whole | None:
        """Return the packet that a frame completes with its fragment."""
        number, time_ns, _, data, _ = frame
        header = fragment_of(frame)
        # As when capturing, a fragment that is cut by the snap length completes nothing.
        if header is None or header.fragment is None or header.end > len(data):
            return None
        identity, offset, more = header.fragment
        since_ns, pieces = self._pending.get(identity, (time_ns, deque(maxlen=MAX_PIECES)))
        # The identification was used again: older fragments are of a packet that was given up.
        if time_ns - since_ns >= FRAGMENT_TIMEOUT_NS:
            since_ns = time_ns
            pieces.clear()
        octets = data[header.start : header.end]
        pieces.append((number, offset, len(octets)))
        self._pending[identity] = since_ns, pieces
        if len(self._pending) > MAX_PENDING:
            self._pending.popitem(last=False)
        fragment = Fragment(identity, offset, more, octets, header.protocol, ())
        found = self._table.add(fragment, time_ns)
        if found is None:
            return None
        self._pending.pop(identity, None)
        whole = header._replace(
            protocol=found.protocol, start=0, end=len(found.data), fragment=None
        )
        return Whole(whole, found.data, pieces)


def fragment_of(frame: Frame) -> IpHeader | None:
    """Return the header of the fragment that a frame contains, perhaps in tunnels; None if the
    frame contains no fragment.
    """
    _, _, link, data, wire = frame
    reader = LINK_READERS.get(link & LINK_TYPE)
    located = None if reader is None else reader(data)
    end = max(wire, len(data))
    for _ in range(MAX_DEPTH + 1):
        located = None if located is None else skip_tags(data, located)
        if located is None or located[0] not in IP_READERS:
            return None
        header = IP_READERS[located[0]](data, located[1], end)
        if header is None or header.fragment is not None:
            return header
        located, end = inside(header, data), header.end
    return None
