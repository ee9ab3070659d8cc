"""Seeds, from which mutants are made: messages of captures, or each layer's default message."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import IO, TypeAlias

from netdissect.capture import open_capture
from netdissect.craft.layers import build, message_types, read_types
from netdissect.craft.wrapping import root, wrap
from netdissect.dissect.engine import Request
from netdissect.layers.base import Layer
from netdissect.model.claims import STRONG
from netdissect.model.packets import Direction, FlowKey, PacketKind, reverse_key
from netdissect.protocols import registry

PER_TYPE = 400
"""Maximum number of distinct seeds of one message type and direction."""
STREAM_LIMIT = 1 << 20
"""Bytes of one TCP direction that are split into messages."""
HELD_LIMIT = 256
"""Maximum number of datagrams of a flow held until its protocol and client are known."""
_SAMPLE_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 64, HELD_LIMIT)
"""Numbers of datagrams at which recognition is attempted."""

LayerClass: TypeAlias = type[Layer]
Splitter = Callable[[bytes, str], Iterable[bytes]]
"""Splits the start of a TCP stream of one dialect into whole frames, each with its framing."""


@dataclass(frozen=True, slots=True)
class Seed:
    """One message to mutate."""

    octets: bytes
    """The message on the wire."""
    type: str
    """Type of its first message; `unknown` if it could not be read."""
    direction: int | None
    """`Direction` in the capture; None for one made from a layer."""
    layer: LayerClass | None
    """Layer that builds the same bytes from the dissected fields; None = only bytes are mutated."""
    origin: str
    """Description of the origin: `x.pcap frame 17`, `layer RiptideConnect`."""


@dataclass(slots=True)
class SeedPool:
    """Distinct seeds, and counts of the messages that were not taken."""

    seeds: list[Seed] = field(default_factory=list)
    """In order of appearance."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Reason -> number of messages not taken."""
    _known: set[tuple[bytes, int | None]] = field(default_factory=set)
    _counts: Counter[tuple[str, int | None]] = field(default_factory=Counter)

    def add(self, seed: Seed) -> None:
        """Add a seed unless there is an equal one, or enough of its type."""
        key = (seed.octets, seed.direction)
        kind = (seed.type, seed.direction)
        if key in self._known:
            self.skipped["repeated"] += 1
        elif self._counts[kind] >= PER_TYPE:
            self.skipped["enough of its type"] += 1
        else:
            self._known.add(key)
            self._counts[kind] += 1
            self.seeds.append(seed)

    @property
    def raw(self) -> list[Seed]:
        """Return the seeds without a layer, because building their fields gives other bytes."""
        return [seed for seed in self.seeds if seed.layer is None]


def make_seed(protocol: str, octets: bytes, request: Request, origin: str) -> Seed:
    """Return a seed. It has a layer only if that builds the same bytes from the dissected fields.

    Args:
        protocol: name of the protocol.
        octets: the message; over TCP with its framing.
        request: dialect, direction and transport.
        origin: description of the origin.
    """
    layer = root(protocol, octets, request)
    packet = layer(octets)
    packet.clear_cache()
    proven = packet.fault is None and build(packet) == octets
    type_name = (*read_types(protocol, octets, request), "unknown")[0]
    return Seed(octets, type_name, request.direction, layer if proven else None, origin)


def seeds_from_layers(protocol: str, dialect: str, transport: str = "udp") -> SeedPool:
    """Return the default message of every layer that the dialect has."""
    pool = SeedPool()
    request = Request(dialect, None, transport)
    for layer in message_types(protocol, dialect, transport).values():
        octets = build(wrap(protocol, dialect, layer(), transport))
        if octets:
            pool.add(make_seed(protocol, octets, request, f"layer {layer.__name__}"))
    return pool


