"""The layers as Scapy users fuzz with them: fuzz(), command(), hashret and answers, machines."""

from __future__ import annotations

import random
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw, fuzz

from netdissect.dissect.engine import Request, dissect
from netdissect.fuzz.layers import build, exported_layers, message_types
from netdissect.fuzz.servers import make_server
from netdissect.fuzz.servers.answering import ServerMachine
from netdissect.fuzz.wrapping import wrap
from netdissect.layers import eoudp, knet, netplay, riptide, teeworlds

FIVE: list[tuple[str, str, str, Any]] = [
    ("riptide", "riptide-2.2", "udp", riptide.RiptideReliable),
    ("teeworlds", "teeworlds-0.7", "udp", teeworlds.Tw07),
    ("knet", "knet-2.x", "udp", knet.KnetDatagram),
    ("eoudp", "exodia-late", "udp", eoudp.EoudpLate),
    ("netplay", "netplay-bin1", "tcp", netplay.NetplayFrame),
]


@pytest.mark.parametrize(
    ("protocol", "dialect", "transport", "layer"), FIVE, ids=[row[0] for row in FIVE]
)
def test_a_thousand_seeds_build_and_decode(
    protocol: str, dialect: str, transport: str, layer: Any
) -> None:
    request = Request(dialect, None, transport)
    different = set()
    for seed in range(1000):
        random.seed(seed)
        octets = bytes(fuzz(layer()))
        different.add(octets)
        assert dissect(protocol, octets, request, strict=True).buffers[0].data == octets
    assert len(different) > 300


@pytest.mark.parametrize(
    ("protocol", "dialect", "transport", "layer"), FIVE, ids=[row[0] for row in FIVE]
)
def test_commands_make_the_same_packet(
    protocol: str, dialect: str, transport: str, layer: Any
) -> None:
    del layer
    names: dict[str, Any] = {"Raw": Raw}
    for module in (riptide, teeworlds, knet, eoudp, netplay):
        names |= {name: getattr(module, name) for name in module.__all__ if hasattr(module, name)}
    kinds = message_types(protocol, dialect, transport).values()
    assert kinds
    for kind in kinds:
        packet = wrap(protocol, dialect, kind())
        again = eval(packet.command(), dict(names))  # noqa: S307
        assert build(again) == build(packet), packet.command()


def test_answers_pair_requests_with_replies() -> None:
    connect, welcome = riptide.RiptideConnect(), riptide.RiptideWelcome(client_id=3)
    assert welcome.hashret() == connect.hashret()
    assert welcome.answers(connect)
    assert not riptide.RiptideHeartbeat(ping_id=1).answers(riptide.RiptideHeartbeat(ping_id=2))
    assert not riptide.RiptideReliable().answers(connect)


def test_a_server_is_a_scapy_answering_machine() -> None:
    machine = ServerMachine(server=make_server("riptide"), dport=7777)
    request = (
        IP(src="127.0.0.2", dst="127.0.0.1")
        / UDP(sport=5000, dport=7777)
        / riptide.RiptideConnect()
    )
    request = IP(bytes(request))
    assert machine.is_request(request)
    assert not machine.is_request(IP() / UDP(dport=7778))
    (reply,) = machine.make_reply(request)
    assert (reply[IP].dst, reply[UDP].sport, reply[UDP].dport) == ("127.0.0.2", 7777, 5000)
    answer = riptide.Riptide(bytes(reply[UDP].payload))
    assert isinstance(answer, riptide.RiptideWelcome)
    assert answer.answers(riptide.RiptideConnect())


def test_every_protocol_exports_layers() -> None:
    for protocol, _dialect, _transport, layer in FIVE:
        assert layer in exported_layers(protocol).values()
