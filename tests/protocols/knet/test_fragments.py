"""kNet numbers alone: what `decode` makes of bytes that are no datagram."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from netdissect.lookup import decode_payload
from netdissect.wire.varint import KNET_7_7_16, KNET_7_8, KNET_15_16

VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors/knet.vectors.json").read_text(encoding="utf-8")
)
NUMBERS = [vector for vector in VECTORS if vector["fields"]["kind"] == "vle"]
FAMILIES = [KNET_7_8, KNET_7_7_16, KNET_15_16]


@pytest.mark.parametrize("vector", NUMBERS, ids=[vector["name"] for vector in NUMBERS])
def test_vectors_of_numbers_decode(vector: dict[str, Any]) -> None:
    fields = decode_payload("knet", bytes.fromhex(vector["hex"]), dialect="all").fields
    wanted = vector["fields"]
    assert (fields["kind"], fields["bytes_used"]) == ("vle", wanted["bytes_used"])
    # Other encodings may take the same bytes: the one of the vector is among those listed.
    assert fields["readings"][wanted["scheme"]] == wanted["value"]
    if next(iter(fields["readings"])) == wanted["scheme"]:
        assert fields["value"] == wanted["value"]


def test_numbers_are_found_where_they_take_all_octets() -> None:
    for codec in FAMILIES:
        for value in (0, 1, 127, 128, 300, 16_383, 32_767):
            if value <= codec.maximum:
                fields = decode_payload("knet", codec.write(value)).fields
                assert fields["readings"][codec.name] == value


@pytest.mark.parametrize("octets", ["220300", "26030001", "8001", "8100000220010102200102"])
def test_what_is_said_to_be_a_datagram_is_one(octets: str) -> None:
    fields = decode_payload("knet", bytes.fromhex(octets), dialect="knet-2.x").fields
    assert fields["kind"] in ("datagram", "malformed")


def test_a_datagram_is_no_number() -> None:
    assert decode_payload("knet", bytes.fromhex("220300")).fields["kind"] == "datagram"
    assert "readings" not in decode_payload("knet", bytes.fromhex("26030001")).fields
