"""What a protocol tells the tracker about its reliability rules: data, no code.

One `Policy` per dialect. Every number is a row with its source in `protocols/<name>.py`. The
tracker reads these rows and knows no protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

__all__ = [
    "BOTH",
    "AckRule",
    "Exhausted",
    "Policy",
    "ProbeRule",
    "QualityRule",
    "ResendRule",
    "SpaceRule",
    "StateMachine",
    "TimeoutRule",
    "by_word",
    "moves",
    "rule_and_key",
]


class AckRule(Enum):
    """How (base, bits) of an ACK names units."""

    EXACT = "exact"
    """`base` alone."""
    BITS_BEFORE = "bits_before"
    """`base`, and for each set bit i the unit base - 1 - i."""
    BITS_AFTER = "bits_after"
    """`base`, and for each set bit i the unit base + 1 + i."""
    CUMULATIVE = "cumulative"
    """`base` and everything before it (within half of the number space)."""
    STAMPED = "stamped"
    """`base` alone; `bits` is the stamp of the datagram that brought the copy which is answered.
    The `content` of a UNIT is a pair of the stamp of its datagram and what the unit holds."""
    NONE = "none"
    """Units of this space are never acknowledged by the protocol (their loss shows only as gaps).
    """


class Exhausted(Enum):
    """What the sender does after its last permitted attempt."""

    DROP = "drop"
    """It drops the unit and goes on: outcome `given_up`."""
    CLOSE = "close"
    """It closes the connection."""
    NEVER = "never"
    """It never stops."""


@dataclass(frozen=True, slots=True)
class ResendRule:
    """When a sender sends an unacknowledged unit again, and how a second copy is judged."""

    initial_ms: float
    """Delay before the first round-trip measurement, milliseconds."""
    rtt_factor: float = 0.0
    """Delay = max(floor_ms, rtt_factor x smoothed_rtt) once a round trip is known; 0 = the delay
    never depends on it.
    """
    rtt_variances: float = 0.0
    """Added to the delay: so many times the smoothed variance of the round trip."""
    backoff: float = 1.0
    """Each further copy waits so many times as long as the one before it."""
    floor_ms: float = 0.0
    """Smallest delay, milliseconds."""
    guard_ms: float = 0.0
    """No resend within this time of the last transmission before a round trip is known,
    milliseconds.
    """
    guard_rtt_factor: float = 0.0
    """Guard as a share of the smoothed round trip once known; 0 = guard_ms always."""
    attempts: int | None = None
    """Transmissions of one unit at most; None = no limit."""
    exhausted: Exhausted = Exhausted.NEVER
    """What follows the last attempt."""
    exhausted_reason: str = ""
    """Reason shown for a connection that its sender closed silently after the last attempt."""


@dataclass(frozen=True, slots=True)
class QualityRule:
    """When a sender closes the connection because too much is lost. The close is silent.

    After each outcome the mean of the last `window` outcomes is compared with `limit`; `run`
    outcomes in a row above it close the connection.
    """

    measure: str
    """`loss`: an outcome is 1 for lost and 0 for delivered (feedback by NACK); `attempts`:
    transmissions of each acknowledged unit.
    """
    window: int
    """Outcomes averaged."""
    limit: float
    """Mean above which the rule counts."""
    run: int
    """Outcomes in a row above the limit that close the connection."""
    reason: str
    """Reason shown for the close."""
    fixed_divisor: bool = False
    """True: the sum is divided by `window` also before so many outcomes exist."""


@dataclass(frozen=True, slots=True)
class SpaceRule:
    """One counter in one direction."""

    name: str
    """Name in reports: `reliable`, `vital`, `datagram` ..."""
    bits: int
    """Width of the number on the wire; sequence arithmetic is modulo 2**bits."""
    ack: AckRule
    """How acknowledgements name units of this space."""
    ack_bits: int = 0
    """Width of the bit field of an ACK, in bits."""
    ack_held_ms: float = 0.0
    """The least that a receiver holds an acknowledgement back on purpose, milliseconds."""
    resend: ResendRule | None = None
    """Timer of the sender; None where it never sends again."""
    first_seq: int | None = None
    """The first number that a sender uses; None where it is arbitrary."""
    duplicate_window_ms: float = 0.0
    """A second identical copy closer than this to the previous one, arriving at its receiver, is a
    network copy, milliseconds; 0 = the guard of `resend`. Without `resend` every further copy is
    the network's.
    """
    key: str = ""
    """What tells the spaces apart that follow this rule, such as `channel`; "" = there is one. With
    a key the rule is a template: events name its spaces `name[value]`, and each comes into being
    when it is first named. Such spaces carry nothing and are carried by nothing.
    """
    burst: int = 1
    """Copies that a sender sends back to back on purpose; only those beyond can be the network's.
    """
    copies_take_numbers: bool = False
    """True: each copy that the sender makes uses up a number though it keeps its own. The number
    after it then tells the sender's copies from the network's.
    """
    consecutive: bool = True
    """False: numbers are skipped in normal operation; nothing is `never_seen`, no gap reported."""
    reach: int = 64
    """A number further from those before it than this is damaged, forged or behind a gap, until the
    next one confirms it; it stands alone until then.
    """
    stride_reach: int = 0
    """Not consecutive, but at equal steps while one of the last so many numbers was acknowledged:
    what a longer step leaves out is `never_seen`. 0 = at no such steps.
    """
    slow_step: int = 0
    """The step of a sender that is not answered: it then sends multiples of this alone."""
    in_order_receiver: bool = False
    """True: the receiver takes units in order only, and drops a whole datagram whose cumulative ack
    lies outside the window from the last one to its own newest unit. In `scan` the ACK of a
    datagram then stands before its units.
    """
    timeout_ms: float = 0.0
    """The units are datagrams that carry units of other spaces and are never sent again: their
    sender forgets one that is not acknowledged for so long, milliseconds, and sends again what it
    carried;
    their receiver reads nothing of one whose number it has got before. 0 = another kind of unit.
    """
    restarts_at_will: bool = False
    """True: its sender numbers afresh in normal operation (a new map): a RESTART is no finding."""
    renews: bool = False
    """True: a sender that numbers from the start has forgotten the connection and begun another."""
    restart_guard_ms: float = 0.0
    """A RESTART so soon after the first unit of an epoch comes from a copy of that unit."""
    acked_with: str | None = None
    """Space whose units carry the units of this one: these are acknowledged with those."""
    memory: int = 256
    """Acknowledged units remembered, to recognise their late copies; a power of two."""
    quality: QualityRule | None = None
    """Rule by which the sender closes the connection for loss; None where there is none."""
    remarks: dict[str, str] = field(default_factory=dict)
    """Code of a tracker finding -> what the protocol adds to it: known defects, usual causes."""


@dataclass(frozen=True, slots=True)
class ProbeRule:
    """A question that the peer answers at once."""

    kind: str
    """Name in reports: `heartbeat`, `ping`, `keepalive`, `packet_info`."""
    bits: int
    """Width of its number on the wire; 0 where probes carry no number."""
    interval_ms: float | None = None
    """Normal spacing, milliseconds."""
    latest_only: bool = False
    """True: the peers measure only the answer to the newest probe; a later one gives no sample."""


@dataclass(frozen=True, slots=True)
class TimeoutRule:
    """When a side gives its silent peer up."""

    idle_ms: float
    """Silence after which the verdict is due, milliseconds."""
    check_ms: float
    """The check runs once per this period, so the verdict falls between idle_ms and idle_ms +
    check_ms.
    """
    refreshed_by: frozenset[str] | None
    """Message types whose arrival counts as a sign of life; None = any datagram."""
    announces: str | None = None
    """Input of the STATE event of the message that the side which times out still sends; None = it
    falls silent. After a silence of that length the input becomes `timeout`.
    """
    shortest_ms: float | None = None
    """The least that `idle_ms` can be configured to, milliseconds; None = it cannot."""
    by_clock: bool = False
    """True: silence is measured by the time stamps that both sides state, not by arrival."""
    alive_ms: float | None = None
    """A side that lives sends at least this often, milliseconds; None = not known."""
    pings_ms: float | None = None
    """A side goes on sending at least this often, milliseconds, until it gives up: one that fell
    silent before was gone for another reason. None = not known.
    """


BOTH: Final = (0, 1)
"""Either direction."""


def rule_and_key(space: str) -> tuple[str, str]:
    """Return the name of the rule that a space follows, and its key: `reliable[3]` gives (reliable,
    3), a space without a key has "".
    """
    rule, _, key = space.partition("[")
    return rule, key.removesuffix("]")


def _each(one: Any) -> tuple[Any, ...]:
    return one if isinstance(one, tuple) else (one,)


_WORDS: Final = frozenset(
    {"unknown", "open", "closed", "timed_out", "rejected", "accepted", "unanswered", "not_seen"}
)
"""What reports call a state, and what they say of a handshake."""


def by_word(**states: str | tuple[str, ...]) -> dict[str, str]:
    """Return state -> word, from the states of each word; ValueError for a word of no report."""
    for word in sorted(states.keys() - _WORDS):
        raise ValueError(f"{word} is no word for a state: there are {', '.join(sorted(_WORDS))}")
    return {state: word for word, found in states.items() for state in _each(found)}


def moves(*rows: tuple[Any, Any, Any, str]) -> dict[tuple[str, str, int], str]:
    """Return transitions from rows (state, input, direction, next state); in the place of one of
    the first three may stand a tuple of several.
    """
    return {
        (state, name, side): after
        for states, names, sides, after in rows
        for state in _each(states)
        for name in _each(names)
        for side in _each(sides)
    }


@dataclass(frozen=True, slots=True)
class StateMachine:
    """Connection states as a table; `track` runs it without knowing what the words mean.

    `states` maps each state to one of the contract's words (`open`, `closed`, `timed_out`,
    `rejected`, `unknown`).
    """

    initial: str
    """State before the first datagram."""
    states: dict[str, str]
    """State -> contract word."""
    transitions: dict[tuple[str, str, int], str]
    """(state, input of a STATE event, direction 0 c2s / 1 s2c) -> next state. A pair that is
    missing keeps the state.
    """
    handshake: dict[str, str] = field(default_factory=dict)
    """State reached -> the contract's `handshake` word (`accepted`, `rejected`, `unanswered`)."""
    answers: frozenset[str] = frozenset()
    """Inputs that answer a goodbye of the other side: where that is not in the capture, it is still
    the other side that ended the connection.
    """
    begins: frozenset[str] = frozenset()
    """Inputs that begin a connection: one of them in the first datagram means that the capture has
    the connection from its start.
    """


