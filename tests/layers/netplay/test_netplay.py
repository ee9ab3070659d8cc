"""Netplay's Scapy layers: every published vector, building, round trips, hostile bytes."""

from __future__ import annotations

import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from scapy.packet import Raw, fuzz

from agreement import assert_agree, assert_sound, mutations
from derived import compile_reader
from netdissect import lookup
from netdissect.dissect import schema as schemas
from netdissect.dissect.engine import Request, dissect
from netdissect.export.json import decoded, dump
from netdissect.layers import netplay
from netdissect.layers.netplay import (
    NetplayChunk,
    NetplayChunkStream,
    NetplayFrame,
    NetplayShortFrame,
    NetplayStream,
    NetplayText,
    NetplayTextStream,
    chunks,
)
from netdissect.protocols.netplay import PROTOCOL
from netdissect.wire.inflate import Bounds
from netdissect.wire.netplay import DIALECTS, chunk_spans, frame_spans, line_spans
from netdissect.wire.netplay_values import NULLABLE_VALUES, PLAIN_VALUES

VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors/netplay.vectors.json").read_text(encoding="utf-8")
)
NOT_FIELDS = {"decoded_by_library_too"}
STREAMS = {"bin1": NetplayStream, "bin2": NetplayStream, "bin3": NetplayChunkStream, "text": NetplayTextStream}


def read(dialect: str, octets: bytes, **options: Any) -> Any:
    return dissect("netplay", octets, Request(f"netplay-{dialect}", transport="tcp", **options), strict=True)


def codes(tree: Any) -> set[str]:
    return {note.code for note in tree.annotations}


