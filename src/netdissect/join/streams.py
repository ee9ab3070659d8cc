"""Compares TCP connections that a proxy relays.

A proxy sends the same stream in other segments, so no segment has a fate. Such connections are
compared byte by byte, and in time by when a byte was first seen in each capture.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain
from operator import itemgetter
from typing import Final

from netdissect.capture import open_capture
from netdissect.flow import Decapsulator
from netdissect.flow.flowfilter import SkipUdp
from netdissect.join.clock import Anchor, Clock
from netdissect.join.sample import Flow, FlowId, Sample
from netdissect.model.joined import StreamReport
from netdissect.model.packets import reverse_key
from netdissect.model.segments import StreamPiece
from netdissect.track.reservoir import RttReservoir

MAX_AHEAD_OCTETS = 4 * 1024 * 1024
"""Bytes of one stream that wait for those of the other; beyond, the comparison ends."""
MAX_APART_NS: Final = 10_000_000_000
"""Two connections with one stream are at most this far apart, common time."""
MAX_COMPARED: Final = 1000
"""Conversations of the other capture that one is compared with: those that begin nearest to it."""
_MIN_ALIKE: Final = 8
"""Bytes that two streams must have in common to count as one."""

_Sides = tuple[Flow, Flow | None]
"""(flow of the side that sent first, reverse flow)."""
Streams = tuple[_Sides, _Sides]
"""The flows of the same connection in A and in B."""


def stream_pairs(a: Sample, b: Sample, matched: set[tuple[int, FlowId]]) -> list[Streams]:
    """Return the TCP connections whose streams begin alike in both directions.

    Args:
        a: sample of the first capture.
        b: sample of the second.
        matched: (capture, flow) of what was matched as datagrams.

    """
    found: list[Streams] = []
    ours = _conversations(a, 0, matched)
    theirs = _conversations(b, 1, matched)
    theirs.sort(key=lambda other: other[0].first_ns)
    starts = [other[0].first_ns for other in theirs]
    for conversation in ours:
        index = _nearest_alike(conversation, theirs, starts)
        if index is not None:
            found.append((conversation, theirs.pop(index)))
            del starts[index]
    return found


def _nearest_alike(one: _Sides, others: list[_Sides], starts: list[int]) -> int | None:
    """Return the index of the conversation like this one that begins nearest to it.

    Only the MAX_COMPARED nearest ones are considered; return None if none of them is like it.

    Args:
        one: the conversation.
        others: those of the other capture, in order of time.
        starts: when each of them begins.

    """
    start = one[0].first_ns
    after = bisect_left(starts, start)
    before = after - 1
    for _ in range(min(MAX_COMPARED, len(others))):
        earlier = after == len(others) or (
            before >= 0 and start - starts[before] < starts[after] - start
        )
        index = before if earlier else after
        if _alike(one, others[index]):
            return index
        before, after = (before - 1, after) if earlier else (before, after + 1)
    return None


def _conversations(sample: Sample, capture: int, matched: set[tuple[int, FlowId]]) -> list[_Sides]:
    """Return the TCP conversations of a capture that were not matched as datagrams."""
    found: dict[FlowId, _Sides] = {}
    for flow_id, flow in sample.flows.items():
        if not flow.tcp or (capture, flow_id) in matched:
            continue
        back = (True, reverse_key(flow.key))
        if back in found:
            found[back] = (found[back][0], flow)
        else:
            found[flow_id] = (flow, None)
    return list(found.values())


def _alike(one: _Sides, other: _Sides) -> bool:
    """Return whether two TCP conversations begin with the same bytes, and with enough of them."""
    octets = 0
    for ours, theirs in zip(one, other, strict=True):
        # A direction without data, or that was not captured, contradicts nothing.
        if ours is not None and theirs is not None:
            size = min(len(ours.prefix), len(theirs.prefix))
            if ours.prefix[:size] != theirs.prefix[:size]:
                return False
            octets += size
    return octets >= _MIN_ALIKE


def stream_anchors(pairs: list[Streams]) -> list[Anchor]:
    """Return, for some bytes, when each capture first saw them; their direction is open."""
    found: list[Anchor] = []
    for ours, theirs in pairs:
        for one, other in zip(ours, theirs, strict=True):
            if one is not None and other is not None:
                found += _anchors(one, other)
    return found


def _anchors(one: Flow, other: Flow) -> Iterator[Anchor]:
    """Yield when each capture saw the bytes that end a segment in either of them, or, where a
    stream is so long that only some of its segments were noted, bytes at equal distances.
    """
    stride = max(one.stride, other.stride)
    for swap, (first, second) in enumerate(((one, other), (other, one))):
        ends = [mark[1] for mark in second.marks]
        for start, end, frame, time_ns in first.marks:
            octets = end - end % stride
            index = bisect_left(ends, octets)
            if index == len(ends):
                break
            start_there, _, frame_there, there_ns = second.marks[index]
            # Neither of them may only be the next one that was noted.
            if max(start, start_there) >= octets:
                continue
            here, there = (frame, time_ns), (frame_there, there_ns)
            a, b = (there, here) if swap else (here, there)
            yield Anchor(*a, *b, one.number, other.number, 0)


@dataclass(slots=True)
class _Comparison:
    """The comparison of one direction of a stream."""

    toward: int
    waiting: list[bytearray] = field(default_factory=lambda: [bytearray(), bytearray()])
    octets: list[int] = field(default_factory=lambda: [0, 0])
    compared: int = 0
    differs_at: int | None = None
    ended: bool = False
    """Whether the comparison has stopped: at a gap, or because too many bytes wait."""

    def feed(self, capture: int, piece: StreamPiece) -> None:
        """Compare further bytes of one capture."""
        self.octets[capture] += len(piece.data) + piece.gap_octets
        if piece.gap_octets:
            self.ended = True
        if self.ended or self.differs_at is not None:
            return
        self.waiting[capture] += piece.data
        one, other = self.waiting
        size = min(len(one), len(other))
        if one[:size] != other[:size]:
            same = next(i for i in range(size) if one[i] != other[i])
            self.differs_at = self.compared + same
        self.compared += size
        del one[:size], other[:size]
        self.ended = max(len(one), len(other)) > MAX_AHEAD_OCTETS

    def report(self, flows: tuple[Flow | None, Flow | None], clock: Clock) -> StreamReport:
        """Return the result."""
        sender = 0 if self.toward > 0 else 1
        if self.differs_at is None and not self.ended and self.octets[0] != self.octets[1]:
            # The longer stream differs from the shorter one where that ends.
            self.differs_at = min(self.octets)
        equal = None if self.ended and self.differs_at is None else self.differs_at is None
        delays = RttReservoir()
        if flows[0] is not None and flows[1] is not None:
            for anchor in _anchors(flows[0], flows[1]):
                there = clock.common(1, anchor.frame_b, anchor.b_ns)
                here = clock.common(0, anchor.frame_a, anchor.a_ns)
                delays.add(self.toward * (there - here))
        return StreamReport(
            sender, (self.octets[0], self.octets[1]), equal, self.differs_at, delays.summary()
        )


def compare(
    paths: tuple[str, str], pairs: list[tuple[Streams, int]], clock: Clock
) -> list[list[StreamReport]]:
    """Compare each pair of connections; return both directions, first that of A's first side.

    Args:
        paths: the captures.
        pairs: with +1 if what the first side sends goes from A to B, else -1.
        clock: the relation of their clocks.

    """
    if not pairs:
        return []
    ways = [(_Comparison(toward), _Comparison(-toward)) for _, toward in pairs]
    lookup: tuple[dict[bytes, _Comparison], dict[bytes, _Comparison]] = ({}, {})
    for number, (streams, _) in enumerate(pairs):
        for capture in (0, 1):
            for side in (0, 1):
                first = streams[capture][0]
                key = reverse_key(first.key) if side else first.key
                lookup[capture][key] = ways[number][side]
    sides = [_octets(path, capture, lookup[capture], clock) for capture, path in enumerate(paths)]
    # In order of time, so that neither capture gets far ahead of the other.
    for _, capture, comparison, piece in merge(*sides, key=itemgetter(0)):
        comparison.feed(capture, piece)
    return [
        [both[side].report((streams[0][side], streams[1][side]), clock) for side in (0, 1)]
        for both, (streams, _) in zip(ways, pairs, strict=True)
    ]


def _octets(
    path: str, capture: int, ways: dict[bytes, _Comparison], clock: Clock
) -> Iterator[tuple[int, int, _Comparison, StreamPiece]]:
    """Yield (common time, capture, comparison, bytes) of the streams."""
    connections: dict[bytes, int] = defaultdict(int)
    with open_capture(path) as reader:
        batches = Decapsulator(SkipUdp()).batches(reader.batches())
        for packet in chain.from_iterable(batches):
            segment, way = packet[5], ways.get(packet[3])
            if segment is None or way is None:
                continue
            connections[packet[3]] = connections[packet[3]] or segment.connection
            # Ports may be reused: only their first connection is compared.
            if segment.connection != connections[packet[3]]:
                continue
            common = clock.common(capture, packet[1], packet[2])
            for piece in segment.stream:
                yield common, capture, way, piece
