"""Spaces and connections for the tests of the tracker, with rules of no real protocol."""

from __future__ import annotations

from netdissect.model.claims import Hints
from netdissect.model.policy import (
    AckRule,
    Exhausted,
    Policy,
    ProbeRule,
    ResendRule,
    SpaceRule,
    StateMachine,
    TimeoutRule,
)
from netdissect.track.connection import Connection
from netdissect.track.findings import Findings
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.space import Space

MS = 1_000_000

RESEND = ResendRule(
    initial_ms=100.0,
    rtt_factor=2.0,
    floor_ms=20.0,
    guard_ms=10.0,
    attempts=3,
    exhausted=Exhausted.DROP,
)


def rule(**changes):
    """Return the rule of a 16-bit space with bit-field acks, changed as asked."""
    values = {
        "name": "things",
        "bits": 16,
        "ack": AckRule.BITS_BEFORE,
        "ack_bits": 16,
        "resend": RESEND,
        "first_seq": 1,
    }
    return SpaceRule(**(values | changes))


def space(recorder=None, **changes):
    """Return a space, and the anomalies that it reports."""
    anomalies = []
    made = Space(rule(**changes), 0, Findings(1, {}, anomalies.append), recorder)
    made.peer_seen = True
    made.context.started = True
    return made, anomalies


MACHINE = StateMachine(
    initial="new",
    states={
        "new": "unknown",
        "asked": "unknown",
        "up": "open",
        "down": "closed",
        "no": "rejected",
    },
    transitions={
        ("new", "hello", 0): "asked",
        ("asked", "welcome", 1): "up",
        ("asked", "refuse", 1): "no",
        ("up", "bye", 0): "down",
        ("up", "bye", 1): "down",
    },
    handshake={"asked": "unanswered", "up": "accepted", "no": "rejected"},
    begins=frozenset({"hello"}),
)


def policy(**changes):
    """Return a policy with one space, one probe, a machine and timeouts of 5 to 6 s."""
    signs = frozenset({"Ping"})
    timeout = TimeoutRule(5000.0, 1000.0, signs)
    values = {
        "dialect": "toy",
        "spaces": (rule(),),
        "probes": (ProbeRule("ping", 8, 1000.0, latest_only=True),),
        "timeouts": (timeout, timeout),
        "machine": MACHINE,
        "rtt_smoothing": 0.3,
    }
    return Policy(**(values | changes))


def connection(recorder: ConnectionRecorder | None = None, transport="udp", rows=None, **changes):
    """Return a connection of the toy policy, and its anomalies."""
    anomalies = []
    made = Connection(
        1,
        protocol="toy",
        transport=transport,
        policy_of=lambda _: policy(**changes),
        hints=Hints(("toy", "toy")),
        endpoints=("10.0.0.1:1000", "10.0.0.2:2000"),
        roles_from="handshake",
        findings=Findings(1, rows or {}, anomalies.append),
        recorder=recorder,
    )
    return made, anomalies
