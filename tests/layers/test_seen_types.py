"""Which layers occur in a capture of a real program, or in a vector of the reference documents."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scapy.packet import NoPayload, Packet

from agreement import captures
from netdissect import iter_records
from netdissect.craft.layers import exported_layers
from netdissect.craft.wrapping import root
from netdissect.dissect.engine import Request
from netdissect.layers import PROTOCOLS
from netdissect.lookup import protocol_infos

VECTORS = Path(__file__).parents[1] / "vectors"
UNSEEN = Path(__file__).with_name("unseen.txt")
"""The layers that occur in neither: base classes, and messages that no recorded program sent."""
_PAYLOADS = 20
"""Payloads of one capture that are read for each combination of message types."""


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
    return set(layers(root(protocol, octets, request)(octets)))


def in_vectors(protocol: str) -> set[str]:
    (info,) = [each for each in protocol_infos() if each.name == protocol]
    known = [each.name for each in info.dialects]
    found: set[str] = set()
    for row in json.loads((VECTORS / f"{protocol}.vectors.json").read_text()):
        for dialect in known if row["dialect"] in (None, "any", "all") else (row["dialect"],):
            for transport in ("udp", "tcp"):
                found |= read(protocol, Request(dialect, None, transport), bytes.fromhex(row["hex"]))
    return found


def in_captures(protocol: str) -> set[str]:
    found: set[str] = set()
    for path in captures(protocol):
        counts: Counter[Any] = Counter()
        for record in iter_records(path):
            types = frozenset(each.type for each in record.messages)
            key = record.dialect, record.direction, record.transport, types
            counts[key] += 1
            if record.protocol == protocol and record.dialect and counts[key] <= _PAYLOADS:
                request = Request(record.dialect, record.direction, record.transport)
                found |= read(protocol, request, record.payload)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_layer_is_in_a_capture_or_a_vector_or_listed(protocol: str) -> None:
    unseen = set(exported_layers(protocol)) - in_vectors(protocol) - in_captures(protocol)
    listed = {
        name for line in UNSEEN.read_text().splitlines() if line.startswith(f"{protocol}: ")
        for name in line.partition(": ")[2].split()
    }  # fmt: skip
    assert unseen == listed
