"""The layers as Scapy users fuzz with them: fuzz(), command(), hashret and answers, machines."""

from __future__ import annotations

import random
import socket
import threading
import time
from typing import Any

import pytest
from scapy.automaton import Automaton
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw, fuzz, ls

from fuzzing import free_target
from netdissect.craft.layers import build, exported_layers, message_types
from netdissect.craft.wrapping import wrap
from netdissect.dissect.engine import Request, dissect
from netdissect.fuzz.automata import ClientMachine, ServerAutomaton
from netdissect.fuzz.drivers import driver_class
from netdissect.fuzz.servers import make_server
from netdissect.fuzz.servers.answering import ServerMachine
from netdissect.fuzz.servers.base import Address, Replies, StreamServer, open_listener, turn
from netdissect.layers import eoudp, knet, netplay, riptide, teeworlds
from netdissect.model.errors import UsageError

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


def _knet(*contents: Any, **fields: Any) -> Any:
    messages = [knet.KnetMessage(content=content) for content in contents]
    return knet.KnetDatagram(messages=messages, **fields)


def _stream(content: Any) -> Any:
    return knet.KnetStream(messages=[knet.KnetTcpMessage(content=content)])


def _frame(message: Any) -> Any:
    return riptide.RiptideFrame(data=bytes(message))


def _tw(message: Any) -> Any:
    chunks = teeworlds.Tw07Chunks(chunks=[teeworlds.Tw07Chunk(body=message)])
    return teeworlds.Tw07(ack=0) / chunks


