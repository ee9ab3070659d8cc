"""Riptide's reliability rules. Source: docs/protocols/riptide.md sections 6 and 7."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from netdissect.model.policy import (
    BOTH,
    AckRule,
    Exhausted,
    Policy,
    ProbeRule,
    QualityRule,
    ResendRule,
    SpaceRule,
    StateMachine,
    TimeoutRule,
    state_words,
    transition_table,
)
from netdissect.wire.riptide import (
    BITS,
    BYTES_20,
    BYTES_21DEV,
    UNDECIDED,
    UNDECIDED_BYTES,
)

_HANDSHAKE: Final = ("not connected", "connecting", "pending")
_NOT_OVER: Final = (*_HANDSHAKE, "connected", "connected before")

MACHINE: Final = StateMachine(
    initial="not connected",
    states=state_words(
        unknown=_HANDSHAKE,
        open=("connected", "connected before"),
        rejected="rejected",
        closed="disconnected",
    ),
    transitions=transition_table(
        ("not connected", "connect", 0, "connecting"),
        (("connecting", "not connected"), "pending", 1, "pending"),
        (_HANDSHAKE, "welcome", 1, "connected"),
        # Only a connected client sends these, so the capture lacks the Welcome.
        (("connecting", "pending"), "established", 0, "connected"),
        (("connecting", "pending"), "alive", BOTH, "connected"),
        (_HANDSHAKE, "reject", 1, "rejected"),
        ("not connected", "alive", BOTH, "connected before"),
        (_NOT_OVER, "disconnect", BOTH, "disconnected"),
        # A program that crashed, or that closes without a Disconnect, ends only the stream.
        (_NOT_OVER, ("fin", "reset"), BOTH, "disconnected"),
    ),
    handshake=state_words(
        unanswered=("connecting", "pending"), accepted="connected", rejected="rejected"
    ),
    begins=frozenset({"connect"}),
)
"""The states of section 6. `connected before`: the capture starts mid-connection."""

_DUPLICATE_WINDOW_MS: Final = 5.0
"""Duplicates made by the network follow within a few milliseconds (section 8). The resend guard
cannot tell them apart: jitter can shorten the distance between a copy and its retransmission.
"""


def _resend(exhausted: Exhausted, reason: str = "") -> ResendRule:
    """Return the rule of section 7.1.

    A sender retransmits after 50 ms before the first RTT, then after max(10 ms, 1.2 x SmoothRTT),
    but never within 25 ms, then half of SmoothRTT, and 15 times at most.
    """
    return ResendRule(
        initial_ms=50.0,
        rtt_factor=1.2,
        floor_ms=10.0,
        guard_ms=25.0,
        guard_rtt_factor=0.5,
        attempts=15,
        exhausted=exhausted,
        exhausted_reason=reason,
    )


_RELIABLE_20 = SpaceRule(
    name="reliable",
    bits=16,
    ack=AckRule.BITS_BEFORE,
    ack_bits=16,
    resend=_resend(Exhausted.DROP),
    first_seq=1,
    duplicate_window_ms=_DUPLICATE_WINDOW_MS,
)
_RELIABLE_21 = replace(
    _RELIABLE_20,
    resend=_resend(Exhausted.CLOSE, "PoorConnection"),
    # Section 7.1: the mean of attempts of the last 64 acked messages exceeds 5, 64 times in a row.
    quality=QualityRule("attempts", 64, 5.0, 64, "PoorConnection"),
    remarks={
        "ack-of-unseen": "releases 2.1.0 to 2.2.1 do so after gaps above 32 (defect D7)",
    },
)
_RELIABLE_210 = replace(
    _RELIABLE_21,
    remarks=_RELIABLE_21.remarks
    | {
        "acked-yet-resent": "2.1.0 waits for the wrong id after SendToAll (defect D1)",
        "number-reused": "2.1.0 ORs the ids of broadcast copies (defect D1)",
    },
)
"""Rules of 2.1.0, whose defect D1 later releases do not have."""
_NOTIFY = SpaceRule(
    name="notify",
    bits=16,
    ack=AckRule.BITS_BEFORE,
    ack_bits=8,
    acked_by_units=True,
    first_seq=1,
    # Section 7.1: lost / 64 > 0.05 over the last 64 outcomes, 64 times in a row. The divisor is 64
    # even before there are 64 outcomes.
    quality=QualityRule("loss", 64, 0.05, 64, "PoorConnection", fixed_divisor=True),
)
_HEARTBEAT = ProbeRule("heartbeat", 8, 1000.0, latest_only=True)

_REFRESHING = frozenset({"Heartbeat", "Welcome", "Connect"})
"""Types that restart the timeout. Source: section 7.6."""
_TIMEOUTS = (
    # Only clients send heartbeats of their own accord.
    TimeoutRule(5000.0, 1000.0, _REFRESHING, pings_ms=_HEARTBEAT.interval_ms),
    TimeoutRule(5000.0, 1000.0, _REFRESHING),
)
_PENDING = (TimeoutRule(10000.0, 1000.0, frozenset({"Connect"})), None)
"""Section 6: a pending client gives up after 10 s. In 2.0 that is twice the timeout."""


def _policy(dialect: str, *spaces: SpaceRule) -> Policy:
    return Policy(
        dialect=dialect,
        spaces=spaces,
        probes=(_HEARTBEAT,),
        timeouts=_TIMEOUTS,
        # Clients send heartbeats, servers only answer them.
        alive_ms=(_HEARTBEAT.interval_ms, None),
        machine=MACHINE,
        state_timeouts={
            "pending": _PENDING,
            "connecting": (None, None),
            "not connected": (None, None),
            "rejected": (None, None),
        },
        rtt_smoothing=0.3,
    )


POLICIES: Final = {
    BYTES_20: _policy(BYTES_20, _RELIABLE_20),
    # It has a notify space because it may turn out to be 2.1dev.
    UNDECIDED_BYTES: _policy(UNDECIDED_BYTES, _RELIABLE_20, _NOTIFY),
    **{
        dialect: _policy(dialect, _RELIABLE_210 if dialect == BITS[0] else _RELIABLE_21, _NOTIFY)
        for dialect in (BYTES_21DEV, *BITS, UNDECIDED)
    },
}
"""Dialect -> its rules."""
