"""The first pass: a bounded sample of what a capture holds, and where and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from netdissect.capture import CaptureReader, open_capture
from netdissect.flow import Decapsulator
from netdissect.join.clock import Clock
from netdissect.join.rows import Rows
from netdissect.join.tokens import NO_LIMIT, Tokens, choice
from netdissect.model.packets import FlowKey, Packet, PacketKind
from netdissect.model.reports import CaptureInfo
from netdissect.model.segments import TcpSegment
from netdissect.model.sinks import FrameSink, PacketSink

if TYPE_CHECKING:
    from mypy_extensions import i64

__all__ = ["MAX_SAMPLED", "MAX_SIGHTS", "Flow", "FlowName", "Sample", "Sight", "take_sample"]

MAX_SAMPLED = 65_536
"""Names kept of one capture; beyond, half of them are left out, the same half in the other one."""
MAX_CHOSEN = 4096
"""Names among those that are not of the first packets of a flow."""
MAX_SIGHTS = 64
"""Sights kept of one name; further ones are counted only, but for the first packets of a flow."""
MAX_ALL_SIGHTS = 400_000
"""Sights kept of all names."""
MAX_FLOWS = 50_000
"""Flows told apart; the packets of further ones are not compared."""
MAX_JUMPS = 4096
"""Places where the clock of a capture may have been set that are remembered."""
MAX_MARKS = 2048
"""Places of one TCP direction at which two streams are compared in time."""
EARLY: Final = 16
"""Packets of each flow that are always in the sample, so that short flows are compared too."""
JUMP_NS: Final = 200_000_000
"""A pause this long, or any step back, is a place where the clock may have been set."""
PREFIX: Final = 64
"""Bytes of a TCP stream that tell whether two streams may be one."""
_ALL: Final = 0xFFFFFFFF

_TCP_KINDS: Final = (PacketKind.TCP, PacketKind.TCP_STREAM)

Sight = tuple[int, int, int]
"""(frame, time in ns, number of the flow)."""


FlowName = tuple[bool, FlowKey]
"""(TCP?, key)."""


@dataclass(slots=True)
class Flow:
    """One direction of a conversation in one capture."""

    number: int
    key: FlowKey
    tcp: bool
    packets: int = 0
    """Packets that were named."""
    first_ns: int = 0
    last_ns: int = 0
    prefix: bytearray = field(default_factory=bytearray)
    """First bytes of a TCP stream."""
    octets: int = 0
    """Bytes of a TCP stream that were captured in order."""
    marks: list[tuple[int, int, int]] = field(default_factory=list)
    """(end in the stream, frame, time) of TCP segments with new bytes, thinned out evenly."""
    stride: int = 1
    """One of so many segments is a mark."""

    @property
    def name(self) -> FlowName:
        """Return what the flow is looked up by."""
        return self.tcp, self.key


@dataclass(slots=True)
class Sample:
    """What is remembered of one capture."""

    info: CaptureInfo
    rows: Rows = field(default_factory=Rows)
    """All packets that were named."""
    flows: dict[FlowName, Flow] = field(default_factory=dict)
    """In order of first packet."""
    sights: dict[int, list[Sight]] = field(default_factory=dict)
    """Name -> its first sights."""
    counts: dict[int, int] = field(default_factory=dict)
    """Name -> how often it was seen, where more often than its sights are kept."""
    choices: dict[int, int] = field(default_factory=dict)
    """Name -> number by which it was chosen; -1 for the first packets of a flow."""
    ends: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
    """(frame, time) of its first and its last frame."""
    kept: int = 0
    """Sights kept beside the first of each name."""
    chosen: int = 0
    """Names that are not of the first packets of a flow."""
    mask: int = 0
    """Names are in the sample whose number has none of these bits."""
    jumps: list[tuple[int, int]] = field(default_factory=list)
    """(frame, time since the frame before it in ns) where the clock may have been set."""
    jumps_left_out: int = 0
    flows_left_out: int = 0
    shortest: int = NO_LIMIT
    """Captured bytes of the most severely cut payload."""
    datagrams: int = 0
    """Packets that were named."""

    def halve(self) -> None:
        """Leave half of the names out; the first ones of each flow stay while there is room."""
        while self.mask < _ALL and (
            self.chosen > MAX_CHOSEN // 2 or len(self.counts) > MAX_SAMPLED // 2
        ):
            self.thin(self.mask * 2 + 1)
        # Only first packets of flows are left, and still too many: those of the latest flows go.
        if len(self.counts) > MAX_SAMPLED // 2:
            self._forget(list(self.counts)[MAX_SAMPLED // 2 :])

    def thin(self, mask: int) -> None:
        """Leave out the names whose number has any of these bits, but for the first of a flow."""
        self.mask = mask
        choices = self.choices
        self._forget([name for name, n in choices.items() if n >= 0 and n & mask])
        self.chosen = sum(number >= 0 for number in choices.values())

    def _forget(self, names: list[int]) -> None:
        for name in names:
            del self.counts[name], self.choices[name], self.sights[name]

    def span(self, clock: Clock, capture: int) -> tuple[int, int]:
        """Return the common times of its first and its last frame."""
        return clock.common(capture, *self.ends[0]), clock.common(capture, *self.ends[1])

    def flow_list(self) -> list[Flow]:
        """Return the flows by number."""
        return list(self.flows.values())


def take_sample(path: str, tokens: Tokens) -> Sample:
    """Return the sample of a capture; its rows are to be closed.

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


