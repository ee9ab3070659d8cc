from __future__ import annotations

import socket
import time

import pytest

from fuzzing import free_target
from netdissect.fuzz import Link, Target
from netdissect.fuzz.exchange import exchange
from netdissect.fuzz.target import Journal, Pacer
from netdissect.model.errors import AccessError, UsageError


@pytest.mark.parametrize(
    "text", ["127.0.0.1:7777", "127.9.9.9:1", "[::1]:7777", "::1:7777", "localhost:80"]
)
def test_loopback_is_allowed(text: str) -> None:
    assert Target.parse(text).port == int(text.rpartition(":")[2])


@pytest.mark.parametrize(
    "text",
    ["10.0.0.1:7777", "192.168.1.2:7777", "8.8.8.8:53", "[2001:db8::1]:7777", "0.0.0.0:7777"],
)
def test_other_machines_need_the_users_word(text: str) -> None:
    with pytest.raises(AccessError, match="--i-own-this-host"):
        Target.parse(text)
    assert Target.parse(text, own_host=True).port == int(text.rpartition(":")[2])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:0",
        "127.0.0.1:70000",
        "example.org:80",
        "127.0.0.1:x",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError):
        Target.parse(text, own_host=True)


def test_target_writes_ipv6_in_brackets() -> None:
    assert str(Target.parse("[::1]:9")) == "[::1]:9"


def test_link_remembers_what_goes_over_it_and_stays_bounded() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        journal = Journal(3)
        with Link(Target("127.0.0.1", peer.getsockname()[1]), journal=journal) as link:
            for number in range(5):
                link.send(bytes([number]))
            data, address = peer.recvfrom(10)
            assert data == b"\0"
            peer.sendto(b"back", address)
            assert link.receive(5.0) == [b"back"]
            assert [(each.outgoing, each.octets) for each in journal] == [
                (True, b"\3"), (True, b"\4"), (False, b"back"),
            ]  # fmt: skip


def test_a_stream_that_is_not_read_stays_open_and_whole() -> None:
    """What finds no room goes out later, or not at all: never a part of a message."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = Target("127.0.0.1", server.getsockname()[1])
        with Link(target, "tcp") as link, server.accept()[0] as peer:
            for number in range(240):
                link.send(bytes([number]) * 65536)
            assert not link.closed
            peer.settimeout(30)
            got = bytearray()
            while link._unsent:
                got += peer.recv(1 << 20)
                link.receive()
            link.send(b"\xff" * 65536)
            while got[-65536:] != b"\xff" * 65536:
                got += peer.recv(1 << 20)
                link.receive()
            runs = [got[at : at + 65536] for at in range(0, len(got), 65536)]
            assert all(run == bytes([run[0]]) * 65536 for run in runs)
            assert [run[0] for run in runs] == sorted({run[0] for run in runs})


def test_a_closed_port_is_counted_not_raised() -> None:
    with Link(free_target()) as link:
        link.send(b"x")
        link.receive(1.0)
        link.send(b"y")
        link.receive(1.0)
        assert link.refused > 0


def test_pacer_spreads_and_makes_up_for_short_delays_only() -> None:
    pacer = Pacer(100.0, 100.0)
    assert [round(pacer.wait(100.0), 3) for _ in range(3)] == [0.0, 0.01, 0.02]
    # 0.05 s late: what was due goes out at once, then the pace is that of before.
    assert [round(pacer.wait(100.08), 3) for _ in range(8)] == [0.0] * 6 + [0.01, 0.02]
    # Ten seconds late: the time is lost, but for five of them.
    assert [round(pacer.wait(110.0), 3) for _ in range(503)] == [0.0] * 501 + [0.01, 0.02]
    assert [Pacer(0, 1.0).wait(1.0) for _ in range(3)] == [0.0] * 3


def test_pacer_tells_when_messages_are_overdue() -> None:
    pacer = Pacer(100.0, 100.0)
    assert not pacer.is_late(100.03)
    assert pacer.is_late(100.05)
    pacer.wait(100.05)
    assert not pacer.is_late(100.05)
    assert not Pacer(0, 1.0).is_late(100.0)


def test_a_target_that_floods_does_not_hold_an_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def flood(_link: Link, wait: float) -> list[bytes]:
        assert len(asked) < 1000
        asked.append(wait)
        time.sleep(0.01)
        return [b"again"]

    monkeypatch.setattr(Link, "receive", flood)
    target = Target("127.0.0.1", 9)
    found = exchange("riptide", target, b"hello", dialect="riptide-2.2", wait=0.3, session=False)
    assert 1 < len(found.answers) < 100
