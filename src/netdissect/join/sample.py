"""The first pass over a capture: all packets as `Rows`, and a bounded sample of their tokens.

The sample says which tokens occur, when, and in which flow. Both captures must sample the same
packets, so packets are selected by a hash of their content: while the sample is too large, those
whose hash has one more of its low bits set are discarded, in both captures alike. The first packets
of each flow are always kept, so that short flows can be compared as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from netdissect.capture import CaptureReader, open_capture
from netdissect.flow import Decapsulator
from netdissect.join.clock import Clock
from netdissect.join.rows import Rows
from netdissect.join.tokens import NO_LIMIT, Tokens, sampling_key
from netdissect.model.packets import FlowKey, Frame, Packet, PacketKind
from netdissect.model.reports import CaptureInfo
from netdissect.model.segments import TcpSegment
from netdissect.model.sinks import FrameSink, PacketSink
from netdissect.pipeline.handlers import DatagramHandler
from netdissect.pipeline.table import HandlerTable, place_of

if TYPE_CHECKING:
    from mypy_extensions import i64

MAX_SAMPLED = 65_536
"""Tokens in the sample of a capture; beyond, half of them are discarded."""
MAX_SELECTED = 4096
"""Tokens of the sample that are not of the first packets of a flow."""
MAX_OCCURRENCES = 64
"""Occurrences kept of one token. Further ones are only counted, except for the first packets of a
flow."""
MAX_ALL_OCCURRENCES = 400_000
"""Occurrences kept of all tokens, not counting the first of each."""
MAX_FLOWS = 50_000
"""Flows of a capture; the packets of further ones are not compared."""
MAX_JUMPS = 4096
"""Jumps of a capture's clock that are remembered."""
MAX_MARKS = 2048
"""Marks of one TCP direction, at which two streams are compared in time."""
MAX_ALL_MARKS = 65_536
"""Marks of all TCP directions of a capture; beyond, each of them has half as many."""
_LEAST_MARKS: Final = 4
"""Marks that each TCP direction may have in any case."""
ALWAYS_SAMPLED: Final = 16
"""First packets of each flow that are in the sample whatever their hash."""
JUMP_NS: Final = 200_000_000
"""A pause this long, or any step back, may mean that the clock was set."""
PREFIX: Final = 64
"""First bytes of a TCP stream that decide whether two streams can be the same."""
_ALL_BITS: Final = 0xFFFFFFFF

_TCP_KINDS: Final = (PacketKind.TCP, PacketKind.TCP_STREAM)

Occurrence = tuple[int, int, int]
"""(frame, time in ns, number of the flow)."""


FlowId = tuple[bool, FlowKey]
"""(is TCP, key)."""


