"""All vectors of Teeworlds through `dissect`, and what a reader must flag."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agreement import assert_sound, mutations, payloads
from netdissect.dissect.engine import Request, dissect
from netdissect.model.annotations import Severity
from netdissect.wire.huffman import compress, decompress, eof_bit
from netdissect.wire.teeworlds import object_rows, uuid_rows
from netdissect.wire.teeworlds_forms import DIALECTS
from netdissect.wire.varint import TEEWORLDS, VarintError
from work import lines

VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors/teeworlds.vectors.json").read_text(encoding="utf-8")
)
PACKETS = [
    vector
    for vector in VECTORS
    if vector["dialect"] != "any" and not vector["name"].startswith("uuid")
]
CODECS = [vector for vector in VECTORS if vector not in PACKETS]
DIRECTIONS = {"c2s": 0, "s2c": 1}

FLAGS = {
    "chunk runs past the end": "length-beyond-end",
    "more chunks announced than present": "list-short",
    "fewer chunks announced than present": "trailing-bytes",
    "reserved top bits set": "teeworlds-reserved-bits",
    "compressed payload without EOF": "teeworlds-huffman",
    "control packet with compression flag": "teeworlds-control-compressed",
    "unknown control message": "teeworlds-control-unknown",
    "connless with version 2": "teeworlds-connless-version",
    "0.6 vital chunk with contradicting sequence bits": "teeworlds-sequence-copies",
    "empty control packet": "teeworlds-control-missing",
    "string without terminator": "unterminated-string",
    "DDNet sys.unknown": "teeworlds-unknown-uuid",
}
"""Malformed or unknown vector -> its finding."""


def decode(vector: dict[str, Any]) -> Any:
    request = Request(f"teeworlds-{vector['dialect']}", DIRECTIONS.get(vector["direction"]))
    return dissect("teeworlds", bytes.fromhex(vector["hex"]), request, strict=True)


def assert_holds(got: Any, wanted: Any, path: str) -> None:
    if isinstance(wanted, dict):
        assert isinstance(got, dict), path
        for key, value in wanted.items():
            assert key in got, f"{path}.{key}"
            assert_holds(got[key], value, f"{path}.{key}")
    elif isinstance(wanted, list):
        assert len(got) == len(wanted), path
        for index, (one, other) in enumerate(zip(got, wanted, strict=True)):
            assert_holds(one, other, f"{path}[{index}]")
    else:
        got = got.hex() if isinstance(got, bytes) else got
        if isinstance(wanted, str) and wanted.endswith("..."):
            assert str(got).startswith(wanted[:-3]), path
        else:
            assert got == wanted, path
            assert type(got) is type(wanted), path


@pytest.mark.parametrize("vector", PACKETS, ids=[vector["name"] for vector in PACKETS])
def test_vectors_decode(vector: dict[str, Any]) -> None:
    out = decode(vector)
    assert_sound(out)
    serious = [note.code for note in out.annotations if note.severity >= Severity.WARN]
    flag = FLAGS.get(vector["name"].removeprefix("malformed: "))
    assert serious == ([flag] if flag else [])
    wanted = {key: value for key, value in vector["fields"].items() if key != "flag"}
    assert_holds(out.fields, wanted, "")


@pytest.mark.parametrize("vector", CODECS, ids=[vector["name"] for vector in CODECS])
def test_codec_vectors(vector: dict[str, Any]) -> None:
    data, fields = bytes.fromhex(vector["hex"]), vector["fields"]
    if "decompressed_hex" in fields:
        assert decompress(data, 1400).hex() == fields["decompressed_hex"]
        assert eof_bit(data) == fields["eof_bit_position"]
        assert (compress(decompress(data, 1400)) == data) is fields["compresses_back_to_same_bytes"]
    elif "uuid" in fields:
        row = uuid_rows().get(data) or object_rows("0.6")[data]
        assert row
        assert data.hex() == fields["uuid"].replace("-", "")
    elif "error" in fields:
        with pytest.raises(VarintError):
            TEEWORLDS.read(data, 0, len(data))
    else:
        assert TEEWORLDS.read(data, 0, len(data)) == (fields["value"], fields["bytes"])
        assert TEEWORLDS.is_minimal(data, fields["value"]) is ("flag" not in fields)


@pytest.mark.parametrize(
    ("dialect", "direction", "octets", "codes"),
    [
        # docs/protocols/teeworlds.md, what to flag: row by row
        ("0.7", 0, "0000", ["truncated"]),
        ("0.7", 0, "00000000000000" + "00" * 1394, ["teeworlds-oversize", "trailing-bytes"]),
        ("0.7", 0, "04000000000000", ["teeworlds-control-missing"]),
        ("0.6", 1, "10000009", ["teeworlds-control-unknown"]),
        ("0.6", 0, "000001", ["list-short"]),
        ("0.6", 0, "0000010100", ["length-beyond-end"]),
        ("0.6", 0, "0000010000", ["teeworlds-chunk-empty"]),
        ("0.6", 1, "040001000111", ["teeworlds-reserved-bits"]),
        ("0.6", 0, "00000100412d", ["teeworlds-chunk-bits"]),
        ("0.6", 0, "0000010001ff", ["truncated"]),
        ("0.6", 0, "00000100029c01", ["teeworlds-unknown-message"]),
        ("0.6", 0, "0000014002019d00", ["overlong-varint"]),
        ("0.6", 0, "000001000140", ["teeworlds-unknown-message"]),
        ("0.6", 0, "000001000201" + "ff", ["truncated"]),
        ("0.6", 0, "000001010101" + "00" * 16, ["teeworlds-unknown-uuid"]),
        ("0.6", 1, "0000014001011d", ["teeworlds-wrong-direction"]),
        ("0.6", 0, "00000100011d", ["teeworlds-not-vital"]),
        ("0.6", 0, "0000014002011d00", ["teeworlds-extra"]),
        ("0.6", 0, "000001400301036161", ["unterminated-string"]),
        ("0.6", 0, "0000014005010301006100", ["teeworlds-sanitised"]),
        ("0.6", 1, "00000100070b010203050401", ["length-beyond-end", "teeworlds-snap-part"]),
        ("0.6", 1, "00000100070b010203030400", ["teeworlds-snap-part"]),
        ("0.6", 0, "000001000421010207", ["teeworlds-input-size", "truncated"]),
        ("0.6", 1, "000001400301140710", ["teeworlds-range"]),
        ("ddnet-0.6", 0, "000001", ["list-short", "truncated"]),
    ],
)
def test_what_is_flagged(dialect: str, direction: int, octets: str, codes: list[str]) -> None:
    data = bytes.fromhex(octets)
    out = dissect("teeworlds", data, Request(f"teeworlds-{dialect}", direction), strict=True)
    assert sorted(note.code for note in out.annotations) == sorted(codes)
    assert_sound(out)


def test_offsets_of_compressed_messages_refer_to_the_second_buffer() -> None:
    data = bytes.fromhex("100a013f5a53994de9b074738f9b35fefba5b801")
    out = dissect("teeworlds", data, Request("teeworlds-0.7", 0), strict=True)
    assert [buffer.name for buffer in out.buffers] == ["payload", "decompressed"]
    (message,) = out.messages
    assert (message.type, message.buffer, message.offset, message.length) == ("sys.input", 1, 2, 17)
    assert message.fields["player_input"]["target_x"] == 1
    assert message.summary == "input tick 453, acks snapshot 450: stands, aims at 1,0"


def test_lines_hide_passwords_and_keep_hostile_text_for_the_renderer() -> None:
    data = bytes.fromhex("000001") + bytes(4) + bytes([0x40, 11, 1, 3]) + b"v\0s3cret\0\x07"
    out = dissect("teeworlds", data, Request("teeworlds-0.7", 0), strict=True)
    assert out.messages[0].fields["password"] == "s3cret"  # noqa: S105 - a test
    assert "s3cret" not in out.summary
    assert "********" in out.summary
    chat = bytes([0x40, 12, 1, 48, 1, 0x40]) + b"\x1b[2Jhey!\0"
    data = bytes.fromhex("000001") + bytes(4) + bytes([0x40, len(chat) - 3]) + chat[2:]
    out = dissect("teeworlds", data, Request("teeworlds-0.7", 0), strict=True)
    assert out.messages[0].fields["message"] == "\x1b[2Jhey!"
    assert [note.code for note in out.annotations] == ["teeworlds-sanitised"]


def test_octets_behind_compressed_data() -> None:
    good = compress(bytes.fromhex("4002020200400703220100010001084001040b"))
    data = bytes.fromhex("10020355ef2dc7") + good + b"\0\0\0"
    out = dissect("teeworlds", data, Request("teeworlds-0.7", 1), strict=True)
    assert [note.code for note in out.annotations] == ["teeworlds-huffman-tail"]


def test_captured_and_mutated_datagrams_are_sound() -> None:
    seeds = payloads("teeworlds")
    for index, data in enumerate((*seeds[::20], *mutations(seeds, 1500))):
        request = Request(DIALECTS[index % 4], index % 3 if index % 3 < 2 else None)
        assert_sound(dissect("teeworlds", data, request, strict=True))


@pytest.mark.parametrize("dialect", ["teeworlds-0.6", "teeworlds-0.7"])
def test_a_connectionless_message_cut_in_its_id_is_noted(dialect: str) -> None:
    head = b"\xff" * 6
    if dialect.endswith("7"):
        head = bytes.fromhex("210000000100000002")
    for size, cut in ((7, True), (8, False)):
        tree = dissect("teeworlds", head + b"\xff\xff\xff\xffinf3"[:size], Request(dialect, 1))
        noted = [note.message for note in tree.annotations if note.code == "truncated"]
        assert any("message id" in text for text in noted) == cut


def chunked(count: int, chunk: bytes, *, token: bytes = b"\1\2\3\4") -> bytes:
    return bytes([0, 0, count]) + token + chunk * count


@pytest.mark.parametrize(
    "chunk",
    [bytes([0, 0]), bytes([0x40, 1, 1, 2]), b"\0\x09\6\0\0\0AB\0\0\0", b"\0\1\xff"],
    ids=["empty", "vital", "chat", "damaged"],
)
def test_chunks_cost_what_they_are_many(chunk: bytes) -> None:
    request = Request("teeworlds-0.7", 1)
    few, many = (
        lines(lambda count=count: dissect("teeworlds", chunked(count, chunk), request))
        for count in (60, 240)
    )
    assert len(dissect("teeworlds", chunked(240, chunk), request).messages) == 240
    assert many < 4.2 * few


def test_what_few_ask_for_is_concluded_with_the_tree() -> None:
    vector = next(each for each in PACKETS if each["name"] == "0.7 input")
    chunk = decode(vector).root.child("chunks").children[0]
    assert not chunk.field("vital").value
    assert chunk.field("sequence") is None
    concluded = [node.name for node in chunk.children if node.generated]
    assert concluded == ["size", "sequence", "kind", "id", "message"]
    assert chunk.field("kind").value == "sys"
