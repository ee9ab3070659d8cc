"""Teeworlds' Scapy layers: build, dissect, fuzz, and every published packet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scapy.packet import Raw, fuzz

from agreement import mutations, payloads
from netdissect.layers import teeworlds as layers
from netdissect.layers.teeworlds import (
    CONNLESS,
    CONTROLS,
    MESSAGES,
    UUID_MESSAGES,
    Tw06,
    Tw06Chunk,
    Tw06Chunks,
    Tw065,
    Tw07,
    Tw07Chunk,
    Tw07Chunks,
    Tw07Connless,
    Tw07ConnlessRequestInfo,
    Tw07GameClSay,
    Tw07SysInput,
    TwDdnet,
    TwDdnetChunks,
    packet_layer,
)
from netdissect.wire.teeworlds_forms import DIALECTS

VECTORS = [
    vector
    for vector in json.loads(
        (Path(__file__).parents[2] / "vectors/teeworlds.vectors.json").read_text(encoding="utf-8")
    )
    if vector["dialect"] != "any" and not vector["name"].startswith("uuid")
]
TOKEN = bytes.fromhex("3f5a5399")


def forget(packet: Any) -> None:
    """Drop everything that Scapy and the layers remember of the bytes."""
    while packet and not isinstance(packet, Raw):
        packet.clear_cache()
        if hasattr(packet, "packed"):
            packet.packed = None
        packet = packet.payload


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_vectors_rebuild_to_the_same_octets(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    packet = packet_layer(data, f"teeworlds-{vector['dialect']}")(data)
    assert bytes(packet) == data
    if not vector["name"].startswith("malformed"):
        assert not packet.haslayer(Raw)
        forget(packet)
        assert bytes(packet) == data


def test_lengths_counts_and_compression_fill_themselves_in() -> None:
    say = Tw07GameClSay(mode=1, target=-1, message="hello world")
    move = Tw07SysInput(ack_game_tick=576, intended_tick=577, input=[0, 1, *[0] * 8], ping_correction=2)
    chunks = [Tw07Chunk(vital=1, sequence=5, body=say), Tw07Chunk(body=move)]
    packet = Tw07(ack=10, token=TOKEN) / Tw07Chunks(chunks=chunks)
    vector = next(vector for vector in VECTORS if vector["name"] == "0.7 chat from client")
    assert bytes(packet).hex() == vector["hex"]


def test_wrong_values_stay() -> None:
    chunk = Tw06Chunk(vital=1, sequence=3, size=9, body=layers.Tw06SysReady())
    assert bytes(Tw06(num_chunks=7) / Tw06Chunks(chunks=[chunk])).hex() == "000007" "400903" "1d"
    raw = bytes(Tw07(compressed_flag=1, token=TOKEN) / Tw07Chunks(chunks=[]))
    assert raw.hex() == "100000" + TOKEN.hex() + "8a1b"
    part = layers.Tw07SysSnapSingle(tick=5, delta=6, crc=0, part_size=200, data=b"ab")
    assert Tw07Chunk(body=part).body.part_size == 200
    assert bytes(part) == bytes.fromhex("11050600") + b"\x88\x03ab"


def test_tokens_of_every_dialect_have_their_place() -> None:
    ready = Tw06Chunk(vital=1, sequence=2, body=layers.Tw06SysReady())
    assert bytes(Tw065(token_flag=1, token=TOKEN) / Tw06Chunks(chunks=[ready])).hex() == (
        "080001" + TOKEN.hex() + "400102" + "1d"
    )
    assert bytes(TwDdnet() / TwDdnetChunks(chunks=[ready], token=TOKEN)).hex() == (
        "000001" + "400102" + "1d" + TOKEN.hex()
    )
    asks = Tw07Connless(token=TOKEN, response_token=b"abcd", body=Tw07ConnlessRequestInfo(token=7))
    assert bytes(asks).hex() == "21" + TOKEN.hex() + "61626364" + "ffffffff67696533" + "07"


@pytest.mark.parametrize("sequence", [0, 1, 63, 64, 255, 256, 511, 1023])
@pytest.mark.parametrize("chunk", [Tw06Chunk, Tw07Chunk])
def test_sequence_numbers_survive(chunk: Any, sequence: int) -> None:
    octets = bytes(chunk(vital=1, sequence=sequence))
    back = chunk(octets)
    upper = back.sequence_high << back.form.size_bits + 2
    assert upper | back.sequence_low == sequence


@pytest.mark.parametrize(
    "layer",
    [
        *MESSAGES["0.6"].values(), *MESSAGES["0.7"].values(), *UUID_MESSAGES.values(),
        *CONNLESS["0.6"].values(), *CONNLESS["0.7"].values(),
        *(layer for group in CONTROLS.values() for layer in group.values()),
    ],
    ids=lambda layer: layer.__name__,
)  # fmt: skip
def test_every_message_builds_fuzzes_and_prints_itself(layer: Any) -> None:
    plain = layer()
    assert bytes(layer(bytes(plain))) == bytes(plain)
    assert bytes(eval(plain.command(), vars(layers))) == bytes(plain)  # noqa: S307 - our own command
    for _ in range(5):
        octets = bytes(fuzz(layer()))
        assert bytes(layer(octets)) == octets
    assert layer.__name__ in layers.__all__


def test_captured_packets_lose_nothing_in_scapy() -> None:
    for data in payloads("teeworlds")[::7]:
        for dialect in DIALECTS:
            assert bytes(packet_layer(data, dialect)(data)) == data


def test_mutated_packets_lose_nothing_in_scapy() -> None:
    for index, data in enumerate(mutations(payloads("teeworlds"), 1500)):
        packet = packet_layer(data, DIALECTS[index % 4])(data)
        if data:  # from no bytes Scapy builds a default packet
            assert bytes(packet) == data
            assert bytes(packet.copy()) == data
        packet.summary()


def test_bind_is_what_changes_scapy(monkeypatch: pytest.MonkeyPatch) -> None:
    from scapy.layers.inet import IP, UDP

    monkeypatch.setattr(UDP, "payload_guess", list(UDP.payload_guess))
    close = Tw07(token=TOKEN, control_flag=1) / layers.Tw07ControlClose(reason="bye")
    raw = bytes(IP() / UDP(sport=40000, dport=8303) / close)
    assert isinstance(IP(raw)[UDP].payload, Raw)
    layers.bind()
    assert isinstance(IP(raw)[UDP].payload, Tw07)
    assert IP(raw)[layers.Tw07ControlClose].reason == b"bye"
