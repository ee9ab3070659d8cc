"""`scan` of Teeworlds says what the walker's tree shows, on captured and on damaged datagrams."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agreement import assert_agree, captures, mutations, payloads
from derived import compile_reader
from netdissect.dissect.engine import Request, dissect
from netdissect.flow import Decapsulator
from netdissect.layers import teeworlds as layers
from netdissect.layers.teeworlds.controls import CONTROLS
from netdissect.model.claims import Hints
from netdissect.model.events import Ev
from netdissect.pipeline import opened
from netdissect.pipeline.stages import Pipeline
from netdissect.protocols.teeworlds.scanner import scan
from netdissect.protocols.teeworlds.state import DecoderState
from netdissect.wire.teeworlds_forms import DIALECTS

TYPED = (Ev.MESSAGE, Ev.UNIT)
FATAL = frozenset(("truncated", "overlong-varint", "length-beyond-end", "unterminated-string"))
ONLINE = DecoderState(phase=3)


def scanned(data: bytes, dialect: str, direction: int) -> list[tuple[Any, ...]]:
    return scan(data, direction, Hints((dialect, dialect), ONLINE))


def assert_scan_is_the_tree(data: bytes, dialect: str, direction: int) -> None:
    events = scanned(data, dialect, direction)
    tree = dissect("teeworlds", data, Request(dialect, direction), strict=True)
    types = [event[1] for event in events if event[0] in TYPED]
    assert types == [message.type for message in tree.messages]
    chunks = tree.fields.get("chunks", [])
    vital = [
        (chunk["sequence"], chunk["resend"]) for chunk in chunks if chunk["vital"] and "fields" in chunk
    ]
    assert [event[3:5] for event in events if event[:1] == (Ev.UNIT,) and event[2] == "vital"] == vital
    acks = [event[2] for event in events if event[0] == Ev.ACK and event[1] == "vital"]
    assert acks in ([], [tree.fields.get("ack")])
    asks = any(event[0] == Ev.RESEND_REQUEST for event in events)
    flags = tree.fields.get("flags", {})
    assert not asks or flags["resend_requested"]
    ticks = [event[3] for event in events if event[0] == Ev.UNIT and event[2] == "snapshot"]
    shown = [m.fields["tick"] for m in tree.messages if m.type.startswith("sys.snap") and "tick" in m.fields]
    assert all(tick in shown for tick in ticks)


class Seen:
    """Gathers (payload, direction, dialect) of all claimed datagrams."""

    def __init__(self) -> None:
        self.items: list[tuple[bytes, int, str]] = []

    def reads_events(self, protocol: Any) -> bool:
        return False

    def seen(self, item: Any) -> None:
        self.items.append((item.payload, item.direction, item.hints.dialects[item.direction]))

    def other(self, packet: Any) -> None:
        raise AssertionError(f"frame {packet[1]} was not claimed")

    def finding(self, *args: Any) -> None:
        pass


@pytest.mark.parametrize("path", captures("teeworlds"), ids=lambda path: path.stem)
def test_every_captured_datagram(path: Any) -> None:
    seen = Seen()
    pipeline = Pipeline(observer=seen)
    with opened(path) as reader:
        for packet in Decapsulator().packets(reader):
            pipeline.feed(packet)
    pipeline.finish()
    assert seen.items
    done: set[bytes] = set()
    for data, direction, dialect in seen.items:
        if data not in done:
            done.add(data)
            assert_scan_is_the_tree(data, dialect, direction)


def test_damaged_datagrams() -> None:
    for index, data in enumerate(mutations(payloads("teeworlds"), 4000)):
        assert_scan_is_the_tree(data, DIALECTS[index % 4], index // 4 % 2)


@pytest.mark.slow
def test_many_damaged_datagrams() -> None:
    for index, data in enumerate(mutations(payloads("teeworlds"), 1_000_000, seed=7)):
        events = scanned(data, DIALECTS[index % 4], index // 4 % 2)
        assert len(events) <= 4 * 256 + 8
    for index, data in enumerate(mutations(payloads("teeworlds"), 40_000, seed=8)):
        assert_scan_is_the_tree(data, DIALECTS[index % 4], index // 4 % 2)


def test_derived_readers_agree_with_walker_and_scapy() -> None:
    chance = random.Random(3)
    seeds = chance.sample(payloads("teeworlds"), 400)
    control = CONTROLS["0.7"]
    for layer in (layers.Tw06, layers.Tw065, layers.Tw07, control[5], control[1]):
        reader = compile_reader(layer)
        read_whole = 0
        for data in (*seeds, *mutations(seeds, 400)):
            head = data[:3] if layer is layers.Tw06 else data[:7]
            read_whole += assert_agree("teeworlds", layer, reader, head, (), fatal=FATAL)
        assert read_whole


@pytest.mark.parametrize(("name", "bits"), [("Tw06Chunk", 4), ("Tw07Chunk", 6)])
def test_chunk_readers_agree_with_the_walker(name: str, bits: int) -> None:
    layer = getattr(layers, name)
    reader = compile_reader(layer, ("body",))
    chance = random.Random(4)
    for _ in range(2000):
        size = chance.choice((0, 1, 3, 17, 70))
        vital, sequence = chance.randrange(2), chance.randrange(1024)
        chunk = layer(vital=vital, sequence=sequence, resend=chance.randrange(2))
        head = bytearray(bytes(chunk))
        head[0] |= size >> bits
        head[1] |= size & ((1 << bits) - 1)
        body = chance.randbytes(chance.choice((size, size, max(0, size - 1), size + 2)))
        values = reader(bytes(head) + body, 0, len(head) + len(body))
        assert (values is not None) == (len(body) >= size)
        if values is not None:
            resend, is_vital, high, _upper, low, _lower, after = values
            assert (resend, is_vital) == (chunk.resend, vital)
            assert high << bits | low == size
            assert after == len(head) + size


def test_a_wrong_token_makes_no_unit() -> None:
    data = bytes.fromhex("0000013f5a539940190103302e3720383032663162653630613035363635660000851c")
    good = DecoderState(phase=3, tokens=(bytes.fromhex("3f5a5399"), None))
    events = scan(data, 0, Hints(("teeworlds-0.7",) * 2, good))
    assert [event[0] for event in events if event[0] in TYPED] == [Ev.UNIT]
    other = DecoderState(phase=3, tokens=(bytes.fromhex("01020304"), None))
    events = scan(data, 0, Hints(("teeworlds-0.7",) * 2, other))
    assert [event[0] for event in events if event[0] in TYPED] == [Ev.MESSAGE]
    assert (Ev.NOTE, "teeworlds-wrong-token", "token 3f5a5399") in events


@pytest.mark.parametrize("data", [b"", b"\0", b"\x10\0", b"\0\0", b"\x21" * 5, b"\xff" * 5])
def test_too_short_for_a_header(data: bytes) -> None:
    for dialect in DIALECTS:
        assert all(event[0] == Ev.NOTE for event in scanned(data, dialect, 0))
