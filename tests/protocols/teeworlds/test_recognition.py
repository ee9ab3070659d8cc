"""Teeworlds is found without a port in every variant, and nothing else is taken for it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agreement import captures, payloads, udp_payloads
from netdissect.model.claims import STRONG
from netdissect.protocols.claiming import SAMPLE_SIZES
from netdissect.protocols.teeworlds import PROTOCOL
from netdissect.protocols.teeworlds.strict import accepts, connless
from netdissect.wire.teeworlds_forms import DIALECTS

OTHERS = ("riptide", "knet", "eoudp", "netplay")
CONNECT = bytes.fromhex("10000001")
ACCEPT = bytes.fromhex("10000002")


def claim(*sample: tuple[int, bytes], final: bool = False) -> Any:
    return PROTOCOL.recognise([(side, 0, data) for side, data in sample], "udp", final=final)


@pytest.mark.parametrize(
    ("first", "dialect"),
    [
        (bytes.fromhex("040000ffffffff05") + b"abcd" + bytes(508), "teeworlds-0.7"),
        (CONNECT + b"TKEN\xff\xff\xff\xff", "teeworlds-ddnet-0.6"),
        (CONNECT + bytes(4) + b"abcd" + bytes(504), "teeworlds-0.6.5"),
    ],
)
def test_a_first_packet_is_enough(first: bytes, dialect: str) -> None:
    found = claim((0, first))
    assert found.score >= STRONG
    assert found.dialects == (dialect, dialect)
    assert (found.client, found.roles_from) == (0, "handshake")
    assert found.reasons


def test_four_octets_need_their_answer() -> None:
    assert claim((0, CONNECT)) is None
    assert claim((0, CONNECT), (1, b"\0\0\0\1")) is None
    found = claim((0, CONNECT), (1, ACCEPT))
    assert (found.dialects[0], found.client) == ("teeworlds-0.6", 0)
    assert found.score >= STRONG
    assert claim((0, CONNECT), (0, CONNECT)) is None
    assert claim((0, CONNECT), (0, CONNECT), final=True).score >= STRONG
    assert claim((0, CONNECT), final=True) is None


def test_a_token_answer_alone_is_too_weak_without_a_port() -> None:
    answer = bytes.fromhex("04000055ef2dc7053f5a5399")
    assert claim((0, answer), final=True).score < STRONG
    assert claim((0, answer), final=False) is None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_two_packets_in_the_middle_are_enough(dialect: str) -> None:
    chance = random.Random(5)
    own = [data for data in payloads("teeworlds") if accepts(data, dialect) and len(data) > 12]
    for _ in range(200):
        first, second = chance.choice(own), chance.choice(own)
        found = claim((0, first), (1, second))
        if found is not None:
            assert found.dialects == (dialect, dialect)
    lone = next(data for data in own if accepts(data, dialect).control is None)
    assert claim((0, lone)) is None


def test_captured_packets_pass_under_one_dialect_only() -> None:
    doubtful = whole = 0
    for data in payloads("teeworlds"):
        if connless(data) is not None:
            continue
        passed = [dialect for dialect in DIALECTS if accepts(data, dialect) is not None]
        whole += 1
        doubtful += len(passed) != 1
    assert whole > 20_000
    assert doubtful < whole / 1000  # a handshake of four bytes, and one server's damaged packets


@pytest.mark.parametrize("protocol", OTHERS)
def test_other_protocols_are_left_alone(protocol: str) -> None:
    for path in captures(protocol):
        data = list(udp_payloads(path))[:64]
        for size in sorted(SAMPLE_SIZES):
            found = claim(*((index % 2, octets) for index, octets in enumerate(data[:size])), final=size >= 16)
            assert found is None or found.score < STRONG, path.name


def test_random_payloads_are_left_alone() -> None:
    chance = random.Random(6)
    for _ in range(20_000):
        data = chance.randbytes(chance.choice((4, 8, 12, 20, 60, 200)))
        assert not any(accepts(data, dialect) for dialect in DIALECTS if len(data) > 8)
        assert connless(data) is None
    for _ in range(500):
        sample = [(chance.randrange(2), chance.randbytes(chance.choice((4, 12, 20, 100)))) for _ in range(16)]
        assert claim(*sample, final=True) is None
    assert claim(*((side, bytes(20)) for side in (0, 1) * 8), final=True) is None


def test_resend_requests_without_chunks_prove_nothing() -> None:
    """Three bytes of header and any four: whatever begins with 8 and has a zero there."""
    sample = [(1, bytes.fromhex("08010000000202")), (1, bytes.fromhex("08020000000102"))]
    assert PROTOCOL.recognise([(side, 0, data) for side, data in sample], "udp", final=True) is None
