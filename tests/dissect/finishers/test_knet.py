"""All vectors of kNet through `dissect`, its malformed inputs, and the errors of Wireshark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agreement import assert_sound
from netdissect.dissect.engine import Request, dissect
from netdissect.model.annotations import Severity
from netdissect.wire.varint import KNET_7_7_16, KNET_7_8, KNET_15_16

VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors/knet.vectors.json").read_text(encoding="utf-8")
)
NOT_WIRE = {"why", "note", "warn", "scheme"}
DIRECTIONS = {"c2s": 0, "s2c": 1}
SCHEMES = {codec.name: codec for codec in (KNET_7_8, KNET_7_7_16, KNET_15_16)}
NUMBERS = [vector for vector in VECTORS if vector["fields"]["kind"] == "vle"]
PAYLOADS = [vector for vector in VECTORS if vector["fields"]["kind"] != "vle"]


def decode(hexadecimal: str, dialect: str = "knet-2.x", direction: int | None = 0, **more: Any) -> Any:
    request = Request(dialect, direction, **more)
    out = dissect("knet", bytes.fromhex(hexadecimal), request, strict=True)
    assert_sound(out)
    return out


def same(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return len(got) == len(wanted) and all(map(same, got, wanted))
    if isinstance(wanted, dict):
        return all(same(got[key], value) for key, value in wanted.items())
    got = got.hex() if isinstance(got, bytes) else got
    return type(got) is type(wanted) and got == wanted


@pytest.mark.parametrize("vector", PAYLOADS, ids=[vector["name"] for vector in PAYLOADS])
def test_vectors_decode(vector: dict[str, Any]) -> None:
    transport = "tcp" if vector["name"].startswith("tcp_") else "udp"
    out = decode(
        vector["hex"], vector["dialect"], DIRECTIONS.get(vector["direction"]), transport=transport
    )
    serious = [note for note in out.annotations if note.severity >= Severity.WARN]
    odd = vector["fields"]["kind"] == "malformed" or "warn" in vector["fields"]
    assert bool(serious) == odd or vector["fields"].get("warn") == "no messages", serious
    for key, wanted in vector["fields"].items():
        if key not in NOT_WIRE:
            assert same(out.fields[key], wanted), (key, out.fields[key])
    wanted_messages = vector["fields"].get("messages", [])
    assert len(out.messages) == len(wanted_messages) or odd
    # What a vector does not list, the tree does not hold: no ID of a later fragment, no reply's bits.
    for got, wanted in zip(out.fields.get("messages", []), wanted_messages, strict=False):
        for key in ("message_id", "ping_id", "acknowledges", "reliable_number", "depends_on"):
            assert (key in got) == (key in wanted), key


@pytest.mark.parametrize("vector", NUMBERS, ids=[vector["name"] for vector in NUMBERS])
def test_vectors_of_numbers(vector: dict[str, Any]) -> None:
    data, fields = bytes.fromhex(vector["hex"]), vector["fields"]
    codec = SCHEMES[fields["scheme"]]
    assert codec.read(data + b"\xff", 0, len(data)) == (fields["value"], fields["bytes_used"])
    assert codec.write(fields["value"]) == data


# -- what the reference says of malformed and odd input (section 12) ---------------------------------


@pytest.mark.parametrize(
    ("direction", "octets", "codes"),
    [
        (0, "", ["knet-empty-datagram"]),
        (0, "00", ["knet-header"]),
        (0, "4100", ["knet-header"]),
        (0, "220300", ["knet-no-messages"]),
        (0, "630300", ["knet-no-base"]),
        (0, "26030001", ["truncated"]),
        (0, "2403000000", ["knet-zero-content"]),
        (0, "250300050006aabb", ["length-beyond-end"]),
        (0, "27030002c0010506aa", ["knet-unreliable-fragment", "knet-fragment-count"]),
        (0, "220300 0380 02 05 06aabb", ["knet-unreliable-fragment"]),
        (0, "620300 0000 0250 00 00 03 aabb", ["knet-transfer-zero"]),
        (0, "2b0300010080", ["truncated"]),
        (0, "2903000600040100000000", ["knet-control-size"]),
        (0, "2a0300030001aabb", ["knet-control-size"]),
        (0, "2a030002000300", ["knet-control-size"]),
        (0, "2c030003100006aabb", ["knet-flag-mismatch"]),
        (0, "220300 0208 06aa", ["knet-unused-bit"]),
        (0, "30030004008600aabb", ["knet-overlong-vle"]),
        (0, "2d03000800040100c0ffffffff", ["knet-ack-bits"]),
        (0, "2e03000500ffffffff00", ["knet-disconnect-payload"]),
        (1, "0000000000000000", ["knet-zero-content"]),
        (0, "0000000000000000", []),
    ],
)
def test_malformed_and_odd_input(direction: int, octets: str, codes: list[str]) -> None:
    out = decode(octets, direction=direction)
    assert [note.code for note in out.annotations] == codes


def test_what_comes_before_a_fault_stays() -> None:
    out = decode("8100000220010102200102 0000", direction=1)
    assert [view.type for view in out.messages] == ["PingRequest", "PingRequest"]
    assert out.fields["kind"] == "malformed"
    assert out.fields["receiver_drops_connection"] is True


def test_a_base_with_high_bits_acknowledges_what_its_bits_name() -> None:
    (message,) = decode("2d03000800040100c0ffffffff").fields["messages"]
    assert message["acknowledges"] == list(range(2, 34))


def test_an_oversize_datagram() -> None:
    out = decode("31030042060" + "6" + "5a" * 1601)
    assert "knet-oversize" in [note.code for note in out.annotations]


def test_urho3d_hands_message_3_to_its_application() -> None:
    assert decode("2a03000400030a0b0c", "knet-urho3d").annotations == []
    assert [n.code for n in decode("2a03000400030a0b0c").annotations] == ["knet-control-size"]


# -- where Wireshark 4.0.17 is wrong (section 15) ----------------------------------------------------

BY_NAME = {vector["name"]: vector for vector in VECTORS}


def test_wireshark_error_1_reliable_base_above_32767() -> None:
    out = decode(BY_NAME["reliable_base_four_bytes"]["hex"])
    assert out.fields["reliable_base"] == 34500
    assert out.fields["messages"][0]["reliable_number"] == 34500
    delta = decode(BY_NAME["reliable_delta_two_bytes"]["hex"])
    assert [m.get("reliable_delta") for m in delta.fields["messages"]] == [0, 301, None, 302]


def test_wireshark_error_2_message_ids_above_127() -> None:
    out = decode("4b00000600031000800180")
    assert out.fields["messages"][0]["message_id"] == 128
    assert out.fields["messages"][0]["payload"] == b"\x80"
    # A first byte of 0xFB to 0xFF is no connect or disconnect message by itself.
    for octets, number in (("ff7fff", 16383), ("fb01", 251), ("fe7f", 16382)):
        size = len(octets) // 2
        (message,) = decode(f"010000{size:02x}00{octets}").fields["messages"]
        assert (message["message_id"], message.get("message_name")) == (number, None)


def test_wireshark_error_3_fragment_fields() -> None:
    vector = BY_NAME["fragment_number_two_bytes"]
    fields = decode(vector["hex"], direction=1).fields
    assert [m["fragment_number"] for m in fields["messages"]] == [128, 129, 130, 131]
    assert {m["transfer_id"] for m in fields["messages"]} == {1}
    (start, *_) = decode(BY_NAME["fragment_start_four_byte_id"]["hex"]).fields["messages"]
    assert (start["fragment_count"], start["message_id"]) == (7, 20072)


def test_wireshark_error_4_tcp_keeps_its_place() -> None:
    stream = BY_NAME["tcp_first_messages_c2s"]
    out = decode(stream["hex"], "knet-tcp", transport="tcp")
    assert [m["message_id"] for m in out.fields["messages"]] == [1, 2, 10, 20, 20, 200]
    large = KNET_7_7_16.write(16384) + b"\x14" + bytes(16383) + bytes.fromhex("020102")
    messages = decode(large.hex(), "knet-tcp", transport="tcp").fields["messages"]
    assert [(m["content_length"], m["message_id"]) for m in messages] == [(16384, 20), (2, 1)]


def test_tundras_login_is_read() -> None:
    login = decode("010000 0500 64 0200 6869".replace(" ", ""), "knet-tundra")
    (message,) = login.fields["messages"]
    assert (message["application_name"], message["decoded"]) == ("Login", {"data": "hi"})
    reply = decode("010000 0800 65 01 ac02 0200 6f6b".replace(" ", ""), "knet-tundra", 1)
    (message,) = reply.fields["messages"]
    assert message["decoded"] == {"success": 1, "user_id": 300, "data": "ok"}
    assert reply.annotations == []
    plain = decode("010000 0500 64 0200 6869".replace(" ", ""))
    assert "decoded" not in plain.fields["messages"][0]


# -- user schemas ------------------------------------------------------------------------------------


def test_a_schema_names_the_values_of_a_payload() -> None:
    from netdissect.dissect.schema import parse_schema

    schema = parse_schema({
        "protocol": "knet",
        "messages": {"20": {"name": "Move", "fields": [
            ["number", "u16"], ["jump", "bit"], ["speed", "bits(7)"], ["name", "string8"],
            ["rest", "bytes"],
        ]}},
    })  # fmt: skip
    content = "14" + "3412" + "07" + "02" + "6869" + "aabb"
    out = decode(f"010000{len(content) // 2:02x}00{content}", schema=schema)
    (message,) = out.fields["messages"]
    assert message["decoded"] == {
        "number": 0x1234, "jump": 1, "speed": 3, "name": "hi", "rest": b"\xaa\xbb",
    }  # fmt: skip
    assert out.messages[0].summary == f"Move (msg_20) {len(content) // 2 - 1} B"
    assert "Move (msg_20)" in out.summary
    short = decode("0100000300141234", schema=schema)
    assert [note.code for note in short.annotations] == ["schema-mismatch"]


def test_a_receiver_of_2010_drops_the_datagram_alone() -> None:
    out = decode("9a040008e003280100000000 00", "knet-2010", 1)
    assert out.fields["kind"] == "malformed"
    assert out.fields["receiver_drops_connection"] is False
