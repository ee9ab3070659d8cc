"""All vectors of kNet through `dissect`, its malformed inputs, and the errors of Wireshark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from netdissect.dissect.engine import Request, dissect
from netdissect.model.annotations import Severity
from netdissect.wire.varint import KNET_7_7_16, KNET_7_8, KNET_15_16
from agreement import assert_sound

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
