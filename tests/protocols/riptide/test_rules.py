"""The rows of section 7.1, and the state table of section 6."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from netdissect.flow import Decapsulator
from netdissect.model.policy import Exhausted
from netdissect.pipeline import Options, Pipeline
from netdissect.protocols.riptide import PROTOCOL
from netdissect.protocols.riptide.rules import MACHINE, POLICIES
from packetbuild import A4, B4, frame, ipv4, udp
from windows import frames_of

CAPTURES = Path(__file__).resolve().parents[3] / "captures" / "riptide"
INPUTS = ("connect", "pending", "welcome", "reject", "disconnect", "alive", "established",
          "fin", "reset")  # fmt: skip


@pytest.mark.parametrize("dialect", sorted(POLICIES))
def test_constants(dialect) -> None:
    policy = PROTOCOL.policy(dialect)
    reliable = policy.spaces[0]
    resend = reliable.resend
    assert (resend.initial_ms, resend.rtt_factor, resend.floor_ms) == (50.0, 1.2, 10.0)
    assert (resend.guard_ms, resend.guard_rtt_factor, resend.attempts) == (25.0, 0.5, 15)
    old = dialect.startswith("riptide-2.0")
    assert resend.exhausted is (Exhausted.DROP if old else Exhausted.CLOSE)
    names = [space.name for space in policy.spaces]
    assert names == (["reliable"] if dialect == "riptide-2.0" else ["reliable", "notify"])
    assert [space.ack_bits for space in policy.spaces] == [16, 8][: len(names)]
    assert {(rule.idle_ms, rule.check_ms) for rule in policy.timeouts} == {(5000.0, 1000.0)}
    assert policy.state_timeouts["pending"][0].idle_ms == 10000.0


def test_an_unknown_dialect_gets_the_newest_rules() -> None:
    assert PROTOCOL.policy("riptide-9") is PROTOCOL.policy("riptide-2.1/2.2")


@pytest.mark.parametrize(
    ("state", "name", "side"), list(itertools.product(MACHINE.states, INPUTS, (0, 1)))
)
def test_the_table_leads_to_known_states_only(state, name, side) -> None:
    target = MACHINE.transitions.get((state, name, side), state)
    assert target in MACHINE.states
    if MACHINE.states[state] in ("closed", "rejected"):
        assert target == state


def test_every_state_is_reached() -> None:
    assert {*MACHINE.transitions.values(), MACHINE.initial} == set(MACHINE.states)


CONNECT, ACK = b"\x03", b"\x01\x01\x00\x01\x00"
WELCOME, OTHER = b"\x08\x01\x00\x03\x00", b"\x08\x01\x00\x04\x00"


@pytest.mark.parametrize(
    ("further", "connections"),
    [
        ([(0, CONNECT)], 1),
        ([(0, CONNECT), (1, WELCOME), (0, ACK), (0, WELCOME)], 1),
        ([(0, CONNECT), (1, OTHER)], 2),
        ([(0, ACK), (0, WELCOME), (0, CONNECT), (1, WELCOME)], 2),
    ],
)
def test_a_copied_connect_begins_no_connection(further, connections) -> None:
    """Until the client has answered it, the server repeats its Welcome."""
    frames = []
    for number, (side, payload) in enumerate([(0, CONNECT), (1, WELCOME), *further], start=1):
        ports, ends = [(4000, 7777), (7777, 4000)][side], [(A4, B4), (B4, A4)][side]
        packet = ipv4(udp(payload, *ports), src=ends[0], dst=ends[1], ident=number)
        frames.append(frame(number, packet, time_ns=number * 10_000_000))
    pipeline = Pipeline(Options(strict=True))
    pipeline.run(Decapsulator().packets(frames))
    pipeline.finish()
    assert len(pipeline.reports) == connections


@pytest.mark.parametrize(("flag", "reason"), [(0x01, "FIN"), (0x04, "RST")])
def test_the_end_of_the_stream_ends_the_connection(flag, reason) -> None:
    """The kernel ends the stream of a program that was killed and sent no Disconnect."""
    frames = frames_of(CAPTURES / "tcp_2.2.1_kick_stop.pcap")
    number, *rest, octets, wire = frames[47]
    assert octets[14 + 20 + 13] & 0x01
    changed = bytearray(octets)
    changed[14 + 20 + 13] = 0x10 | flag
    frames[45:48] = [frames[46], (number, *rest, bytes(changed), wire)]  # no Disconnect
    pipeline = Pipeline(Options(strict=True))
    pipeline.run(Decapsulator().packets(frames))
    pipeline.finish()
    report = pipeline.reports[0]
    assert report.state == "closed"
    assert report.close == {"by": "server", "reason": reason, "frame": number}