def assert_contains(found: Any, wanted: Any, path: str = "fields") -> None:
    """Assert that `found` holds everything in `wanted`, whatever more it has in objects."""
    if isinstance(wanted, dict):
        for key in wanted.keys() - NOT_FIELDS:
            assert key in found, f"{path}.{key} is missing"
            assert_contains(found[key], wanted[key], f"{path}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), path
        for index, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
            assert_contains(mine, theirs, f"{path}[{index}]")
    else:
        assert (type(found), found) == (type(wanted), wanted), path


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_vectors_decode_to_the_listed_fields(vector: dict[str, Any]) -> None:
    tree = read(vector["dialect"], bytes.fromhex(vector["hex"]))
    assert_sound(tree)
    fields = json.loads(dump(decoded(tree)))["fields"]
    assert_contains(fields, vector["fields"])
    assert fields.get("flags", []) == vector["fields"].get("flags", [])


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_vectors_rebuild_to_the_same_octets(vector: dict[str, Any]) -> None:
    octets = bytes.fromhex(vector["hex"])
    stream = STREAMS[vector["dialect"]](octets)
    items = stream.fields_desc[0].name
    built = b""
    for item in getattr(stream, items):
        assert item.fault is None
        assert not isinstance(item.payload, Raw)
        item.clear_cache()
        if isinstance(item, NetplayFrame):
            item.length = None
        built += bytes(item)
        assert eval(item.command(), vars(netplay)) == item  # noqa: S307
    assert built == octets


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_decoded_values_encode_to_the_same_payload(vector: dict[str, Any]) -> None:
    """Values, arrays and nested objects are written as they were read; compression as zlib level 9."""
    values = PLAIN_VALUES if vector["dialect"] == "bin1" else NULLABLE_VALUES
    for message in vector["fields"]["messages"]:
        plain = not vector["fields"].get("flags")
        if "decoded" not in message or "payload_hex" not in message or not plain:
            continue
        if vector["dialect"] == "bin1" and None in message["decoded"].values():
            continue  # The library's bin1 reads a null object and never writes one.
        row = schemas.built_in("netplay").message(message["type"])
        assert row is not None
        body = bytes(schemas.encode(schemas.built_in("netplay"), values, row.fields, message["decoded"]).getvalue())
        if message["compressed"] and body:
            body = zlib.compress(body, 9)
        assert body.hex() == message["payload_hex"]


@pytest.mark.parametrize(
    ("packet", "octets"),
    [
        # docs/protocols/netplay.md sections 2, 5 and 10
        (NetplayFrame(type=0, body=b"\0\4John"), "000900000000044a6f686e"),
        (NetplayFrame(type=13, options=1), "000301000d"),
        (NetplayFrame(length=2, type=7, body=b"x"), "000200000778"),
        (NetplayFrame(type=1, body=bytes(65535 + 3)), "0005000001" + "00" * 65538),
        (NetplayShortFrame(), "0000"),
        (NetplayText(class_name="A", body="{}"), "410a7b7d0a"),
    ],
)
def test_built_by_hand(packet: Any, octets: str) -> None:
    assert bytes(packet).hex() == octets


def test_chunks_of_a_frame_are_as_the_library_cuts_them() -> None:
    frame = NetplayFrame(type=2, body=bytes(2500))
    parts = chunks(frame)
    assert [part.chunk_header for part in parts] == [0x40, 0xC0, 0x80]
    assert b"".join(part.data for part in parts) == bytes(frame)
    assert [part.chunk_header for part in chunks(NetplayFrame(type=11))] == [0]


@pytest.mark.parametrize("layer", [NetplayFrame, NetplayShortFrame, NetplayChunk, NetplayText])
def test_fuzzed_packets_build(layer: Any) -> None:
    for _ in range(50):
        assert isinstance(bytes(fuzz(layer())), bytes)


def test_a_short_frame_is_recognised_by_its_length() -> None:
    assert isinstance(NetplayFrame(b"\0\2ab"), NetplayShortFrame)


PASSED_OVER: dict[Any, tuple[str, ...]] = {
    NetplayFrame: ("body",), NetplayShortFrame: ("octets",), NetplayChunk: ("data",),
    NetplayText: (),
}  # fmt: skip
READER_OF = {layer: compile_reader(layer, skip) for layer, skip in PASSED_OVER.items()}


def _spans(dialect: str, octets: bytes) -> list[tuple[Any, Any, bytes]]:
    """Return (layer, derived reader, bytes) of every frame, chunk or message of a stream."""
    if dialect == "text":
        return [
            (NetplayText, READER_OF[NetplayText], octets[start:end])
            for start, end, _ in line_spans(octets)
        ]
    if dialect == "bin3":
        return [
            (NetplayChunk, READER_OF[NetplayChunk], octets[start:end])
            for start, end, _, _ in chunk_spans(octets)
        ]
    return [
        (NetplayShortFrame, READER_OF[NetplayShortFrame], octets[start:end])
        if 0 <= length < 3
        else (NetplayFrame, READER_OF[NetplayFrame], octets[start:end])
        for start, end, length in frame_spans(octets)
    ]


FATAL = frozenset({"truncated", "length-beyond-end", "incomplete-message-at-close"})


def _assert_all_agree(dialect: str, octets: bytes) -> None:
    for layer, reader, part in _spans(dialect, octets):
        assert_agree("netplay", layer, reader, part, PASSED_OVER[layer], fatal=FATAL)


@pytest.mark.parametrize("dialect", ["bin1", "bin2", "bin3", "text"])
def test_reader_walker_and_scapy_agree(dialect: str) -> None:
    seeds = [bytes.fromhex(v["hex"]) for v in VECTORS if v["dialect"] == dialect and len(v["hex"]) < 900]
    for octets in seeds:
        _assert_all_agree(dialect, octets)
    for octets in mutations(seeds, 1500):
        _assert_all_agree(dialect, octets)


def _scan_types(dialect: str, octets: bytes) -> list[str]:
    claim_hints = PROTOCOL.next_hints(_hints(dialect))
    events = PROTOCOL.scan(octets, 0, claim_hints)
    return [event[1] for event in events if event[0] == 0]


def _hints(dialect: str) -> Any:
    from netdissect.model.claims import Hints

    return Hints((f"netplay-{dialect}", f"netplay-{dialect}"))


@pytest.mark.parametrize("dialect", ["bin1", "bin2", "bin3", "text"])
def test_hostile_octets_give_a_sound_tree(dialect: str) -> None:
    seeds = [bytes.fromhex(v["hex"]) for v in VECTORS if len(v["hex"]) < 900]
    for octets in mutations(seeds, 1500, seed=3):
        assert_sound(read(dialect, octets))


# -- bounds ----------------------------------------------------------------------------------------


def bomb() -> bytes:
    """Return a frame of 65,2xx bytes of zlib that would inflate to 64 MiB."""
    body = zlib.compress(bytes(64 << 20), 9)
    return struct.pack(">HBH", len(body) + 3, 1, 2) + body


def test_a_bomb_stops_at_the_bound() -> None:
    frame = bomb()
    assert len(frame) > 65_000
    tree = read("bin1", frame)
    assert "decompression-limit" in codes(tree)
    assert [len(buffer.data) for buffer in tree.buffers] == [len(frame), 1 << 20]
    assert tree.fields["messages"][0]["inflated_len"] == 1 << 20
    events = PROTOCOL.scan(frame, 0, _hints("bin1"))
    assert any(event[1] == "decompression-limit" for event in events[1:])


@pytest.mark.parametrize(("bounds", "octets"), [(Bounds(5000, 200), 5000), (Bounds(1 << 20, 10), 1300)])
def test_the_bounds_can_be_set(bounds: Bounds, octets: int) -> None:
    body = zlib.compress(bytes(100_000), 9)
    tree = read("bin1", struct.pack(">HBH", len(body) + 3, 1, 2) + body, bounds=bounds)
    assert "decompression-limit" in codes(tree)
    assert len(tree.buffers[1].data) <= octets


def test_the_library_passes_the_bounds_on() -> None:
    body = zlib.compress(bytes(100_000), 9)
    frame = struct.pack(">HBH", len(body) + 3, 1, 2) + body
    tree = lookup.decode_payload("netplay", frame, dialect="bin1", bounds=Bounds(7000, 1000))
    assert len(tree.buffers[1].data) == 7000


def test_many_bombs_share_one_budget() -> None:
    tree = read("bin1", bomb() * 40)
    assert sum(len(buffer.data) for buffer in tree.buffers[1:]) <= (16 << 20) + 40
    assert len(tree.messages) == 40


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b"\x78\xda", {"zlib-truncated"}),
        (b"\x78", {"zlib-truncated"}),
        (b"\xff", {"compressed-flag-not-zlib", "zlib-truncated"}),
        (b"\x78\xbb\0\0\0\1abc", {"zlib-preset-dictionary"}),
        (zlib.compress(b"\0\1a\0\1b")[:-6] + b"\xff" * 6, {"zlib-data-error"}),
        (b"\x1f\x8bgarbage", {"compressed-flag-not-zlib", "gzip-payload"}),
    ],
)
def test_odd_compressed_bodies_are_named(body: bytes, wanted: set[str]) -> None:
    tree = read("bin1", struct.pack(">HBH", len(body) + 3, 1, 2) + body)
    found = codes(tree)
    assert wanted <= found or ("zlib-data-error" in wanted and found & {"zlib-checksum-error", "zlib-truncated"})


