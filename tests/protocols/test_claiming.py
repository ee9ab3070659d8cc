from __future__ import annotations

import random
from dataclasses import replace
from itertools import islice

import pytest

from console_docs import ROOT
from netdissect.capture import open_capture
from netdissect.flow import Decapsulator
from netdissect.model.claims import STRONG, Claim
from netdissect.model.packets import PacketKind
from netdissect.protocols import registry
from netdissect.protocols.claiming import (
    PORT_BONUS,
    DecodeAs,
    best_claim,
    forced_claim,
    roles,
)

RIPTIDE = registry.get("riptide")
CLAIM = Claim("toy", 70, ("toy", "toy"), None, "first_frame", ("because",))


class Toy:
    """A protocol that claims whatever it is told to."""

    name = "toy"
    transports = ("udp",)

    def __init__(self, claim, ports=()) -> None:
        self.claim = claim
        self.default_ports = ports

    def may_stand_alone(self, payload):
        return True

    def recognise(self, sample, transport, *, final):
        return self.claim


def best(*protocols, transport="udp", ports=(1, 2)):
    return best_claim(protocols, [(0, 0, b"x")], transport, ports, final=False, on_fault=pytest.fail)


def test_the_strongest_claim_wins() -> None:
    weak, strong = replace(CLAIM, score=STRONG), replace(CLAIM, score=90)
    assert best(Toy(weak), Toy(strong), Toy(weak)).score == 90
    assert best(Toy(replace(CLAIM, score=STRONG - 1))) is None
    assert best(Toy(None)) is None
    assert best(Toy(CLAIM), transport="tcp") is None


def test_a_known_port_adds_to_a_claim_and_says_so() -> None:
    weak = Toy(replace(CLAIM, score=STRONG - PORT_BONUS), ports=(7,))
    assert best(weak) is None
    found = best(weak, ports=(9, 7))
    assert found.score == STRONG
    assert "port" in found.reasons[-1]


@pytest.mark.parametrize(
    ("claim", "default_ports", "ports", "expected"),
    [
        (replace(CLAIM, client=1, roles_from="handshake"), (), (50000, 80), (1, "handshake")),
        (CLAIM, (7777,), (7777, 9999), (1, "port")),
        (CLAIM, (7777,), (9999, 7777), (0, "port")),
        (CLAIM, (), (50000, 4000), (0, "port")),
        (CLAIM, (), (4000, 50000), (1, "port")),
        (CLAIM, (7777,), (7777, 7777), (0, "first_frame")),
        (CLAIM, (), (50000, 50001), (0, "first_frame")),
    ],
)
def test_roles(claim, default_ports, ports, expected) -> None:
    assert roles(claim, Toy(None, default_ports), ports) == expected


def test_a_rule_takes_a_flow_that_nothing_recognises() -> None:
    rule = DecodeAs("udp", 5000, RIPTIDE)
    sample = [(0, 0, b"\xfe\x34")]
    assert forced_claim(rule, sample, (5000, 6000), final=False) is None
    claim = forced_claim(rule, sample, (5000, 6000), final=True)
    assert (claim.score, claim.client, claim.dialects) == (100, 1, (None, None))


def test_a_rule_without_a_dialect_takes_the_likeliest_one() -> None:
    # 2.0, from the middle: acknowledged too seldom to be recognised without the rule.
    rows = [(0, bytes.fromhex(f"07{n:02x}00e90301")) for n in range(0x41, 0x49)]
    rows[3:3] = [(1, bytes.fromhex("014200ff03"))]
    sample = [(side, n, octets) for n, (side, octets) in enumerate(rows)]
    claim = forced_claim(DecodeAs("udp", 5000, RIPTIDE), sample, (5000, 6000), final=True)
    assert claim.dialects == ("riptide-2.0/2.1dev", "riptide-2.0/2.1dev")


def test_a_rule_with_a_dialect_takes_it_at_once_and_overrules() -> None:
    rule = DecodeAs("udp", 6000, RIPTIDE, "riptide-2.1")
    claim = forced_claim(rule, [(0, 0, b"\x12")], (5000, 6000), final=False)
    assert (claim.client, claim.dialects) == (0, ("riptide-2.1", "riptide-2.1"))
    handshake = [(0, 0, b"\x02"), (1, 5, bytes.fromhex("1800100000"))]
    claim = forced_claim(rule, handshake, (5000, 6000), final=False)
    assert claim.dialects == ("riptide-2.1", "riptide-2.1")
    assert len(claim.reasons) == 2


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_what_cannot_stand_alone_is_never_claimed_alone(transport: str) -> None:
    """The cheap test of one datagram or piece of stream holds to recognition, also on damaged
    ones.
    """
    chance = random.Random(11)
    payloads: dict[bytes, None] = {}
    kind = {"udp": PacketKind.UDP, "tcp": PacketKind.TCP}[transport]
    for path in sorted((ROOT / "captures").rglob("*.pcap"))[::3]:
        with open_capture(path) as reader:
            for packet in Decapsulator().packets(islice(reader, 120)):
                if packet[0] == kind:
                    payloads[packet[4]] = None
    for octets in list(payloads)[::7]:
        changed = bytearray(octets or b"\0")
        changed[chance.randrange(len(changed))] = chance.randrange(256)
        payloads[bytes(changed)] = None
    payloads.update((chance.randbytes(chance.randrange(1, 60)), None) for _ in range(500))
    refused = 0
    for protocol in registry.protocols():
        if transport not in protocol.transports:
            continue
        for octets in payloads:
            if protocol.may_stand_alone(octets):
                continue
            refused += 1
            for final in (False, True):
                claim = protocol.recognise([(0, 0, octets)], transport, final=final)
                assert claim is None or claim.score + PORT_BONUS < STRONG, (protocol.name, octets)
    assert refused > 250