PAIRS: dict[str, tuple[Any, Any]] = {
    "riptide connect": (riptide.RiptideConnect(), riptide.RiptideWelcome(client_id=3)),
    "riptide refused": (riptide.RiptideConnect(), riptide.RiptideReject()),
    "riptide heartbeat": (riptide.RiptideHeartbeat(ping_id=7, rtt_ms=3), riptide.RiptideHeartbeat(ping_id=7)),
    "riptide ack": (riptide.RiptideReliable(sequence_id=9), riptide.RiptideAck(last_received=9)),
    "riptide ack of an older one": (riptide.RiptideReliable(sequence_id=5),
        riptide.RiptideAck(last_received=12, extra_flag=1, extra_seq_field=5)),
    "riptide 2.0": (riptide.Riptide20Connect(), riptide.Riptide20Welcome()),
    "riptide 2.0 ack": (riptide.Riptide20Reliable(sequence_id=4),
        riptide.Riptide20AckExtra(last_received=8, acked_sequence_id=4)),
    "riptide 2.1dev ack": (riptide.Riptide21devReliable(sequence_id=4), riptide.Riptide21devAck(last_received=4)),
    "riptide over tcp": (_frame(riptide.RiptideConnect()), _frame(riptide.RiptideWelcome())),
    "teeworlds token": (teeworlds.Tw07(control_flag=1) / teeworlds.Tw07ControlToken(),
        teeworlds.Tw07(control_flag=1) / teeworlds.Tw07ControlToken(response_token=b"abcd")),
    "teeworlds connect": (teeworlds.Tw07(control_flag=1) / teeworlds.Tw07ControlConnect(),
        teeworlds.Tw07(control_flag=1) / teeworlds.Tw07ControlAccept()),
    "teeworlds 0.6 connect": (teeworlds.Tw06(control_flag=1) / teeworlds.Tw06ControlConnect(),
        teeworlds.Tw06(control_flag=1) / teeworlds.Tw06ControlConnectAccept()),
    "teeworlds info": (_tw(teeworlds.Tw07SysInfo()), _tw(teeworlds.Tw07SysMapChange())),
    "teeworlds ping": (_tw(teeworlds.Tw07SysPing()), _tw(teeworlds.Tw07SysPingReply())),
    "teeworlds server info": (teeworlds.Tw07Connless(body=teeworlds.Tw07ConnlessRequestInfo()),
        teeworlds.Tw07Connless(body=teeworlds.Tw07ConnlessInfo())),
    "teeworlds 0.6 server info": (teeworlds.Tw06Connless(body=teeworlds.Tw06ConnlessRequestInfo()),
        teeworlds.Tw06Connless(body=teeworlds.Tw06ConnlessInfo())),
    "knet connect": (knet.KnetConnect(), _knet(knet.KnetPingRequest(ping_id=1))),
    "knet ping": (_knet(knet.KnetPingRequest(ping_id=5)), _knet(knet.KnetPingReply(ping_id=5))),
    "knet ack": (_knet(knet.KnetApplication(), reliable=1, packet_id=40),
        _knet(knet.KnetPacketAck(acked_packet_id=40))),
    "knet ack by bit": (_knet(knet.KnetApplication(), reliable=1, packet_id=42),
        _knet(knet.KnetPacketAck(acked_packet_id=40, sequence_bits=2))),
    "knet disconnect": (_knet(knet.KnetDisconnect()), _knet(knet.KnetDisconnectAck())),
    "knet over tcp": (_stream(knet.KnetPingRequest(ping_id=5)), _stream(knet.KnetPingReply(ping_id=5))),
    "eoudp connect": (eoudp.EoudpLate(), eoudp.EoudpLate() / eoudp.EoudpConnectAccept()),
    "eoudp ack": (eoudp.EoudpLate(id=7, important=1) / eoudp.EoudpEvent(),
        eoudp.EoudpLate() / eoudp.EoudpAck(acked_id=7)),
}  # fmt: skip
"""What it is -> (request, answer). Netplay has no answers: nothing in it refers to anything."""
STRANGERS: list[tuple[Any, Any]] = [
    (riptide.RiptideHeartbeat(ping_id=1), riptide.RiptideHeartbeat(ping_id=2)),
    (riptide.RiptideConnect(), riptide.RiptideReliable()),
    (riptide.RiptideConnect(), riptide.RiptideConnect()),
    (riptide.RiptideReliable(sequence_id=5), riptide.RiptideAck(last_received=6)),
    (riptide.RiptideNotify(sequence_id=6), riptide.RiptideAck(last_received=6)),
    (_frame(riptide.RiptideConnect()), _frame(riptide.RiptideReliable())),
    (_tw(teeworlds.Tw07SysPing()), _tw(teeworlds.Tw07SysMapChange())),
    (_tw(teeworlds.Tw07SysPing()), teeworlds.Tw07(control_flag=1) / teeworlds.Tw07ControlKeepalive()),
    (teeworlds.Tw07(), teeworlds.Tw07()),
    (_knet(knet.KnetPingRequest(ping_id=5)), _knet(knet.KnetPingReply(ping_id=6))),
    (_knet(knet.KnetApplication(), packet_id=40), _knet(knet.KnetPacketAck(acked_packet_id=40))),
    (_knet(knet.KnetApplication(), reliable=1, packet_id=39), _knet(knet.KnetPacketAck(acked_packet_id=40))),
    (eoudp.EoudpLate(id=7), eoudp.EoudpLate() / eoudp.EoudpAck(acked_id=8)),
    (eoudp.EoudpLate() / eoudp.EoudpEvent(), eoudp.EoudpLate() / eoudp.EoudpConnectAccept()),
    (riptide.RiptideConnect(), eoudp.EoudpLate() / eoudp.EoudpConnectAccept()),
    (eoudp.EoudpLate(), riptide.RiptideWelcome()),
    (knet.KnetConnect(), riptide.RiptideWelcome()),
]  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_answers_pair_requests_with_replies(name: str) -> None:
    """As built, and as dissected from the bytes: Scapy asks the sent one and the one it read."""
    asked, reply = PAIRS[name]
    read = type(reply)(bytes(reply))
    for each in (reply, read):
        assert each.hashret() == asked.hashret()
        assert each.answers(asked)
    protocol = name.partition(" ")[0]
    strangers = [pair[1] for other, pair in PAIRS.items() if not other.startswith(protocol)]
    assert not any(each.answers(asked) for each in strangers)


@pytest.mark.parametrize("pair", STRANGERS)
def test_others_do_not_answer(pair: tuple[Any, Any]) -> None:
    asked, reply = pair
    assert not reply.answers(asked)


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


MACHINES = {
    "riptide": riptide.RiptideConnect(),
    "teeworlds": teeworlds.Tw07(control_flag=1) / teeworlds.Tw07ControlToken(response_token=b"abcd"),
    "eoudp": eoudp.EoudpLate(timestamp=1.7e12, important=1),
    "knet": knet.KnetConnect(),
}  # fmt: skip


