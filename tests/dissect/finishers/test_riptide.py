"""All vectors of Riptide through `dissect`, and the malformed inputs of its reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agreement import assert_sound, mutations, payloads
from netdissect.dissect.engine import Request, dissect
from netdissect.dissect.schema import parse_schema
from netdissect.model.annotations import Severity

VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors/riptide.vectors.json").read_text(encoding="utf-8")
)
NOT_WIRE = {"why", "note", "notes", "source", "written_bits", "intended_reason", "payload_note",
            "malformed"}  # fmt: skip
DIRECTIONS = {"c2s": 0, "s2c": 1}
DIALECTS = ("riptide-2.0", "riptide-2.1dev", "riptide-2.1", "riptide-2.2")
UNPREFIXED = "without length"
"""The vectors whose byte array has no length on the wire: their schema must state it."""


def schema_type(vector: dict[str, Any], entry: dict[str, Any]) -> str:
    if entry["type"] == "bits":
        return f"bits({entry['bits']})"
    if entry["type"] == "bytes" and UNPREFIXED in vector["name"]:
        return f"byte[{len(entry['value']) // 2}]"
    return str(entry["type"])


def decode(vector: dict[str, Any]) -> Any:
    fields = vector["fields"]
    values = fields.get("payload") or fields.get("data_values") or []
    rows = [[f"v{i}", schema_type(vector, entry)] for i, entry in enumerate(values)]
    key = str(fields.get("message_id", fields.get("type")))
    schema = parse_schema({"messages": {key: {"name": "M", "fields": rows}}}) if rows else None
    request = Request(
        f"riptide-{vector['dialect']}",
        DIRECTIONS.get(vector["direction"]),
        vector.get("transport", "udp"),
        schema=schema,
    )
    return dissect("riptide", bytes.fromhex(vector["hex"]), request, strict=True)


def same(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        return got == pytest.approx(wanted, rel=1e-6)
    if isinstance(wanted, list):
        return len(got) == len(wanted) and all(map(same, got, wanted))
    if isinstance(wanted, dict):
        return all(same(got[key], value) for key, value in wanted.items())
    return (got.hex() if isinstance(got, bytes) else got) == wanted


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_vectors_decode(vector: dict[str, Any]) -> None:
    out = decode(vector)
    assert_sound(out)
    serious = [note for note in out.annotations if note.severity >= Severity.WARN]
    if vector["fields"].get("malformed"):
        assert serious
    elif "payload_note" in vector["fields"]:
        assert [note.code for note in serious] == ["riptide-elements-missing"]
        return
    else:
        assert not serious
    for key, wanted in vector["fields"].items():
        if key in NOT_WIRE:
            continue
        if key in ("payload", "data_values") and wanted:
            wanted = [{"value": entry["value"]} for entry in wanted]  # noqa: PLW2901
        assert key in out.fields or not wanted, key
        assert same(out.fields.get(key, wanted), wanted), key


@pytest.mark.parametrize(
    ("dialect", "direction", "octets", "codes"),
    [
        # docs/protocols/riptide.md section 11, row by row
        ("2.2", 0, "1b0000", ["riptide-invalid-type"]),
        ("2.0", 0, "c80000", ["riptide-invalid-type"]),
        ("2.2", 0, "8700", ["truncated"]),
        ("2.2", 0, "0600000000", ["truncated"]),
        ("2.2", 0, "270000", ["riptide-missing-message-id"]),
        ("2.0", 0, "070200", ["riptide-missing-message-id"]),
        ("2.2", 0, "110010", ["truncated"]),
        ("2.2", 0, "1100100010", ["truncated"]),
        ("2.2", 0, "0400", ["riptide-heartbeat-form"]),
        ("2.2", 0, "04", ["truncated"]),
        ("2.2", 1, "04f0ff0f", ["riptide-heartbeat-form"]),
        ("2.2", 0, "0400ff0f", ["riptide-implausible-rtt"]),
        ("2.2", 0, "1800100000aa", ["trailing-bytes"]),
        ("2.2", 0, "1800100010", ["nonzero-padding"]),
        ("2.2", 0, "2300", ["riptide-wrong-direction"]),
        ("2.2", 0, "1900100000", ["riptide-wrong-direction"]),
        ("2.2", 0, "1a00100000", ["riptide-wrong-direction"]),
        ("2.2", 0, "4500", ["riptide-wrong-direction"]),
        ("2.2", 1, "0505", ["riptide-misencoded-stop"]),
        ("2.2", 0, "f0ffff", ["truncated"]),
        ("2.2", 0, "f0" + "ff" * 12, ["overlong-varint"]),
        ("2.2", None, "", ["riptide-empty-datagram"]),
        ("2.2", 0, "10" + "00" * 1231, ["riptide-oversize"]),
        ("2.0", 0, "00" * 1231, ["riptide-oversize"]),
    ],
)
def test_malformed_input(dialect: str, direction: int, octets: str, codes: list[str]) -> None:
    data = bytes.fromhex(octets)
    out = dissect("riptide", data, Request(f"riptide-{dialect}", direction), strict=True)
    assert [note.code for note in out.annotations] == codes
    assert_sound(out)


def test_an_overlong_message_id_keeps_what_was_read() -> None:
    out = dissect("riptide", bytes.fromhex("270010" + "ff" * 12), Request("riptide-2.2"))
    assert out.fields["sequence_id"] == 2 << 0 | 0x100 or out.fields["type"] == "Reliable"
    assert "message_id" in out.fields


@pytest.mark.parametrize(
    ("dialect", "stream", "types"),
    [
        ("2.0", "01000305000801000100", ["Connect", "Welcome"]),
        ("2.2", "0100000002050000001800100000", ["Connect", "Welcome"]),
    ],
)
def test_tcp_streams_hold_several_frames(dialect: str, stream: str, types: list[str]) -> None:
    out = dissect("riptide", bytes.fromhex(stream), Request(f"riptide-{dialect}", 0, "tcp"))
    assert [message.type for message in out.messages] == types
    assert not out.annotations
    assert_sound(out)


@pytest.mark.parametrize("stream", ["ffffffff02", "0000000002", "0a00000002", "01"])
def test_impossible_tcp_lengths(stream: str) -> None:
    out = dissect("riptide", bytes.fromhex(stream), Request("riptide-2.2", 0, "tcp"))
    assert any(note.severity >= Severity.WARN for note in out.annotations)
    assert_sound(out)


def test_hidden_data_is_shown_re_aligned() -> None:
    out = dissect("riptide", bytes.fromhex("1010"), Request("riptide-2.2"))
    assert [buffer.name for buffer in out.buffers] == ["payload", "re-aligned"]
    assert out.buffers[1].data == b"\x01"


def test_captured_and_mutated_datagrams_are_sound() -> None:
    seeds = payloads("riptide")
    for index, data in enumerate((*seeds, *mutations(seeds, 3000))):
        request = Request(DIALECTS[index % 4], index % 3 if index % 3 < 2 else None)
        assert_sound(dissect("riptide", data, request, strict=True))