@dataclass(slots=True)
class Flow:
    """One direction of a conversation in one capture."""

    number: int
    key: FlowKey
    tcp: bool
    packets: int = 0
    """Packets that have a token."""
    first_ns: int = 0
    first_frame: int = 0
    prefix: bytearray = field(default_factory=bytearray)
    """First bytes of a TCP stream."""
    marks: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(first byte, byte after the last, frame, time) of TCP segments with new bytes."""
    stride: int = 1
    """But for the first one, only those remain that reach a multiple of this many bytes."""

    def reaches(self, start: int, end: int) -> bool:
        """Return whether the bytes of a segment reach a multiple of the stride."""
        return start // self.stride < end // self.stride

    def thin(self, most: int) -> int:
        """Leave so many marks, and return how many were dropped."""
        before = len(self.marks)
        while len(self.marks) > max(1, most):
            self.stride *= 2
            rest = [mark for mark in self.marks[1:] if self.reaches(mark[0], mark[1])]
            self.marks[1:] = rest
        return before - len(self.marks)

    @property
    def id(self) -> FlowId:
        """Return the key of `Sample.flows`."""
        return self.tcp, self.key


class Sampled:
    """A token in the sample."""

    __slots__ = ("count", "key", "occurrences")

    # Written out: what a dataclass generates is not compiled.
    def __init__(self, key: i64, occurrence: Occurrence) -> None:
        self.count: i64 = 1
        """How often it occurs."""
        self.key = key
        """Hash that selected it; -1 for one of the first packets of a flow."""
        self.occurrences = [occurrence]
        """Where it occurs, at most `MAX_OCCURRENCES` times."""


@dataclass(slots=True)
class Sample:
    """What the first pass over one capture found."""

    info: CaptureInfo
    rows: Rows = field(default_factory=Rows)
    """All packets that have a token."""
    flows: dict[FlowId, Flow] = field(default_factory=dict)
    """In order of first packet."""
    tokens: dict[int, Sampled] = field(default_factory=dict)
    ends: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
    """(frame, time) of the first and the last frame."""
    kept: int = 0
    """Occurrences kept, not counting the first of each token."""
    selected: int = 0
    """Tokens that are not of the first packets of a flow."""
    marks: int = 0
    """Marks of all flows."""
    halvings: int = 0
    """How often all flows were left with half as many marks."""
    mask: int = 0
    """A token is in the sample if its hash has none of these bits."""
    jumps: list[tuple[int, int]] = field(default_factory=list)
    """(frame, time since the previous frame in ns) wherever the clock may have been set."""
    jumps_dropped: int = 0
    flows_dropped: int = 0
    shortest: int = NO_LIMIT
    """Captured bytes of the most severely cut payload."""
    datagrams: int = 0
    """Packets that have a token."""

    def halve(self) -> None:
        """Discard half of the tokens; the first ones of each flow stay while there is room."""
        while self.mask < _ALL_BITS and (
            self.selected > MAX_SELECTED // 2 or len(self.tokens) > MAX_SAMPLED // 2
        ):
            self.thin(self.mask * 2 + 1)
        # Only first packets of flows remain, and still too many: drop those of the latest flows.
        for token in list(self.tokens)[MAX_SAMPLED // 2 :]:
            del self.tokens[token]

    def thin(self, mask: int) -> None:
        """Discard the tokens whose hash has any of these bits."""
        self.mask = mask
        tokens = self.tokens
        for token in [token for token, one in tokens.items() if one.key >= 0 and one.key & mask]:
            del tokens[token]
            self.selected -= 1

    def mark(self, flow: Flow, packet: Packet) -> None:
        """Note which bytes of a TCP stream became readable with a packet, and when."""
        segment = packet[5]
        for piece in segment.stream if segment is not None else ():
            start, end = piece.offset, piece.offset + len(piece.data)
            if len(flow.prefix) < PREFIX and start == len(flow.prefix):
                flow.prefix += piece.data[: PREFIX - len(flow.prefix)]
            if flow.marks and not flow.reaches(start, end):
                continue
            flow.marks.append((start, end, packet[1], packet[2]))
            self.marks += 1
            most = MAX_MARKS >> self.halvings
            if len(flow.marks) > most:
                self.marks -= flow.thin(most // 2)
            if self.marks > MAX_ALL_MARKS and most > _LEAST_MARKS:
                self.halvings += 1
                self.marks -= sum([each.thin(most // 2) for each in self.flows.values()])

    def span(self, clock: Clock, capture: int) -> tuple[int, int]:
        """Return the common time of the first and the last frame."""
        (first, first_ns), (last, last_ns) = self.ends
        return clock.common(capture, first, first_ns), clock.common(capture, last, last_ns)

    def flow_list(self) -> list[Flow]:
        """Return the flows by number."""
        return list(self.flows.values())


def take_sample(path: str, tokens: Tokens) -> Sample:
    """Return the sample of a capture; the caller closes its rows.

    Raises:
        CaptureError: the file is missing, unreadable or no capture.

    """
    with open_capture(path) as reader:
        sample = Sample(reader.info)
        sampler = _Sampler(sample, tokens, reader)
        Decapsulator().hand_over(sampler, sampler)
        sampler.finish()
        sample.shortest = tokens.shortest
    return sample


class _FrameObserver(FrameSink):
    """Passes frames on to the decapsulator after the sampler has seen them."""

    __slots__ = ("_into", "_sampler")

    def __init__(self, into: FrameSink, sampler: _Sampler) -> None:
        self._into = into
        self._sampler = sampler

    def frame(
        self, number: i64, time_ns: i64, link: i64, data: bytes, start: i64, stop: i64, wire: i64
    ) -> None:
        """Pass one frame on."""
        self._sampler.frame(number, time_ns, data, start, stop)
        self._into.frame(number, time_ns, link, data, start, stop, wire)


class _Sampler(PacketSink):
    """Fills a sample."""

    def __init__(self, sample: Sample, tokens: Tokens, reader: CaptureReader) -> None:
        self._sample = sample
        self._tokens = tokens
        self._reader = reader
        self._data = b""
        self._start: i64 = 0
        self._stop: i64 = 0
        self._first = (0, 0)
        self._number: i64 = 0
        self._last_ns: i64 = 0
        self._udp = HandlerTable()

    def head(self) -> list[Frame]:
        """Return the first frames of the capture."""
        return self._reader.head()

    def feed(self, taker: FrameSink, after: Callable[[], None] | None = None) -> None:
        """Feed all frames of the capture to the decapsulator."""
        self._reader.feed(_FrameObserver(taker, self), after)

    def frame(self, number: i64, time_ns: i64, data: bytes, start: i64, stop: i64) -> None:
        """Remember a frame for its packets, and note a jump of the clock."""
        if self._number == 0:
            self._first = (number, time_ns)
        else:
            span = time_ns - self._last_ns
            if span < 0 or span >= JUMP_NS:
                self._jump(number, span)
        self._number = number
        self._last_ns = time_ns
        self._data, self._start, self._stop = data, start, stop

    def finish(self) -> None:
        """Note the first and the last frame."""
        self._sample.ends = (self._first, (self._number, self._last_ns))
        self._udp.clear()  # each handler refers to this object

    def _jump(self, frame: int, span_ns: int) -> None:
        jumps = self._sample.jumps
        jumps.append((frame, span_ns))
        if len(jumps) > MAX_JUMPS:
            # The larger a jump, the likelier it is a clock that was set: pauses fill the list.
            kept = sorted(jumps, key=lambda jump: -abs(jump[1]))[: MAX_JUMPS // 2]
            self._sample.jumps_dropped += len(jumps) - len(kept)
            jumps[:] = sorted(kept)

    def ipv4_datagram(
        self, frame: i64, time_ns: i64, addresses: i64, ports: i64, payload: bytes
    ) -> bool:
        """Process an IPv4 UDP datagram if its flow was looked up lately, else return False."""
        handler = self._udp.at[place_of(addresses, ports)]
        if handler is None or handler.ports != ports or handler.addresses != addresses:
            return False
        handler.take(frame, time_ns, payload)
        return True

    def datagram(self, frame: i64, time_ns: i64, key: FlowKey, payload: bytes) -> None:
        """Process a UDP datagram without faults."""
        handler = self._udp.get(key)
        if handler is not None:
            handler.take(frame, time_ns, payload)
            return
        flow = self._new_flow((False, key), frame, time_ns)
        if flow is not None:
            self.take(flow, frame, time_ns, payload)

    def take(self, flow: Flow, frame: i64, time_ns: i64, payload: bytes) -> None:
        """Process a UDP datagram of a flow."""
        token = self._tokens.datagram(payload)
        self._sample.rows.add(time_ns, token, frame, flow.number)
        self._count(token, flow, frame, time_ns, None, payload)

    def packet(self, packet: Packet) -> None:
        """Process any other packet."""
        kind, frame, time_ns, key, payload, segment, faults = packet
        # Bytes that a later segment released belong to the flow of their own segment.
        flow_id = (kind in _TCP_KINDS, key)
        flow = self._sample.flows.get(flow_id)
        if flow is None:
            flow = self._new_flow(flow_id, frame, time_ns)
            if flow is None:
                return
        if segment is not None and segment.stream:
            self._sample.mark(flow, packet)
        data = self._data[self._start : self._stop] if faults else b""
        token = self._tokens.of(packet, data)
        if token is None:
            return
        if segment is not None and segment.payload_length:
            octets = segment.payload_length
            self._sample.rows.add(time_ns, token, frame, flow.number, segment.seq, octets)
        else:
            self._sample.rows.add(time_ns, token, frame, flow.number)
        self._count(token, flow, frame, time_ns, segment, payload)

    def _count(
        self, token: int, flow: Flow, frame: int, time_ns: int,
        segment: TcpSegment | None, payload: bytes,
    ) -> None:  # fmt: skip
        """Count an occurrence of a token, and keep it if the token is in the sample."""
        sample = self._sample
        flow.packets += 1
        sample.datagrams += 1
        is_early = flow.packets <= ALWAYS_SAMPLED
        known = sample.tokens.get(token)
        if known is not None:
            known.count += 1
            if (known.count <= MAX_OCCURRENCES or is_early) and sample.kept < MAX_ALL_OCCURRENCES:
                sample.kept += 1
                known.occurrences.append((frame, time_ns, flow.number))
            return
        key = -1 if is_early else sampling_key(segment, payload, self._tokens.limit)
        # Discarded already: otherwise it would come back with its next occurrence.
        if key >= 0 and key & sample.mask:
            return
        sample.tokens[token] = Sampled(key, (frame, time_ns, flow.number))
        sample.selected += key >= 0
        if len(sample.tokens) > MAX_SAMPLED or sample.selected > MAX_SELECTED:
            sample.halve()

    def _new_flow(self, flow_id: FlowId, frame: int, time_ns: int) -> Flow | None:
        sample = self._sample
        if len(sample.flows) >= MAX_FLOWS:
            sample.flows_dropped += 1
            return None
        is_tcp, key = flow_id
        flow = sample.flows[flow_id] = Flow(
            len(sample.flows), key, is_tcp, first_ns=time_ns, first_frame=frame
        )
        if not is_tcp:
            self._udp.put(key, _UdpFlow(self, flow))
        return flow


class _UdpFlow(DatagramHandler):
    """Passes the datagrams of one flow on to the sampler."""

    __slots__ = ("_flow", "_sampler")

    def __init__(self, sampler: _Sampler, flow: Flow) -> None:
        self._sampler = sampler
        self._flow = flow

    def take(self, frame: i64, time_ns: i64, payload: bytes) -> None:
        """Pass one datagram on."""
        self._sampler.take(self._flow, frame, time_ns, payload)
