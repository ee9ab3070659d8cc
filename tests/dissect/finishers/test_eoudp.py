"""All vectors of EOUDP through `dissect` and back, and what its reference says of odd input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agreement import assert_sound, mutations, payloads
from netdissect.dissect.engine import Request, dissect
from netdissect.dissect.schema import parse_schema
from netdissect.export.json import dump
from netdissect.layers.eoudp import header_layer
from netdissect.layers.eoudp.documents import KNOWN
from netdissect.layers.eoudp.documents import LAYERS as DOCUMENT_LAYERS
from netdissect.model.annotations import Severity
from netdissect.wire.eoudp_names import DIALECTS

VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors/eoudp.vectors.json").read_text(encoding="utf-8")
)
DIRECTIONS = {"c2s": 0, "s2c": 1}
FLAGS = {
    "truncated_header": {"truncated"},
    "size_mismatch": {"eoudp-size-mismatch"},
    "bad_content_size": {"eoudp-content-size"},
    "important_not_0_or_1": {"eoudp-important-value"},
    "bool_not_0_or_1": {"eoudp-bool-value"},
    "negative_count": {"eoudp-negative-count"},
    "implausible_timestamp": {"eoudp-timestamp"},
    "unknown_command": {"eoudp-unknown-command"},
    "not_eoudp_without_hint": {"eoudp-timestamp"},
}
"""Flag of a vector -> codes, as docs/protocols/eoudp.md lists them."""


def read(data: bytes, dialect: str, direction: str | None = None, **options: Any) -> Any:
    request = Request(dialect, DIRECTIONS.get(direction or ""), **options)
    return dissect("eoudp", data, request, strict=True)


def differences(wanted: Any, got: Any, path: str = "") -> list[str]:
    """Return every place where `got` lacks something of `wanted` or has it otherwise."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        missing = [f"{path}.{key} is missing" for key in wanted if key not in got]
        return missing + [
            text
            for key in wanted
            if key in got
            for text in differences(wanted[key], got[key], f"{path}.{key}")
        ]
    if isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        return [
            text
            for index, pair in enumerate(zip(wanted, got, strict=True))
            for text in differences(*pair, f"{path}[{index}]")
        ]
    same = type(wanted) is type(got) and wanted == got
    return [] if same else [f"{path}: {wanted!r} is wanted, not {got!r}"]


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
@pytest.mark.parametrize("prefix", ["", "eoudp-"])
def test_vectors_decode(vector: dict[str, Any], prefix: str) -> None:
    dialect = prefix + (vector["dialect"] or "exodia-late")
    out = read(bytes.fromhex(vector["hex"]), dialect, vector["direction"])
    assert_sound(out)
    shown = json.loads(dump(out.fields))
    assert not differences(vector["fields"] or {}, shown)
    for key in ("string_form", "content_byte_order"):
        if key in shown:
            assert shown[key] == vector[key]
    serious = {note.code for note in out.annotations if note.severity >= Severity.WARN}
    flags = vector.get("flags", ())
    assert bool(serious) == bool(flags)
    for flag in flags:
        assert FLAGS[flag] & serious


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_vectors_rebuild(vector: dict[str, Any]) -> None:
    raw = bytes.fromhex(vector["hex"])
    packet = header_layer(vector["dialect"] or "exodia-late")(raw)
    if packet.fault is not None:
        return
    packet.clear_cache()
    assert bytes(packet) == raw
    if packet.size == len(raw) - packet.length:
        packet.size = None
        assert bytes(packet) == raw


def test_a_mismatched_size_is_no_message_and_shows_what_is_there() -> None:
    whole = bytes.fromhex("8b427a1fc42a7a8000000000000000000e0000000000000000050801000001")
    out = read(whole[:25] + b"\x00" + whole[26:], "exodia-late")
    assert out.messages == []
    assert out.fields["content"] == {
        "raw_hex": whole[26:], "key": 264, "pressed": True, "key_name": "DOWN",
    }  # fmt: skip
    assert [note.code for note in out.annotations] == ["eoudp-size-mismatch"]
    out = read(whole, "exodia-late")
    assert [(message.type, message.length) for message in out.messages] == [("EVENT", 31)]


def content(dialect: str, command: int, data: bytes, **options: Any) -> Any:
    header = header_layer(dialect)
    stamp = 1.5 if dialect.startswith("rfc") else 1.79e12
    return read(bytes(header(cmd=command, id=7, timestamp=stamp)/data), dialect, **options)


def test_several_components_of_one_datagram_follow_the_first() -> None:
    layers = DOCUMENT_LAYERS["<", "length_excludes_nul"]
    first = layers.components(entity=1, component=b"Health", data=bytes(8))
    second = bytes(layers.components(entity=2, component=b"Tag", data=b"x"))
    out = content("rfc02", 0x0C, bytes(first) + second)
    assert not [note for note in out.annotations if note.severity >= Severity.WARN]
    shown = out.fields["content"]
    assert shown["data"] == {"current": 0, "max": 0}
    assert [item["component"] for item in shown["more"]] == ["Tag"]
    assert shown["more"][0]["data_hex"] == b"x"


def test_a_game_event_in_a_component_datagram_is_shown_as_one() -> None:
    strings = b"\x05\0\0\0hello\0"
    out = content("rfc02", 0x0C, strings)
    assert out.fields["shown_as"] == "GAME_EVENT"
    assert out.fields["content"]["strings"] == ["hello"]
    assert [note.code for note in out.annotations] == ["eoudp-game-event-0x0c"]