@pytest.mark.parametrize("protocol", MACHINES)
def test_every_protocol_over_udp_has_an_answering_machine(protocol: str) -> None:
    """The servers over TCP are peers by themselves: an answering machine has no streams."""
    machine = ServerMachine(server=make_server(protocol), dport=7777)
    request = (
        IP(src="127.0.0.2", dst="127.0.0.1") / UDP(sport=5000, dport=7777) / MACHINES[protocol]
    )
    replies = machine.make_reply(IP(bytes(request)))
    assert replies
    for reply in replies:
        assert (reply[IP].dst, reply[UDP].sport, reply[UDP].dport) == ("127.0.0.2", 7777, 5000)
    driver = driver_class(protocol)
    dialect = driver.dialects[0]
    found = [
        dissect(protocol, bytes(reply[UDP].payload), Request(dialect, 1, "udp"))
        for reply in replies
    ]
    assert all(tree.messages for tree in found)


@pytest.mark.parametrize(
    ("protocol", "dialect", "transport", "layer"), FIVE, ids=[row[0] for row in FIVE]
)
def test_scapy_lists_and_shows_every_message(
    protocol: str, dialect: str, transport: str, layer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    del layer
    for kind in message_types(protocol, dialect, transport).values():
        ls(kind)
        listed = capsys.readouterr().out
        assert all(field.name in listed for field in kind.fields_desc)
        shown = wrap(protocol, dialect, kind()).show2(dump=True)
        assert kind.__name__ in shown or "###[" in shown
        assert wrap(protocol, dialect, kind()).summary()


def test_every_protocol_exports_layers() -> None:
    for protocol, _dialect, _transport, layer in FIVE:
        assert layer in exported_layers(protocol).values()


@pytest.mark.parametrize(
    ("protocol", "transport"),
    [("riptide", "udp"), ("riptide", "tcp"), ("teeworlds", "udp"), ("knet", "udp"), ("knet", "tcp"),
     ("eoudp", "udp"), ("netplay", "tcp")],
)  # fmt: skip
def test_client_and_server_automata_of_every_protocol_talk(protocol: str, transport: str) -> None:
    server = ServerAutomaton(protocol, transport=transport, seconds=30)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        packet = {"riptide": riptide.RiptideReliable(message_id=3, data=b"hello"),
                  "netplay": netplay.NetplayFrame(type=1)}.get(protocol)  # fmt: skip
        framed = packet if transport == "udp" or protocol != "riptide" else _frame(packet)
        client = ClientMachine(
            protocol, f"127.0.0.1:{server.address[1]}", transport=transport,
            packets=[] if framed is None else [framed], wait=0.3,
        )  # fmt: skip
        answers = client.run()
        assert client.driver.state == "closed"
        if packet is not None:
            assert answers
    finally:
        server.until = 0.0
        thread.join(30)


def test_an_automaton_says_that_it_is_refused() -> None:
    with pytest.raises(Automaton.ErrorState):
        ClientMachine("riptide", str(free_target()), timeout=0.3).run()


class _Loud(StreamServer):
    DIALECT = "any"

    def read(self, peer: Address) -> Replies:
        return []

    def tick(self, now: float) -> Replies:
        return [(bytes(1 << 24), ("peer", 1))]


def test_a_stream_that_its_client_does_not_read_is_closed_and_not_left_with_a_hole() -> None:
    server, (link, other) = _Loud(), socket.socketpair()
    link.setblocking(False)
    links: dict[Address, socket.socket] = {("peer", 1): link}
    with open_listener(server) as listener, other:
        turn(server, listener, links, time.monotonic)
    assert links == {}
    assert link.fileno() < 0


def test_a_server_speaks_the_dialect_that_it_is_asked_for() -> None:
    assert make_server("knet", "2010").dialect == "knet-2010"
    assert make_server("knet", "knet-tcp").TRANSPORT == "tcp"
    assert make_server("riptide", "riptide-2.0", transport="tcp").dialect == "riptide-2.0"
    # It would answer nothing, and a client would take it for dead.
    with pytest.raises(UsageError, match=r"no server for the dialect .*; there are: teeworlds-0\.7"):
        make_server("teeworlds", "teeworlds-0.6")
