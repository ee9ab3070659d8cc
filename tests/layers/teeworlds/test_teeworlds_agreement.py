"""Stock Scapy reads and rebuilds every captured datagram as the walker reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scapy.packet import Raw

from agreement import captures
from netdissect.capture import open_capture
from netdissect.dissect.engine import Request, dissect
from netdissect.dissect.steps import Step
from netdissect.flow import Decapsulator
from netdissect.layers.teeworlds import packet_layer
from netdissect.pipeline.stages import Pipeline

DAMAGED = "ddnet_antispoof_broken"
"""A server that writes damaged chunks: what they hold can be written in other ways, too."""


class Seen:
    """Gathers (payload, dialect) -> direction."""

    def __init__(self) -> None:
        self.rows: dict[tuple[bytes, str], int] = {}

    def reads_events(self, protocol: Any) -> bool:
        return False

    def seen(self, item: Any) -> None:
        dialect = item.hints.dialects[item.direction]
        self.rows.setdefault((item.payload, dialect), item.direction)

    def other(self, packet: Any) -> None:
        raise AssertionError(f"frame {packet[1]} was not claimed")

    def finding(self, *args: Any) -> None:
        pass


def datagrams(path: Any) -> list[tuple[bytes, str, int]]:
    found = Seen()
    pipeline = Pipeline(observer=found)
    with open_capture(path) as reader:
        pipeline.run(Decapsulator().packets(reader))
    pipeline.finish()
    return [(*key, direction) for key, direction in found.rows.items()]


def layers_of(packet: Any) -> Iterator[Any]:
    while packet and not isinstance(packet, Raw):
        yield packet
        packet = packet.payload


def bodies(packet: Any) -> list[Any]:
    """Return the messages of the chunks."""
    return [
        chunk.body
        for layer in layers_of(packet)
        if any(field.name == "chunks" for field in layer.fields_desc)
        for chunk in layer.chunks
    ]


def assert_same(data: bytes, dialect: str, direction: int) -> int:
    """Assert that Scapy and the walker agree; return how many values were compared."""
    packet = packet_layer(data, dialect)(data)
    assert bytes(packet) == data
    tree = dissect("teeworlds", data, Request(dialect, direction), strict=True)
    compared = 0
    found = bodies(packet)
    if found:
        assert len(found) == len(tree.messages)
    for body, message in zip(found, tree.messages, strict=False):
        for outer in body.fields_desc:
            field = outer
            while hasattr(field, "fld"):
                field = field.fld
            shown = message.fields.get(getattr(field, "shown", field.name))
            value = body.getfieldval(outer.name)
            if shown is not None and value is not None and not isinstance(shown, (list, dict)):
                plain = Step(field).plain
                assert (value if plain is None else plain(value)) == shown
                compared += 1
    for layer in list(layers_of(packet)):
        layer.clear_cache()
        if hasattr(layer, "packed"):
            layer.packed = None
    assert bytes(packet) == data
    return compared


WHOLE = [path for path in captures("teeworlds") if path.stem != DAMAGED]


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.stem)
def test_some_datagrams(path: Any) -> None:
    rows = datagrams(path)
    for data, dialect, direction in rows[:: max(1, len(rows) // 20)]:
        assert_same(data, dialect, direction)


@pytest.mark.slow
def test_every_datagram() -> None:
    compared = 0
    for path in WHOLE:
        for data, dialect, direction in datagrams(path):
            compared += assert_same(data, dialect, direction)
    assert compared > 150_000
