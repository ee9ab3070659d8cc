"""`sr1` on the loopback: the layers find the minimal servers' answers by `hashret` and `answers`."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from threading import Event
from typing import Any

import pytest
from scapy.config import conf
from scapy.layers.inet import IP, UDP
from scapy.packet import bind_bottom_up, split_bottom_up
from scapy.sendrecv import AsyncSniffer, sr1
from scapy.supersocket import L3RawSocket, StreamSocket

from agreement import CAPTURES
from fuzzing import free_target, running
from netdissect.fuzz.automata import ClientMachine
from netdissect.fuzz.servers import make_server
from netdissect.fuzz.servers.answering import ServerMachine
from netdissect.layers import eoudp, knet, riptide, teeworlds
from netdissect.scapy_session import NetdissectSession

WAIT = 10.0
REQUESTS: list[tuple[str, Any, Any, Any]] = [
    ("riptide", riptide.Riptide, riptide.RiptideConnect(), riptide.RiptideWelcome),
    ("teeworlds", teeworlds.Tw07, teeworlds.Tw07(control_flag=1, num_chunks=0)
     / teeworlds.Tw07ControlToken(response_token=b"abcd"), teeworlds.Tw07ControlToken),
    ("eoudp", eoudp.EoudpLate, eoudp.EoudpLate(timestamp=1.7e12, important=1), eoudp.EoudpAck),
    ("knet", knet.KnetDatagram, knet.KnetConnect(), knet.KnetDatagram),
]  # fmt: skip
"""(protocol, layer to read with, request, layer of the answer)."""


@pytest.fixture
def raw_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Scapy send below IP; skipped where that is not allowed."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW).close()
    except (AttributeError, PermissionError):
        pytest.skip("raw sockets need CAP_NET_RAW")
    monkeypatch.setattr(conf, "L3socket", L3RawSocket)
    monkeypatch.setattr(conf, "verb", 0)


@pytest.fixture
def bound() -> Iterator[Any]:
    """Bind ports for a test only."""
    made: list[tuple[Any, dict[str, int]]] = []

    def bind(layer: Any, port: int) -> None:
        made.append((layer, {"sport": port}))
        bind_bottom_up(UDP, layer, {"sport": port})

    yield bind
    for layer, port in made:
        split_bottom_up(UDP, layer, port)


@pytest.mark.usefixtures("raw_sockets")
@pytest.mark.parametrize(
    ("protocol", "reads", "request_packet", "answer"), REQUESTS, ids=[row[0] for row in REQUESTS]
)
def test_sr1_finds_the_answer(
    protocol: str, reads: Any, request_packet: Any, answer: Any, bound: Any
) -> None:
    with running(protocol) as (target, _server):
        bound(reads, target.port)
        sport = free_target().port
        packet = IP(dst="127.0.0.1") / UDP(sport=sport, dport=target.port) / request_packet
        found = sr1(packet, timeout=WAIT)
    assert found is not None
    assert answer in found
    assert found[UDP].sport == target.port
    assert found[UDP].payload.answers(request_packet)


@pytest.mark.usefixtures("raw_sockets")
def test_an_answering_machine_answers_a_client_on_loopback() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        # Somebody has to own the port, or the system refuses what comes.
        here.bind(("127.0.0.1", 0))
        client.settimeout(0.2)
        client.connect(here.getsockname())
        machine = ServerMachine(server=make_server("riptide"), dport=here.getsockname()[1])
        machine.bg(iface="lo")
        try:
            for _ in range(20):
                client.send(bytes(riptide.RiptideConnect()))
                with suppress(TimeoutError):
                    answer = riptide.Riptide(client.recv(2048))
                    break
        finally:
            machine.sniffer.stop()
    assert isinstance(answer, riptide.RiptideWelcome)


@pytest.mark.usefixtures("raw_sockets")
def test_a_live_sniffer_knows_the_connection_of_each_packet() -> None:
    with running("riptide") as (target, _server):
        session = NetdissectSession()
        # Scapy is too slow to read what the tests beside this one send as well.
        sniffer = AsyncSniffer(
            iface="lo", filter=f"udp port {target.port}", session=session, store=True,
            started_callback=(started := Event()).set,
        )  # fmt: skip
        sniffer.start()
        assert started.wait(WAIT)
        message = riptide.RiptideReliable(message_id=3, data=b"hello")
        answers = ClientMachine("riptide", str(target), packets=[message], wait=0.3).run()
        # A sniffer looks at its end only when a packet comes.
        sniffer.stop(join=False)
        ClientMachine("riptide", str(target), wait=0.1).run()
        sniffer.join(WAIT)
    assert answers
    known = [packet for packet in sniffer.results if UDP in packet and target.port in (packet[UDP].sport, packet[UDP].dport)]
    told = [packet.netdissect for packet in known if getattr(packet, "netdissect", None) is not None]
    assert {each.dialect for each in told if each.dialect} <= {"riptide-2.2", "riptide-2.1/2.2"}
    assert any(each.unit == ("reliable", 2) and each.connection for each in told)
    assert any(riptide.RiptideReliable in packet for packet in known)


@pytest.mark.usefixtures("raw_sockets")
def test_the_lines_of_the_tutorial_show_a_welcome(
    bound: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tutorial = (CAPTURES.parent / "docs" / "fuzzing.md").read_text()
    code = re.findall(r"```python\n(.*?)```", tutorial, re.DOTALL)[1]
    with running("riptide") as (target, _server):
        bound(riptide.Riptide, target.port)
        lines = code.replace("7790", str(target.port)).replace("riptide.bind(", "(")
        exec(lines.replace("50000", str(free_target().port)), {})  # noqa: S102
    assert "client_id = 1" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("protocol", "layer", "request_packet", "kind"),
    [
        ("riptide", riptide.RiptideFrame, riptide.RiptideFrame(data=bytes(riptide.RiptideConnect())),
         riptide.RiptideWelcome),
        ("knet", knet.KnetStream,
         knet.KnetStream(messages=[knet.KnetTcpMessage(content=knet.KnetPingRequest(ping_id=77))]),
         knet.KnetStream),
    ],
    ids=["riptide", "knet"],
)  # fmt: skip
def test_a_stream_socket_finds_the_answer(
    protocol: str, layer: Any, request_packet: Any, kind: Any
) -> None:
    """Over TCP no rights are needed: Scapy's StreamSocket wraps a connection."""
    with (
        running(protocol, transport="tcp") as (target, _server),
        socket.create_connection((target.host, target.port)) as connection,
    ):
        found = StreamSocket(connection, layer).sr1(request_packet, timeout=WAIT, verbose=0)
    assert found is not None
    assert isinstance(getattr(found, "message", found), kind)
