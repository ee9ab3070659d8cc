"""Riptide's Scapy layers: build, dissect, match answers, and every published vector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scapy.packet import Raw, fuzz

from agreement import SHARES, mutations, payloads
from netdissect.dissect.engine import Request
from netdissect.layers import riptide
from netdissect.layers.riptide import (
    BIT_LAYERS,
    BitString,
    Riptide,
    Riptide20AckExtra,
    Riptide21Ack,
    RiptideAck,
    RiptideConnect,
    RiptideFrame,
    RiptideFrame20,
    RiptideHeartbeat,
    RiptideNotify,
    RiptideReject,
    RiptideReliable,
    RiptideWelcome,
    message_layer,
)

VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors/riptide.vectors.json").read_text(encoding="utf-8")
)
DIALECTS = ("riptide-2.0", "riptide-2.1dev", "riptide-2.1", "riptide-2.2")


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_vectors_rebuild_to_the_same_octets(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    request = Request(f"riptide-{vector['dialect']}", transport=vector.get("transport", "udp"))
    packet = riptide.root(data, request)(data)
    if packet.fault is None and not isinstance(packet.payload, Raw):
        packet.clear_cache()
    assert bytes(packet) == data


@pytest.mark.parametrize(
    ("packet", "octets"),
    [
        # docs/protocols/riptide.md section 1.2
        (RiptideConnect(), "02"),
        (RiptideWelcome(sequence_id=1, client_id=1), "1800100000"),
        (RiptideAck(last_received=1, ack_bits=1), "1100100000"),
        (Riptide21Ack(last_received=1, ack_bits=1), "11001000200000"),
        (RiptideHeartbeat(ping_id=0, rtt_ms=-1), "04f0ff0f"),
        (Riptide20AckExtra(last_received=4, ack_bits=15, acked_sequence_id=2), "0204000f000200"),
        (RiptideNotify(last_received=1, ack_bits=1, sequence_id=2), "160010200000"),
        (RiptideFrame() / RiptideConnect(), "0100000002"),
        (RiptideFrame20(length=9) / Raw(b"\x03"), "090003"),
    ],
)
def test_built_by_hand(packet: Any, octets: str) -> None:
    assert bytes(packet).hex() == octets


def test_unequal_bit_lengths_are_kept() -> None:
    packet = RiptideReliable(sequence_id=2, message_id=300, data=BitString(b"\x05", 3))
    back = Riptide(bytes(packet))
    assert (back.sequence_id, back.message_id) == (2, 300)
    assert back.data[0] & 7 == 5
    assert eval(back.command(), vars(riptide)) == back  # noqa: S307


def test_questions_find_their_answers() -> None:
    connect, ping = RiptideConnect(), RiptideHeartbeat(ping_id=7, rtt_ms=20)
    for answer in (RiptideWelcome(), RiptideReject()):
        assert answer.answers(connect)
        assert answer.hashret() == connect.hashret()
    assert RiptideHeartbeat(ping_id=7).answers(ping)
    assert RiptideHeartbeat(ping_id=7).hashret() == ping.hashret()
    assert not RiptideHeartbeat(ping_id=8).answers(ping)
    assert not RiptideHeartbeat(ping_id=7).answers(connect)


@pytest.mark.parametrize("number", range(16))
def test_every_type_dispatches_and_fuzzes(number: int) -> None:
    layer = BIT_LAYERS.get(number, riptide.RiptideInvalid)
    assert type(Riptide(bytes([number, 0, 0]))) is layer
    for _ in range(60):
        octets = bytes(fuzz(layer()))
        assert bytes(Riptide(octets)) == octets


@pytest.mark.parametrize("share", SHARES)
def test_captured_messages_lose_nothing_in_scapy(share: int) -> None:
    for data in payloads("riptide")[::share]:
        for dialect in DIALECTS:
            assert bytes(message_layer(data, dialect)(data)) == data


def test_mutated_messages_lose_nothing_in_scapy() -> None:
    for data in mutations(payloads("riptide"), 5000):
        for dialect in DIALECTS:
            packet = message_layer(data, dialect)(data)
            assert bytes(packet) == data
            packet.summary()


def test_bind_is_what_changes_scapy(monkeypatch: pytest.MonkeyPatch) -> None:
    from scapy.layers.inet import IP, UDP

    monkeypatch.setattr(UDP, "payload_guess", list(UDP.payload_guess))
    raw = bytes(IP() / UDP(sport=40000, dport=7777) / RiptideConnect())
    assert isinstance(IP(raw)[UDP].payload, Raw)
    riptide.bind()
    assert isinstance(IP(raw)[UDP].payload, RiptideConnect)