class _Watch(FrameSink):
    """Hands on frames, and notes where the clock may have been set."""

    __slots__ = ("_into", "_sampler")

    def __init__(self, into: FrameSink, sampler: _Sampler) -> None:
        self._into = into
        self._sampler = sampler

    def frame(
        self, number: i64, time_ns: i64, link: i64, data: bytes, start: i64, stop: i64, wire: i64
    ) -> None:
        """Take one."""
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
        # Looked up by the key alone: a (TCP?, key) would be one more tuple a datagram.
        self._udp: dict[FlowKey, Flow] = {}

    def feed(self, taker: FrameSink, after: Callable[[], None] | None = None) -> None:
        """Hand all frames to the taker, as the capture does."""
        self._reader.feed(_Watch(taker, self), after)

    def frame(self, number: i64, time_ns: i64, data: bytes, start: i64, stop: i64) -> None:
        """Take note of a frame."""
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
        """Take note of the last frame."""
        self._sample.ends = (self._first, (self._number, self._last_ns))

    def _jump(self, frame: int, span_ns: int) -> None:
        jumps = self._sample.jumps
        jumps.append((frame, span_ns))
        if len(jumps) > MAX_JUMPS:
            # Great jumps are likelier to be a clock that was set; pauses fill the list.
            kept = sorted(jumps, key=lambda jump: -abs(jump[1]))[: MAX_JUMPS // 2]
            self._sample.jumps_left_out += len(jumps) - len(kept)
            jumps[:] = sorted(kept)

    def datagram(self, frame: i64, time_ns: i64, key: FlowKey, payload: bytes) -> None:
        """Take a UDP datagram in which nothing is odd."""
        flow = self._udp.get(key)
        if flow is None:
            flow = self._new_flow((False, key), time_ns)
            if flow is None:
                return
        name = self._tokens.datagram(payload)
        self._sample.rows.add(time_ns, name, frame, flow.number)
        self._named(name, flow, frame, time_ns, None, payload)

    def packet(self, packet: Packet) -> None:
        """Take a packet of any kind."""
        kind, frame, time_ns, key, payload, segment, faults = packet
        # Bytes that a later segment released belong to the flow of their own segment.
        found = (kind in _TCP_KINDS, key)
        flow = self._sample.flows.get(found)
        if flow is None:
            flow = self._new_flow(found, time_ns)
            if flow is None:
                return
        if segment is not None and segment.stream:
            _mark(flow, packet)
        data = self._data[self._start : self._stop] if faults else b""
        name = self._tokens.of(packet, data)
        if name is None:
            return
        if segment is not None and segment.payload_length:
            octets = segment.payload_length
            self._sample.rows.add(time_ns, name, frame, flow.number, segment.seq, octets)
        else:
            self._sample.rows.add(time_ns, name, frame, flow.number)
        self._named(name, flow, frame, time_ns, segment, payload)

    def _named(
        self, name: int, flow: Flow, frame: int, time_ns: int,
        segment: TcpSegment | None, payload: bytes,
    ) -> None:  # fmt: skip
        """Take a packet that has a name."""
        sample = self._sample
        flow.packets += 1
        flow.last_ns = time_ns
        sample.datagrams += 1
        counts = sample.counts
        count = counts.get(name)
        if count is not None:
            counts[name] = count + 1
            if (count < MAX_SIGHTS or flow.packets <= EARLY) and sample.kept < MAX_ALL_SIGHTS:
                sample.kept += 1
                sample.sights[name].append((frame, time_ns, flow.number))
            return
        number = -1 if flow.packets <= EARLY else choice(segment, payload, self._tokens.limit)
        if number >= 0 and number & sample.mask:
            return
        counts[name] = 1
        sample.choices[name] = number
        sample.sights[name] = [(frame, time_ns, flow.number)]
        sample.chosen += number >= 0
        if len(counts) > MAX_SAMPLED or sample.chosen > MAX_CHOSEN:
            sample.halve()

    def _new_flow(self, key: FlowName, time_ns: int) -> Flow | None:
        sample = self._sample
        if len(sample.flows) >= MAX_FLOWS:
            sample.flows_left_out += 1
            return None
        flow = sample.flows[key] = Flow(len(sample.flows), key[1], key[0], first_ns=time_ns)
        if not key[0]:
            self._udp[key[1]] = flow
        return flow


def _mark(flow: Flow, packet: Packet) -> None:
    """Note what of a TCP stream became readable, and when."""
    segment = packet[5]
    for piece in segment.stream if segment is not None else ():
        if len(flow.prefix) < PREFIX and piece.offset == len(flow.prefix):
            flow.prefix += piece.data[: PREFIX - len(flow.prefix)]
        end = piece.offset + len(piece.data)
        flow.octets = end
        if packet[1] % flow.stride == 0 or not flow.marks:
            flow.marks.append((end, packet[1], packet[2]))
            if len(flow.marks) > MAX_MARKS:
                flow.stride *= 2
                flow.marks[:] = flow.marks[::2]
