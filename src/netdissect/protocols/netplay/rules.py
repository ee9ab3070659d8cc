"""Netplay's rules for the tracker: everything reliable is TCP's, so the rules are TCP's too.

Source: docs/protocols/netplay.md sections 7 and 8.
"""

from __future__ import annotations

from typing import Final

from netdissect.model.policy import Policy, StateMachine
from netdissect.wire.netplay import DIALECTS

__all__ = ["MACHINE", "POLICIES"]

_EARLY = ("not connected", "connecting", "answered")
_LIVE = ("established", "identified")
_ANY = (*_EARLY, *_LIVE, "half closed by client", "half closed by server")
_SIDES = (("client", 0), ("server", 1))

MACHINE: Final = StateMachine(
    initial="not connected",
    states={
        "not connected": "unknown",
        "connecting": "unknown",
        "answered": "unknown",
        "established": "open",
        "identified": "open",
        "half closed by client": "open",
        "half closed by server": "open",
        "closed": "closed",
        "reset": "closed",
        "refused": "rejected",
    },
    transitions={
        ("not connected", "syn", 0): "connecting",
        ("connecting", "syn_ack", 1): "answered",
        ("not connected", "syn_ack", 1): "answered",
        ("answered", "established", 0): "established",
        **{("not connected", "data", side): "established" for side in (0, 1)},
        **{
            (state, "message", side): "identified"
            for state in ("established", "answered")
            for side in (0, 1)
        },
        **{
            (state, "fin", side): f"half closed by {name}"
            for state in (*_EARLY, *_LIVE)
            for name, side in _SIDES
        },
        ("half closed by client", "fin", 1): "closed",
        ("half closed by server", "fin", 0): "closed",
        ("connecting", "reset", 1): "refused",
        **{
            (state, "reset", side): "reset"
            for state in (*_ANY, "closed")
            for side in (0, 1)
            if (state, side) != ("connecting", 1)
        },
    },
    handshake={
        "connecting": "unanswered",
        "answered": "unanswered",
        "established": "accepted",
        "identified": "accepted",
        "refused": "rejected",
    },
)
"""Netplay has no messages for connections of its own: the states are those of section 7."""

POLICIES: Final = {
    dialect: Policy(dialect=dialect, spaces=(), machine=MACHINE, stream=True)
    for dialect in DIALECTS
}
"""No timers, no probes, no acknowledgements: Netplay confirms nothing."""
