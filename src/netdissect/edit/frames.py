"""Sets of frame numbers, and the frames that belong together because a datagram was fragmented."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from netdissect.flow import Decapsulator
from netdissect.flow.ip import IP_READERS
from netdissect.flow.links import LINK_READERS, skip_tags
from netdissect.model.errors import UsageError
from netdissect.model.packets import LINK_TYPE, Frame, Packet, flow_endpoints
from netdissect.model.reports import ConnectionReport
from netdissect.model.text import quoted

MAX_PENDING = 4096
"""Fragmented datagrams followed at once; beyond, the oldest are forgotten, and their pieces not
kept together.
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


def pieces(frames: Iterable[Frame], wanted: Callable[[Packet], bool]) -> Iterator[int]:
    """Yield the frames of the packets that are wanted, with all fragments of a fragmented one.

    The order is not that of the file: whether a fragment belongs is known when its datagram is
    complete.
    """
    for packet, found in assembled(frames):
        if wanted(packet):
            yield packet[1]
            yield from (frame for frame, _ in found)


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


def assembled(frames: Iterable[Frame]) -> Iterator[tuple[Packet, list[tuple[int, int]]]]:
    """Yield each packet, with (frame, offset) of its fragments."""
    pending: OrderedDict[bytes, list[tuple[int, int]]] = OrderedDict()
    at_hand: list[Frame] = []

    # One at a time, so that the frame that completes a packet is known.
    def singly() -> Iterator[list[Frame]]:
        for frame in frames:
            at_hand[:] = [frame]
            yield [frame]

    for packets in Decapsulator().batches(singly()):
        frame = at_hand[0] if at_hand else None
        piece = None if frame is None else _fragment(frame)
        if frame is not None and piece is not None:
            pending.setdefault(piece[0], []).append((frame[0], piece[1]))
            if len(pending) > MAX_PENDING:
                pending.popitem(last=False)
        # The datagram is complete: further fragments with this identification are another one.
        whole = pending.pop(piece[0], []) if piece is not None and packets else []
        for packet in packets:
            yield packet, whole


def _fragment(frame: Frame) -> tuple[bytes, int] | None:
    """Return the identification of the datagram that a frame contains a fragment of, and the
    fragment's offset; None for a whole datagram.
    """
    _, _, link, data, wire = frame
    reader = LINK_READERS.get(link & LINK_TYPE)
    located = None if reader is None else skip_tags(data, reader(data))
    if located is None or located[0] not in IP_READERS:
        return None
    header = IP_READERS[located[0]](data, located[1], max(wire, len(data)))
    return header.fragment[:2] if header is not None and header.fragment is not None else None
