"""Where mutants come from: messages of captures, and the default message of every layer."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO

from netdissect.capture import open_capture
from netdissect.dissect.engine import Request, dissect, layer_module
from netdissect.fuzz.layers import build, message_types, read_types
from netdissect.layers.base import Layer
from netdissect.model.annotations import Severity
from netdissect.model.packets import Direction, FlowKey, PacketKind, reverse_key

__all__ = ["Seed", "SeedPool", "make_seed", "seeds_from_capture", "seeds_from_layers"]

PER_TYPE = 400
"""Distinct seeds kept of one message type and direction: variety, bounded."""
STREAM_LIMIT = 1 << 20
"""Octets of one TCP direction that are cut into messages."""

Splitter = Callable[[bytes], Iterable[bytes]]
"""Cuts the start of a TCP stream into whole frames, each with its framing."""


@dataclass(frozen=True, slots=True)
class Seed:
    """One message to mutate."""

    octets: bytes
    """The message as it was on the wire."""
    type: str
    """Type of its first message; `unknown` where it could not be read."""
    direction: int | None
    """`Direction` in the capture; None for one made from a layer."""
    layer: type[Layer] | None
    """Layer that writes the same octets from the fields read; None = kept raw, mutated as octets.
    """
    origin: str
    """Where it came from, for people: `x.pcap frame 17`, `layer RiptideConnect`."""


@dataclass(slots=True)
class SeedPool:
    """Distinct seeds, and the account of those that were not taken."""

    seeds: list[Seed] = field(default_factory=list)
    """In order of appearance."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Reason -> how many messages were not taken."""
    _known: set[tuple[bytes, int | None]] = field(default_factory=set)
    _counts: Counter[tuple[str, int | None]] = field(default_factory=Counter)

    def add(self, seed: Seed) -> None:
        """Take a seed unless there is one like it, or enough of its kind."""
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
        """Return the seeds that are kept raw because writing their fields gives other octets."""
        return [seed for seed in self.seeds if seed.layer is None]


def make_seed(
    protocol: str, octets: bytes, request: Request, origin: str, *, type_name: str | None = None
) -> Seed:
    """Return a seed whose layer is proven: it writes the same octets from the fields that it read.

    Args:
        protocol: name of the protocol.
        octets: the message; for TCP with its framing.
        request: dialect, direction and transport.
        origin: where it came from.
        type_name: its type, if that is known already.
    """
    layer = layer_module(protocol).root(octets, request)
    packet = layer(octets)
    packet.clear_cache()
    proven = packet.fault is None and build(packet) == octets
    if type_name is None:
        type_name = (*read_types(protocol, octets, request), "unknown")[0]
    return Seed(octets, type_name, request.direction, layer if proven else None, origin)


def seeds_from_layers(protocol: str, dialect: str, transport: str = "udp") -> SeedPool:
    """Return the default message of every layer that the dialect has."""
    pool = SeedPool()
    request = Request(dialect, None, transport, unframed=True)
    for layer in message_types(protocol, dialect, transport).values():
        octets = build(layer())
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
    """Return the distinct messages of a capture that read as the protocol.

    The side that speaks first in a flow is taken for the client. Flows of which less than half
    reads without an error are left out.

    Args:
        protocol: name of the protocol.
        dialect: full name of the dialect to read with.
        source: path of a capture, or an open binary file.
        transport: `udp` or `tcp`.
        split: for TCP, what cuts a stream into frames.

    Raises:
        CaptureError: the file is missing or no capture.
    """
    name = os.path.basename(source) if isinstance(source, (str, os.PathLike)) else "capture"  # noqa: PTH119
    pool = SeedPool()
    flows: dict[FlowKey, list[Seed]] = {}
    faults: Counter[FlowKey] = Counter()
    for key, direction, octets, place in _messages(source, transport, split):
        request = Request(dialect, direction, transport)
        dissection = dissect(protocol, octets, request)
        faults[key] += any(note.severity >= Severity.ERROR for note in dissection.annotations)
        kind = dissection.messages[0].type if dissection.messages else "unknown"
        seed = make_seed(protocol, octets, request, f"{name} {place}", type_name=kind)
        flows.setdefault(key, []).append(seed)
    for key, seeds in flows.items():
        if 2 * faults[key] >= len(seeds):
            pool.skipped[f"not {dialect}"] += len(seeds)
            continue
        for seed in seeds:
            pool.add(seed)
    return pool


def _messages(
    source: str | os.PathLike[str] | IO[bytes], transport: str, split: Splitter | None
) -> Iterator[tuple[FlowKey, int, bytes, str]]:
    """Yield (key of the client's direction, direction, message, place in the capture)."""
    from netdissect.flow import packets  # noqa: PLC0415 - only captures need it

    streams: dict[tuple[FlowKey, int], bytearray] = {}
    clients: set[FlowKey] = set()
    with open_capture(source) as capture:
        for kind, frame, _time, key, payload, segment, _faults in packets(capture):
            if reverse_key(key) in clients:
                client, direction = reverse_key(key), Direction.S2C
            else:
                clients.add(key)
                client, direction = key, Direction.C2S
            if kind is PacketKind.UDP and transport == "udp" and payload:
                yield client, direction, payload, f"frame {frame}"
            elif segment is not None and transport == "tcp":
                stream = streams.setdefault((client, direction), bytearray())
                for piece in segment.stream:
                    stream += piece.data[: STREAM_LIMIT - len(stream)]
    for (client, direction), stream in streams.items():
        for index, octets in enumerate(split(bytes(stream)) if split else ()):
            yield client, direction, octets, f"message {index} of a stream"
