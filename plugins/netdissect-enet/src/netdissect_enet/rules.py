"""Names, findings and reliability rules of ENet 1.3. *Source:* docs/enet.md."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from netdissect.model.annotations import code_rows
from netdissect.model.policy import (
    BOTH,
    AckRule,
    Exhausted,
    Policy,
    ResendRule,
    SpaceRule,
    StateMachine,
    TimeoutRule,
    state_words,
    transition_table,
)  # fmt: skip

PLAIN: Final = "enet-1.3"
CRC: Final = "enet-1.3-crc"
NOBODY: Final = 0xFFF
"""Peer number as long as the receiver has not assigned one."""
MAX_COMMANDS: Final = 32
"""Maximum number of commands in a datagram, unless the library was compiled for more."""
NAMES: Final = {
    1: "acknowledge", 2: "connect", 3: "verify_connect", 4: "disconnect", 5: "ping",
    6: "send_reliable", 7: "send_unreliable", 8: "send_fragment", 9: "send_unsequenced",
    10: "bandwidth_limit", 11: "throttle_configure", 12: "send_unreliable_fragment",
}  # fmt: skip
"""Number of a command -> name."""
ACK, CONNECT, VERIFY, DISCONNECT, PING = range(1, 6)
SEND_UNRELIABLE, SEND_UNSEQUENCED, UNRELIABLE_FRAGMENT = 7, 9, 12
"""Numbers of commands."""
LAYERS: Final = {number: f"Enet{name.title().replace('_', '')}" for number, name in NAMES.items()}
"""Number of a command -> name of its layer."""
PEER: Final = 0xFF
"""Channel of commands about the peer itself."""

ALL_CODES: Final = code_rows("findings", Path(__file__).parent)

_RESEND = ResendRule(
    # Timeout of the first transmission: RTT + 4 variances, or 500 ms without an RTT; then doubled.
    initial_ms=500.0, rtt_factor=1.0, rtt_variances=4.0, backoff=2.0, exhausted=Exhausted.NEVER,
)  # fmt: skip


def _reliable(name: str, key: str = "") -> SpaceRule:
    return SpaceRule(name=name, bits=16, ack=AckRule.STAMPED, resend=_RESEND, first_seq=1, key=key)


def _unreliable(name: str, bits: int, key: str = "") -> SpaceRule:
    # The throttle drops packets before sending and does not reuse their numbers: a gap is no loss.
    return SpaceRule(name=name, bits=bits, ack=AckRule.NONE, consecutive=False, key=key)


_OPEN: Final = ("connected", "connected before")
_MACHINE: Final = StateMachine(
    initial="not connected",
    states=state_words(unknown=("not connected", "connecting"), open=_OPEN, closed="disconnected"),
    transitions=transition_table(
        ("not connected", "connect", 0, "connecting"),
        (("not connected", "connecting"), "verify", 1, "connected"),
        ("not connected", "alive", BOTH, "connected before"),
        (("not connected", "connecting", *_OPEN), "disconnect", BOTH, "disconnected"),
    ),
    handshake={"connecting": "unanswered", "connected": "accepted"},
    begins=frozenset({"connect"}),
)  # fmt: skip

_SILENCE: Final = TimeoutRule(
    # When a retransmission timer expires, a peer gives up if nothing was acknowledged for 30 s, or
    # for 5 s if the timer has doubled five times.
    idle_ms=5000.0, check_ms=26500.0, refreshed_by=frozenset({"acknowledge"}),
)  # fmt: skip

POLICIES: Final = {
    name: Policy(
        dialect=name,
        spaces=(
            _reliable("control"),
            _reliable("reliable", "channel"),
            # Unreliable numbers restart after each reliable packet: the unit is the pair of both.
            _unreliable("unreliable", 32, "channel"),
            _unreliable("unsequenced", 16),
        ),
        timeouts=(_SILENCE, _SILENCE),
        machine=_MACHINE,
        state_timeouts={"not connected": (None, None), "connecting": (None, None)},
        rtt_smoothing=0.125,
        variance_smoothing=0.25,
    )
    for name in (PLAIN, CRC)
}
"""Dialect -> reliability rules."""
