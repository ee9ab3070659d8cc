"""Numbers, Huffman codes and UUIDs alone, as `decode` reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agreement import payloads
from netdissect.lookup import decode_payload
from netdissect.protocols.teeworlds.fragments import fragment

VECTORS = [
    vector
    for vector in json.loads(
        (Path(__file__).parents[2] / "vectors/teeworlds.vectors.json").read_text(encoding="utf-8")
    )
    if vector["dialect"] == "any" or vector["name"].startswith("uuid")
]


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_vectors_of_codecs_decode(vector: dict[str, Any]) -> None:
    data, wanted = bytes.fromhex(vector["hex"]), dict(vector["fields"])
    tree = decode_payload("teeworlds", data, dialect=vector["dialect"], strict=True)
    flagged = wanted.pop("flag", None) is not None
    assert wanted.items() <= tree.fields.items()
    assert ("overlong-varint" in {note.code for note in tree.annotations}) is flagged


def test_packets_are_no_fragments() -> None:
    """Where a dialect is given, or the packet tells it, nothing is added but what is no chance."""
    for data in payloads("teeworlds")[::40]:
        assert fragment(data, packet=True) is None
    assert "value" not in decode_payload("teeworlds", b"\x01", dialect="0.7").fields
    connect = bytes.fromhex("10000001544b454effffffff")
    assert decode_payload("teeworlds", connect).dialect == "teeworlds-ddnet-0.6"


@pytest.mark.parametrize("octets", ["", "0000", "808080808080", "ffff", "b1082a6e000000"])
def test_what_is_in_no_code(octets: str) -> None:
    assert octets == "ffff" or fragment(bytes.fromhex(octets), packet=False) is None
    tree = decode_payload("teeworlds", bytes.fromhex(octets), strict=True)
    assert "decompressed_hex" not in tree.fields
