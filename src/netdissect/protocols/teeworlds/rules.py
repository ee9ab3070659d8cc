"""Teeworlds' reliability rules. Source: docs/protocols/teeworlds.md, states and timers."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from netdissect.model.policy import (
    BOTH,
    AckRule,
    Policy,
    ProbeRule,
    ResendRule,
    SpaceRule,
    StateMachine,
    TimeoutRule,
    state_words,
    transition_table,
)
from netdissect.wire.teeworlds_forms import D06, D065, D07, DDNET

_BEFORE: Final = ("idle", "connecting")
_TOKENS: Final = ("token wait", "token known", "asked")
"""States before the connect of 0.7. `asked`: the token was for a connectionless message."""
_LIVE: Final = ("pending", "joining", "online", "online before")

MACHINE: Final = StateMachine(
    initial="idle",
    states=state_words(
        unknown=("idle", "token wait", "token known", "asked", "connecting"),
        open=_LIVE,
        rejected="refused",
        closed="closed",
        timed_out="timed out",
    ),
    transitions=transition_table(
        ("idle", "request", 0, "token wait"),
        ("token wait", "token", 1, "token known"),
        # A client that asks a broadcast address for a token is answered from another address, of
        # which it has requested no connection.
        ("idle", "token", 1, "asked"),
        (_TOKENS, "connless", BOTH, "asked"),
        (("idle", *_TOKENS), "connect", 0, "connecting"),
        ((*_BEFORE, *_TOKENS), "accept", 1, "pending"),
        # A client that confirms or sends data was accepted, even if the capture lacks the accept.
        ("connecting", "confirm", 0, "pending"),
        (("pending", "connecting", *_TOKENS), "data", 0, "joining"),
        (("connecting", *_TOKENS, "pending", "joining"), "data", 1, "online"),
        ("idle", "data", BOTH, "online before"),
        # With a close before its first data a server refuses the client.
        ((*_BEFORE, *_TOKENS, "pending", "joining"), "close", 1, "refused"),
        ((*_BEFORE, *_TOKENS, *_LIVE), "close", 0, "closed"),
        (("online", "online before"), "close", 1, "closed"),
        ((*_BEFORE, *_TOKENS, *_LIVE), ("give_up", "timeout"), BOTH, "timed out"),
    ),
    handshake=state_words(
        unanswered=("token wait", "token known", "connecting"),
        accepted=("pending", "joining", "online"),
        rejected="refused",
        not_seen="asked",
    ),
    begins=frozenset({"request", "connect"}),
)
"""The states as the wire shows them. `joining`: only the client has sent data. `online before`: the
capture starts mid-connection."""

VITAL: Final = SpaceRule(
    name="vital",
    bits=10,
    ack=AckRule.CUMULATIVE,
    # A sender retransmits one second after the last copy, then every second, plus the flush delay
    # of half a second; at once if asked to, which may produce equal datagrams. It answers each
    # request as it reads it, so several that come together have several answers at once.
    resend=ResendRule(initial_ms=1000.0, on_request=True),
    first_seq=1,
    in_order_receiver=True,
    # Within 10 ms an equal datagram that nobody asked for is a network duplicate, even if it is
    # marked as a resend.
    duplicate_window_ms=10.0,
)
SNAPSHOT: Final = SpaceRule(
    name="snapshot",
    bits=32,
    ack=AckRule.EXACT,
    consecutive=False,
    reach=128,
    stride_reach=150,
    tick_ms=20,
    slow_step=50,
    restarts_at_will=True,
    duplicate_window_ms=0.0,
)
"""Snapshots, numbered by the server's tick, which restarts with each map. A server sends one every
second tick; every tenth before the first acknowledgement; every 50th when the last one is 150 ticks
(3 s) old. With every input the client acknowledges the newest snapshot that it has. The server
answers an input with its next snapshot, and says when it has read it.
"""

_PROBES: Final = (
    ProbeRule("ping", 0),
    ProbeRule("ping_ex", 128),
)
_VANILLA: Final = TimeoutRule(10_000.0, 500.0, None, "give_up")
"""After 10 s without an accepted packet a peer sends a close with the reason "Timeout"."""
_DDNET: Final = TimeoutRule(100_000.0, 500.0, None, None, shortest_ms=5000.0, alive_ms=1500.0)
"""`conn_timeout`: 100 s unless configured (5 s to 1000 s), then silence. A live peer sends a
keepalive 1 s after it sent anything, half a second later at most.
"""

POLICIES: Final = {
    D06: Policy(
        dialect=D06,
        spaces=(VITAL, SNAPSHOT),
        probes=_PROBES,
        timeouts=(_VANILLA, _VANILLA),
        machine=MACHINE,
        # A peer sends a keepalive 1 s after it sent anything, half a second later at most.
        alive_ms=(1500.0, 1500.0),
        # A client sends once per tick of 20 ms and acknowledges what it read in the tick before.
        # A server answers in its next tick at the latest.
        answer_ms=(25.0, 21.0),
        # No side gives up before the handshake is complete.
        state_timeouts=dict.fromkeys((*_BEFORE, *_TOKENS), (None, None)),
    ),
}
POLICIES[D065] = replace(POLICIES[D06], dialect=D065)
POLICIES[D07] = replace(POLICIES[D06], dialect=D07)
POLICIES[DDNET] = replace(POLICIES[D06], dialect=DDNET, timeouts=(_DDNET, _DDNET))
