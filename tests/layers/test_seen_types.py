"""Which layers occur in a capture of a real program, or in a vector of the reference documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scapy.config import conf
from scapy.packet import NoPayload, Packet

from agreement import assert_sound, captures
from netdissect import iter_records
from netdissect.craft.layers import exported_layers
from netdissect.craft.wrapping import layers_of, root
from netdissect.dissect.engine import Request, dissect
from netdissect.layers import PROTOCOLS
from vectors import payload_vectors, requests

UNSEEN = Path(__file__).with_name("unseen.txt")
"""The layers that occur in neither, each line with the reason: protocol: reason: layers."""
_PAYLOADS = 20
"""Payloads of one capture that are read for each combination of message types."""
_CUTS = 300
"""Lengths up to which a vector is cut at each byte."""


def layers(packet: Any) -> Iterator[str]:
    """Yield the names of the layers of a packet, and of the items in them."""
    while not isinstance(packet, NoPayload):
        yield type(packet).__name__
        for field in packet.fields_desc:
            value = packet.fields.get(field.name)
            for item in value if isinstance(value, list) else (value,):
                if isinstance(item, Packet):
                    yield from layers(item)
        packet = packet.payload


def read(protocol: str, request: Request, octets: bytes) -> set[str]:
    """Return the layers in a message; over TCP also those of the stream that it is a piece of."""
    roots = [root(protocol, octets, request)]
    if request.transport == "tcp":
        roots += [getattr(layers_of(protocol), "reader", layers_of(protocol).root)(octets, request)]
    return {name for layer in roots for name in layers(layer(octets))}


def in_vectors(protocol: str) -> set[str]:
    return {
        name
        for vector in payload_vectors(protocol)
        for request in requests(protocol, vector)
        for name in read(protocol, request, bytes.fromhex(vector["hex"]))
    }


def in_captures(protocol: str) -> set[str]:
    found: set[str] = set()
    for path in captures(protocol):
        counts: Counter[Any] = Counter()
        for record in iter_records(path):
            types = frozenset(each.type for each in record.messages)
            key = record.dialect, record.direction, record.transport, types
            counts[key] += 1
            if record.protocol == protocol and record.dialect and counts[key] <= _PAYLOADS:
                stream = record.transport == "tcp"
                request = Request(record.dialect, record.direction, record.transport, unframed=stream)
                found |= read(protocol, request, record.payload)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_layer_is_in_a_capture_or_a_vector_or_listed(protocol: str) -> None:
    unseen = set(exported_layers(protocol)) - in_vectors(protocol) - in_captures(protocol)
    rows = [line.split(": ") for line in UNSEEN.read_text().splitlines()]
    assert unseen == {name for of, _reason, names in rows if of == protocol for name in names.split()}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_vectors_are_kept_when_cut(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "debug_dissector", True)
    known: set[tuple[str, bytes]] = set()
    for vector in payload_vectors(protocol):
        whole = bytes.fromhex(vector["hex"])
        for request in requests(protocol, vector):
            for length in range(1, min(len(whole), _CUTS)):
                octets = whole[:length]
                if (request.dialect, octets) in known:
                    continue
                known.add((request.dialect, octets))
                assert bytes(root(protocol, octets, request)(octets)) == octets
                assert_sound(dissect(protocol, octets, request, strict=True))
    assert known