@pytest.mark.parametrize(
    ("dialect", "command", "size", "name"),
    [
        ("exodia-early", 0x82, 5, "EVENT"),
        ("exodia-early", 0x82, 0, "DISCONNECT"),
        ("exodia-mid", 0x82, 0, "DISCONNECT"),
        ("rfc02", 0x10, 5, "IMPORTANT_EVENT"),
        ("rfc02", 0x10, 19, "DELETE_COMPONENT"),
        ("rfc01", 0x10, 19, "DELETE_COMPONENT"),
        ("rfc01", 0x11, 4, "EVENT_0x11"),
        ("exodia-late", 0x11, 4, "UNKNOWN_0x11"),
        ("rfc02", 0x82, 8, "DISCONNECT"),
    ],
)
def test_contradicting_numbers_are_named_by_dialect_and_size(
    dialect: str, command: int, size: int, name: str
) -> None:
    out = content(dialect, command, bytes(size))
    assert out.fields["command_name"] == name


def test_a_flow_that_showed_big_endian_strings_is_read_so() -> None:
    class Hints:
        order = ">"

    out = content("rfc02", 0x0E, (5).to_bytes(8, "big"), hints=Hints())
    assert out.fields["content"] == {"entity": 5}
    assert content("rfc02", 0x0E, (5).to_bytes(8, "big")).fields["content"]["entity"] == 5 << 56


def test_a_user_schema_reads_a_component_and_says_where_it_ends_to_fit() -> None:
    layers = DOCUMENT_LAYERS["<", "no_nul"]
    data = bytes(layers.components(entity=9, component=b"Shield", data=b"\x03\0\0\0\0\0\x80?hi"))
    rows = [["left", "u32"], ["at", "f32"], ["name", "text"]]
    schema = parse_schema({"messages": {"Shield": {"fields": rows}}})
    out = content("exodia-late", 0x0C, data, schema=schema)
    assert out.fields["decoded"] == {"left": 3, "at": 1.0, "name": "hi"}
    assert_sound(out)
    rows[2] = ["more", "u64"]
    short = content("exodia-late", 0x0C, data, schema=parse_schema(
        {"messages": {"Shield": {"fields": rows}}}))
    assert [note.code for note in short.annotations] == ["schema-mismatch"]
    assert short.fields["decoded"] == {"left": 3, "at": 1.0}


def test_component_data_of_another_layout_stays_octets() -> None:
    layers = DOCUMENT_LAYERS["<", "no_nul"]
    data = bytes(layers.components(entity=9, component=b"Health", data=b"\x03\0"))
    out = content("exodia-late", 0x0C, data)
    assert "data" not in out.fields["content"]
    assert [note.code for note in out.annotations] == ["eoudp-component-layout"]


def test_lengths_beyond_the_end_allocate_nothing_and_keep_what_is_there() -> None:
    data = bytes(8) + b"\xff\xff\xff\xff" + b"Tag"
    out = content("exodia-late", 0x0C, data)
    assert out.fields["content"]["name_length"] == 0xFFFFFFFF
    assert [note.code for note in out.annotations] == ["eoudp-content-size", "length-beyond-end"]


def test_octets_of_a_broken_name_are_no_python_repr_in_the_summary() -> None:
    out = content("exodia-late", 0x0C, bytes(8) + b"\xff\xff\xff\xff" + b"Tag")
    assert out.summary == "COMPONENT_OF 7 546167 of 0"
    out = content("exodia-late", 0x0B, b"\3\0\0\0abc\xff\0\0\0de")
    assert out.summary == "SYSTEM_LOAD 7 'abc'"


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("form", ["length_excludes_nul", "length_includes_nul", "no_nul"])
def test_what_stands_before_a_broken_length_stays_text(order: str, form: str) -> None:
    layers = DOCUMENT_LAYERS[order, form]
    one = bytes(layers.components(entity=9, component=b"Health", data=b"\x03\0"))
    two = bytes(layers.components(entity=10, component=b"Clock", data=b"\x04"))
    out = content("rfc02", 0x0C, one + two[:-5] + b"\x0f\x0f\x0f\x0ftext").fields
    assert out["string_form"] == form
    found = out["content"]
    assert (found["entity"], found["component"], found["data_hex"]) == (9, "Health", b"\3\0")
    last = found["more"][0]
    assert (last["entity"], last["component"], last["data_hex"]) == (10, "Clock", b"text")
    strings = b"".join(
        bytes(layers.strings(entries=[layers.strings.fields_desc[0].cls(text=one)]))
        for one in (b"abc", b"de")
    )
    out = content("rfc02", 0x0B, strings + b"\x0f\x0f\x0f\x0fxyz")
    assert out.fields["content"]["strings"] == ["abc", "de"]
    assert out.fields["content"]["entries"][2]["text"] == b"xyz"
    note = next(note for note in out.annotations if note.code == "length-beyond-end")
    assert note.bit_offset == 8 * (21 + len(strings) + 4)


def test_an_oversized_datagram_is_said_to_be_cut_by_receivers() -> None:
    out = content("exodia-late", 0x0C, bytes(8) + b"\0\0\0\0" + (1442).to_bytes(4, "little")
                  + bytes(1442))
    assert "eoudp-oversize" in {note.code for note in out.annotations}


def test_every_command_of_the_documents_has_a_reading() -> None:
    assert {"ACK", "COMPONENT_OF", "EVENT_0x11", "DELETE_ENTITY"} <= KNOWN


@pytest.mark.parametrize("dialect", DIALECTS)
def test_nothing_raises_on_damaged_datagrams(dialect: str) -> None:
    seeds = payloads("eoudp")
    for data in mutations(seeds, 400, seed=len(dialect)):
        assert_sound(read(data, dialect, "c2s"))