def seeds_from_capture(
    protocol: str,
    dialect: str,
    source: str | os.PathLike[str] | IO[bytes],
    *,
    transport: str = "udp",
    split: Splitter | None = None,
) -> SeedPool:
    """Return the distinct messages in those flows of a capture that are of the protocol.

    Args:
        protocol: name of the protocol.
        dialect: full name of the dialect to read with.
        source: path of a capture, or an open binary file.
        transport: `udp` or `tcp`.
        split: for TCP, splits a stream into frames.

    Raises:
        CaptureError: the file is missing or not a capture.
    """
    from netdissect.flow import packets  # noqa: PLC0415 - only captures need it

    name = os.path.basename(source) if isinstance(source, (str, os.PathLike)) else "capture"  # noqa: PTH119
    pool = SeedPool()
    flows: dict[FlowKey, _Flow] = {}
    with open_capture(source) as capture:
        for kind, frame, time_ns, key, payload, segment, _faults in packets(capture):
            back = reverse_key(key) in flows
            flow = flows.get(reverse_key(key) if back else key)
            if flow is None:
                flow = flows[key] = _Flow(pool, protocol, dialect, transport, name)
            if kind is PacketKind.UDP and transport == "udp":
                flow.datagram(int(back), time_ns, payload, frame)
            elif segment is not None and transport == "tcp":
                for piece in segment.stream:
                    flow.piece(int(back), time_ns, piece.data)
    for flow in flows.values():
        flow.finish(split)
    return pool


class _Flow:
    """Collects the messages of one flow, and makes them seeds once the flow is recognised."""

    def __init__(
        self, pool: SeedPool, protocol: str, dialect: str, transport: str, name: str
    ) -> None:
        self._pool = pool
        self._protocol = registry.get(protocol)
        self._dialect = dialect
        self._transport = transport
        self._name = name
        self._held: list[tuple[int, int, bytes, str]] = []
        self._streams = (bytearray(), bytearray())
        self._client: int | None = None
        self._foreign = False

    def datagram(self, end: int, time_ns: int, payload: bytes, frame: int) -> None:
        """Add a datagram sent by endpoint 0 (which sent first) or 1."""
        where = f"frame {frame}"
        if self._client is not None:
            self._seed(end, payload, where)
        elif self._foreign:
            self._pool.skipped[f"not {self._protocol.name}"] += 1
        else:
            self._held.append((end, time_ns, payload, where))
            if len(self._held) in _SAMPLE_SIZES:
                self._decide(final=len(self._held) == HELD_LIMIT)

    def piece(self, end: int, time_ns: int, data: bytes) -> None:
        """Add a piece of a TCP stream."""
        stream = self._streams[end]
        stream += data[: STREAM_LIMIT - len(stream)]
        if data and len(self._held) < _SAMPLE_SIZES[-1]:
            self._held.append((end, time_ns, data, ""))

    def finish(self, split: Splitter | None) -> None:
        """Make seeds of what is held, and split streams into messages."""
        if self._transport == "udp":
            if self._client is None and self._held:
                self._decide(final=True)
            return
        self._decide(final=True)
        if self._client is None or split is None:
            return
        for end, stream in enumerate(self._streams):
            for index, octets in enumerate(split(bytes(stream), self._dialect)):
                self._seed(end, octets, f"message {index} of a stream")

    def _decide(self, *, final: bool) -> None:
        sample = [(end, time_ns, payload) for end, time_ns, payload, _where in self._held]
        claim = self._protocol.recognise(sample, self._transport, final=final)
        strong = claim is not None and claim.score >= STRONG
        if claim is not None and strong and (final or claim.client is not None):
            self._client = claim.client or 0
        elif final:
            self._foreign = True
        else:
            return
        held, self._held = self._held, []
        for end, time_ns, payload, where in held if self._transport == "udp" else ():
            self.datagram(end, time_ns, payload, int(where.rpartition(" ")[2]))

    def _seed(self, end: int, octets: bytes, where: str) -> None:
        if not octets:
            return
        direction = Direction.C2S if end == self._client else Direction.S2C
        request = Request(self._dialect, direction, self._transport)
        self._pool.add(make_seed(self._protocol.name, octets, request, f"{self._name} {where}"))