def test_deep_json_is_legal_but_not_read() -> None:
    tree = read("text", b"Empty\n" + b"[" * 100_000 + b"]" * 100_000 + b"\n")
    assert codes(tree) == {"depth-limit"}
    assert {note.group for note in tree.annotations} == {"undecoded"}
    assert "json" not in tree.fields["messages"][0]


def test_a_key_that_is_stated_twice_is_written_as_json() -> None:
    tree = read("text", b'Empty\n{"it\'s \\"1\\"":1,"it\'s \\"1\\"":2}\n')
    (found,) = (note for note in tree.annotations if note.code == "json-duplicate-key")
    assert found.message == 'an object states "it\'s \\"1\\"" twice'


@pytest.mark.parametrize(
    ("line", "body", "wanted"),
    [
        (b"A", b'{"x":"\\ud800"}', {"json-lone-surrogate"}),
        (b"A", b'{"x":NaN}', {"json-invalid"}),
        (b"A", b'{"x":1,"x":2}', {"json-duplicate-key"}),
        (b"A", b"1" * 6000, {"json-not-object"}),
        (b"A", b"[" * 70 + b"]" * 70, {"depth-limit"}),
        (b"A", b'["[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["]', {"json-not-object"}),
        (b"", b"Login", {"empty-class-line", "pair-shift-suspected", "json-invalid"}),
        (b'{"a":1}', b"Login", {"class-line-not-identifier", "pair-shift-suspected", "json-invalid"}),
        (b"Login\r", b"{}", {"class-line-has-cr"}),
        (b"A", b"", {"empty-body-line"}),
        (b"A\xff", b"{}", {"class-line-not-identifier", "invalid-utf8"}),
        (b"int[][]", b"[[1]]", {"json-not-object"}),
        (b"$a_1", b"{}", set()),
    ],
)
def test_text_messages_are_judged(line: bytes, body: bytes, wanted: set[str]) -> None:
    assert codes(read("text", line + b"\n" + body + b"\n")) - {"unknown-class"} == wanted