@dataclass(frozen=True, slots=True)
class Policy:
    """All rules of one dialect, for one direction."""

    dialect: str
    """The dialect that this row describes."""
    spaces: tuple[SpaceRule, ...]
    """Spaces, in report order."""
    probes: tuple[ProbeRule, ...] = ()
    """Probes, in report order."""
    timeouts: tuple[TimeoutRule | None, TimeoutRule | None] = (None, None)
    """(rule by which the client gives the server up, rule by which the server gives the client up).
    """
    machine: StateMachine | None = None
    """Connection state machine; None where the protocol has no notion of a connection."""
    state_timeouts: dict[str, tuple[TimeoutRule | None, TimeoutRule | None]] = field(
        default_factory=dict
    )
    """State of the machine -> rules that replace `timeouts` while a connection is in that state."""
    alive_ms: tuple[float | None, float | None] = (None, None)
    """How often (client, server) send at least while a connection is open, by timers of their own,
    milliseconds; None = they need not.
    """
    answer_ms: tuple[float, float] = (0.0, 0.0)
    """How long (client, server) may hold an answer back by their own schedule, milliseconds: a
    quicker one proves no network between that side and the capture.
    """
    stream: bool = False
    """True: the tracker keeps the facts of the TCP connection (space `tcp`) and times the messages
    in its streams (space `message`).
    """
    rtt_smoothing: float = 0.0
    """Weight of a new sample in the peer's own smoothed round trip (0.3 for 0.7/0.3); 0 = the peers
    keep none.
    """
    variance_smoothing: float = 0.0
    """Weight of a new deviation in the peer's own smoothed variance; it starts at half of the first
    sample. 0 = the peers keep none.
    """
