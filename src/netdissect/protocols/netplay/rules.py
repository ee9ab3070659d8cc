"""Netplay's rules for the tracker. It leaves reliability to TCP, so its states are those of TCP.

Source: docs/protocols/netplay.md sections 7 and 8.
"""

from __future__ import annotations

from typing import Final

from netdissect.model.policy import BOTH, Policy, StateMachine, state_words, transition_table
from netdissect.wire.netplay import DIALECTS

_EARLY = ("not connected", "connecting", "answered")
_LIVE = ("established", "identified")
_ANY = (*_EARLY, *_LIVE, "half closed by client", "half closed by server")

MACHINE: Final = StateMachine(
    initial="not connected",
    states=state_words(
        unknown=_EARLY,
        open=(*_LIVE, "half closed by client", "half closed by server"),
        closed=("closed", "reset"),
        rejected="refused",
    ),
    transitions=transition_table(
        ("not connected", "syn", 0, "connecting"),
        (("connecting", "not connected"), "syn_ack", 1, "answered"),
        (("connecting", "answered"), "established", 0, "established"),
        ("not connected", "data", BOTH, "established"),
        (("established", "answered"), "message", BOTH, "identified"),
        ((*_EARLY, *_LIVE), "fin", 0, "half closed by client"),
        ((*_EARLY, *_LIVE), "fin", 1, "half closed by server"),
        ("half closed by client", "fin", 1, "closed"),
        ("half closed by server", "fin", 0, "closed"),
        ((*_ANY, "closed"), "reset", BOTH, "reset"),
        ("connecting", "reset", 1, "refused"),
    ),
    handshake=state_words(
        unanswered=("connecting", "answered"),
        accepted=("established", "identified"),
        rejected="refused",
    ),
)
"""The states of section 7. Netplay has no handshake of its own."""

POLICIES: Final = {
    dialect: Policy(dialect=dialect, spaces=(), machine=MACHINE, stream=True)
    for dialect in DIALECTS
}
"""Dialect -> its rules: no timers, no probes, no acknowledgements."""