# -- schemas ---------------------------------------------------------------------------------------

TREE = schemas.parse_schema(
    {
        "protocol": "netplay",
        "objects": {"Node": [["value", "byte"], ["children", "Node[]"]]},
        "messages": {"7": {"name": "Tree", "fields": [["root", "Node"], ["grid", "Node[][]"]]}},
    }
)


@pytest.mark.parametrize("dialect", ["bin1", "bin2"])
def test_objects_may_refer_to_themselves(dialect: str) -> None:
    values = PLAIN_VALUES if dialect == "bin1" else NULLABLE_VALUES
    leaf = {"value": -1, "children": []}
    data = {"root": {"value": 3, "children": [leaf, {"value": 9, "children": [leaf]}]}, "grid": [[leaf], []]}
    row = TREE.message("7")
    assert row is not None
    body = bytes(schemas.encode(TREE, values, row.fields, data).getvalue())
    tree = read(dialect, bytes(NetplayFrame(type=7, body=body)), schema=TREE)
    assert codes(tree) == set()
    assert tree.fields["messages"][0]["decoded"] == data


def test_null_values_are_written_and_read() -> None:
    row = schemas.built_in("netplay").message("15")
    assert row is not None
    data = dict.fromkeys((field.name for field in row.fields), None) | {"tags": [None, "x"]}
    body = bytes(schemas.encode(schemas.built_in("netplay"), NULLABLE_VALUES, row.fields, data).getvalue())
    tree = read("bin2", bytes(NetplayFrame(type=15, body=body)))
    assert tree.fields["messages"][0]["decoded"] == data


def test_a_message_of_other_dialects_is_unknown_in_bin1() -> None:
    assert "unknown-type" in codes(read("bin1", bytes(NetplayFrame(type=15, body=b""))))


def test_array_counts_allocate_nothing() -> None:
    schema = schemas.parse_schema({"messages": {"1": {"name": "Deep", "fields": [["x", "int[][][]"]]}}})
    tree = read("bin1", bytes(NetplayFrame(type=1, body=b"\xff" * 600)), schema=schema)
    assert "payload-underrun" in codes(tree)


def test_every_dialect_reads_every_prefix_of_its_name() -> None:
    for name in DIALECTS:
        short = name.removeprefix("netplay-")
        assert PROTOCOL.dialect_row(short) is PROTOCOL.dialect_row(name) is not None


def test_random_octets_never_raise() -> None:
    chance = random.Random(11)
    for _ in range(400):
        octets = chance.randbytes(chance.randrange(200))
        for dialect in STREAMS:
            read(dialect, octets)
            _scan_types(dialect, octets)
