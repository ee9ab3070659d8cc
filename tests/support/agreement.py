"""Checks that the three readings of one description agree: derived reader, walker, stock Scapy."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from netdissect.capture import open_capture
from netdissect.dissect.catalogue import Catalogue
from netdissect.dissect.engine import layer_module
from netdissect.dissect.packet_scope import PacketScope
from netdissect.dissect.walker import Walker
from netdissect.flow import packets
from netdissect.model.dissection import Dissection, FieldNode
from netdissect.model.packets import PacketKind

__all__ = [
    "CAPTURES",
    "SHARES",
    "assert_agree",
    "assert_sound",
    "captures",
    "mutations",
    "payloads",
    "udp_payloads",
]

CAPTURES = Path(__file__).parents[2] / "captures"

SHARES = [8, pytest.param(1, marks=pytest.mark.slow)]
"""Each how manyth datagram of all captures is looked at: what is slow looks at all of them."""

STOPS = frozenset({"truncated", "overlong-varint", "length-beyond-end", "unterminated-string"})
"""Codes of fields that end a layer: there the derived reader gives None."""


def captures(protocol: str) -> list[Path]:
    """Return the capture files of a protocol, sorted."""
    return sorted(
        path for path in (CAPTURES / protocol).iterdir() if path.suffix in (".pcap", ".pcapng")
    )


def udp_payloads(path: Path) -> Iterator[bytes]:
    """Yield the UDP payloads of a capture."""
    with open_capture(path) as capture:
        for packet in packets(capture):
            if packet[0] is PacketKind.UDP:
                yield packet[4]


@cache
def payloads(protocol: str) -> tuple[bytes, ...]:
    """Return the distinct UDP payloads of all captures of a protocol, in order of appearance."""
    seen: dict[bytes, None] = {}
    for path in captures(protocol):
        for payload in udp_payloads(path):
            seen.setdefault(payload)
    return tuple(seen)


def mutations(seeds: Iterable[bytes], count: int, seed: int = 1) -> Iterator[bytes]:
    """Yield `count` random or damaged payloads: flips, cuts, insertions, splices, noise."""
    chance = random.Random(seed)
    pool = list(seeds)
    for _ in range(count):
        kind = chance.randrange(6)
        data = bytearray(chance.choice(pool))
        if kind == 0 or not data:
            data = bytearray(chance.randbytes(chance.randrange(40)))
        elif kind == 1:
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        elif kind == 2:
            del data[chance.randrange(len(data)) :]
        elif kind == 3:
            place = chance.randrange(len(data) + 1)
            data[place:place] = chance.randbytes(chance.randrange(1, 9))
        elif kind == 4:
            other = chance.choice(pool)
            data = data[: chance.randrange(len(data) + 1)] + bytearray(other)[len(other) // 2 :]
        else:
            data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
        yield bytes(data)


def assert_agree(
    protocol: str,
    layer: type[Any],
    reader: Any,
    data: bytes,
    skip: Iterable[str] = (),
    *,
    fatal: frozenset[str] = STOPS,
) -> bool:
    """Assert that the three readers agree on `data`; True where it could be read."""
    walker = Walker(Catalogue(layer_module(protocol).CODES))
    around = PacketScope()
    around["_direction"] = None
    _node, scope, used = walker.walk(layer, data, outer=around)
    values = reader(data, 0, len(data))
    # Scapy builds a default packet from no bytes: there is nothing to compare.
    packet = layer(data) if data else None
    if packet is not None:
        assert bytes(packet) == data
        assert (packet.fault is None) == (values is not None)
    if values is None:
        assert any(note.code in fatal for note in walker.annotations)
        return False
    names = [field.name for field in layer.fields_desc if field.name not in skip]
    assert list(values[:-1]) == [scope[name] for name in names]
    assert values[-1] == used
    for name in names if packet is not None else ():
        assert scope[name] is None or packet.getfieldval(name) == scope[name]
    return True


def assert_sound(dissection: Dissection) -> None:
    """Assert that all offsets lie inside their buffer and that siblings do not overlap."""
    limits = [8 * len(buffer.data) for buffer in dissection.buffers]
    _assert_node(dissection.root, limits)
    for note in dissection.annotations:
        assert 0 <= note.bit_offset <= limits[note.buffer]
        assert note.bit_offset + note.bit_length <= limits[note.buffer]


def _assert_node(node: FieldNode, limits: list[int]) -> None:
    assert node.bit_offset >= 0
    assert node.bit_offset + node.bit_length <= limits[node.buffer]
    ends: dict[int, int] = {}
    for child in node.children:
        if child.generated:
            continue
        assert child.bit_offset >= ends.get(child.buffer, 0), f"{child.name} overlaps"
        ends[child.buffer] = child.bit_offset + child.bit_length
        _assert_node(child, limits)
