"""EOUDP's reliability rules. Source: docs/protocols/eoudp.md, "Reliability" and "Sessions"."""

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
from netdissect.protocols.eoudp.dialects import ROWS

SPACE: Final = "command"
"""The only counter of a direction. It numbers every message; those to be acknowledged are units."""
_OPEN: Final = ("JOINED", "CONNECTED")
_OVER: Final = ("CLOSED", "TIMED_OUT")
_ASKING: Final = ("CONNECTING", "ADDRESSED")

_EXODIA: Final = StateMachine(
    initial="IDLE",
    states=state_words(
        unknown=("IDLE", "CONNECTING", "ADDRESSED"),
        open=_OPEN,
        rejected="REJECTED",
        closed="CLOSED",
        timed_out="TIMED_OUT",
    ),
    transitions=transition_table(
        (("IDLE", "REJECTED", *_OVER), "connect", 0, "CONNECTING"),
        ("IDLE", "alive", BOTH, "JOINED"),
        ("CONNECTING", "alive", 1, "ADDRESSED"),
        (("IDLE", *_ASKING, "JOINED", *_OVER), "accept", 1, "CONNECTED"),
        (_ASKING, "informs", 0, "CONNECTED"),
        ("CONNECTING", "reject", 1, "REJECTED"),
        (("IDLE", *_ASKING, *_OPEN), "disconnect", 0, "CLOSED"),
        ((*_ASKING, *_OPEN), "timeout", 1, "TIMED_OUT"),
    ),
    handshake=state_words(unanswered="CONNECTING", accepted="CONNECTED", rejected="REJECTED"),
    begins=frozenset({"connect"}),
)
"""The states of a session. JOINED: the capture starts mid-session. ADDRESSED: the server sends what
it sends to accepted clients, but nothing shows that the client knows. Clients ignore a
CONNECT_REJECT once they are accepted, and every DISCONNECT of a server.
"""
_DOCUMENT: Final = replace(
    _EXODIA,
    transitions=_EXODIA.transitions
    | transition_table(
        ("CONNECTING", "alive", 1, "CONNECTING"),  # an ACK, which does not mean acceptance
        (_OPEN, "reject", 1, "CLOSED"),
        ((*_ASKING, *_OPEN), "disconnect", 1, "CLOSED"),
    ),
)
"""The same in the documents, where a server ends a session with CONNECT_REJECT (Usage) or
DISCONNECT.
"""

_TICK_MS: Final = 16.0
"""Period of the server's loop. One branch of the program retransmits unacknowledged messages in
every iteration.
"""
_BURST_GUARD_MS: Final = 60_000.0
"""Longer than any copy takes: of a message that is sent twice at once, no copy is a later
retransmission.
"""

_LATE: Final = SpaceRule(
    name=SPACE,
    # Ids have 64 bits, but a sender counts in 32, so the low 32 bits continue when it overflows.
    bits=32,
    ack=AckRule.EXACT,
    # No release has a timer. The branch that retransmits does so once per tick, and each of its
    # copies has a number of its own, unlike duplicates made by the network.
    resend=ResendRule(initial_ms=0.0, guard_ms=_TICK_MS),
    copies_take_numbers=True,
    memory=1024,
)
_DOUBLE: Final = replace(
    _LATE,
    # Every message is sent twice at once, and never again later.
    resend=ResendRule(initial_ms=0.0, guard_ms=_BURST_GUARD_MS),
    copies_take_numbers=False,
    burst=2,
)
_RFC: Final = replace(
    _LATE,
    # The documents state no timer. A copy within 50 ms is no retransmission.
    resend=ResendRule(initial_ms=0.0, guard_ms=50.0),
    copies_take_numbers=False,
)

_PACKET_INFO: Final = ProbeRule("packet_info", 32, 1000.0)

_SERVER_TIMEOUT: Final = TimeoutRule(5000.0, 1000.0, None, announces="disconnect", by_clock=True)
"""A server gives up a client whose last time stamp is 5 s older than that of the last datagram sent
to it. It sends a PACKET_INFO once per second, so that happens 5 to 6 s after the client's last
datagram.
"""

_SPACES: Final = {
    "exodia-late": _LATE, "exodia-late-long32": _LATE,
    "rfc01": _RFC, "rfc02": _RFC, "rfc03": _RFC,
}  # fmt: skip


def _policy(dialect: str) -> Policy:
    document = ROWS[dialect].document
    times_out = dialect.startswith("exodia-late")
    return Policy(
        dialect=dialect,
        spaces=(_SPACES.get(dialect, _DOUBLE),),
        probes=(_PACKET_INFO,),
        alive_ms=(_PACKET_INFO.interval_ms,) * 2 if times_out else (None, None),
        timeouts=(None, _SERVER_TIMEOUT if times_out else None),
        machine=_DOCUMENT if document else _EXODIA,
    )


POLICIES: Final = {dialect: _policy(dialect) for dialect in ROWS}
"""Dialect -> its rules."""
