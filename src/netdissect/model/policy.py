"""The reliability rules of a protocol as data: how it numbers, acknowledges and retransmits.

There is one `Policy` per dialect, in `protocols/<name>`, where every number has its source. The
tracker applies these rules and knows no protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final


class AckRule(Enum):
    """Which units an ACK with (base, bits) acknowledges."""

    EXACT = "exact"
    """`base` alone."""
    BITS_BEFORE = "bits_before"
    """`base`, and base - 1 - i for each bit i that is set."""
    BITS_AFTER = "bits_after"
    """`base`, and base + 1 + i for each bit i that is set."""
    CUMULATIVE = "cumulative"
    """`base` and everything before it, up to half of the number space."""
    STAMPED = "stamped"
    """`base` alone. `bits` is the timestamp of the datagram with the copy that is acknowledged. The
    `content` of a UNIT is a pair: the timestamp of its datagram, and the content of the unit.
    """
    NONE = "none"
    """None: the protocol never acknowledges units of this space. Loss shows only as gaps."""


class Exhausted(Enum):
    """What the sender does when its last attempt is not acknowledged."""

    DROP = "drop"
    """It drops the unit and continues: outcome `given_up`."""
    CLOSE = "close"
    """It closes the connection."""
    NEVER = "never"
    """There is no last attempt."""


@dataclass(frozen=True, slots=True)
class ResendRule:
    """When a sender retransmits an unacknowledged unit.

    Once a round trip has been measured, the delay is max(floor_ms, rtt_factor x smoothed round trip
    + rtt_variances x smoothed variance).
    """

    initial_ms: float
    """Delay until the first round trip has been measured, milliseconds."""
    rtt_factor: float = 0.0
    """Multiple of the smoothed round trip; 0 = the delay is always `initial_ms`."""
    rtt_variances: float = 0.0
    """Multiple of the smoothed variance of the round trip that is added."""
    backoff: float = 1.0
    """Factor by which the delay grows with each retransmission of a unit."""
    floor_ms: float = 0.0
    """Shortest delay, milliseconds."""
    guard_ms: float = 0.0
    """Until a round trip has been measured: the sender never retransmits a unit within this time of
    its last transmission, milliseconds.
    """
    guard_rtt_factor: float = 0.0
    """The same time afterwards, as a multiple of the smoothed round trip; 0 = still `guard_ms`."""
    on_request: bool = False
    """Whether the sender marks what it sends again, and sends everything unacknowledged again each
    time that its receiver asks for it (`Ev.RESEND_REQUEST`), without a pause in between.
    """
    attempts: int | None = None
    """Largest number of transmissions of one unit; None = no limit."""
    exhausted: Exhausted = Exhausted.NEVER
    """What the sender does after the last attempt."""
    exhausted_reason: str = ""
    """Reason shown for a connection that its sender closed silently after the last attempt."""


@dataclass(frozen=True, slots=True)
class QualityRule:
    """When a sender silently closes the connection because it loses too much.

    After each outcome the mean of the last `window` outcomes is compared with `limit`. When it has
    been above the limit for `run` outcomes in a row, the sender closes the connection.
    """

    measure: str
    """What an outcome is. `loss`: 1 for a lost unit, 0 for a delivered one, as reported by NACK;
    `attempts`: the number of transmissions of each acknowledged unit.
    """
    window: int
    """Number of outcomes that are averaged."""
    limit: float
    """Largest acceptable mean."""
    run: int
    """Consecutive outcomes above the limit that close the connection."""
    reason: str
    """Reason shown for the close."""
    fixed_divisor: bool = False
    """True: the sum is divided by `window` even while there are fewer outcomes."""


@dataclass(frozen=True, slots=True)
class SpaceRule:
    """One sequence space: a counter in one direction, and the rules for the units it numbers."""

    name: str
    """Name in reports: `reliable`, `vital`, `datagram` ..."""
    bits: int
    """Width of the number on the wire; sequence arithmetic is modulo 2**bits."""
    ack: AckRule
    """Which units an acknowledgement names."""
    ack_bits: int = 0
    """Width of the bit field of an ACK, bits."""
    ack_held_ms: float = 0.0
    """Shortest time for which a receiver delays an acknowledgement on purpose, milliseconds."""
    resend: ResendRule | None = None
    """Retransmission timer of the sender; None if it never retransmits."""
    first_seq: int | None = None
    """First number that a sender uses; None if it is arbitrary."""
    duplicate_window_ms: float = 0.0
    """Next to the receiver, an identical copy that follows another one within this time is a
    duplicate made by the network, milliseconds; 0 = the guard of `resend`. Without `resend`, every
    further copy is a duplicate.
    """
    key: str = ""
    """What distinguishes the spaces that follow this rule, such as `channel`; "" if there is only
    one. With a key the rule is a template: events name its spaces `name[value]`, and a space is
    created when it is first named. Such spaces have no `acked_with` and are not named in one.
    """
    burst: int = 1
    """Copies of a unit that the sender sends back to back on purpose. Only further copies can be
    duplicates.
    """
    copies_take_numbers: bool = False
    """True: each retransmission uses up a number, although the unit keeps its own. The number of
    the next unit then shows which copies were retransmissions.
    """
    consecutive: bool = True
    """False: the sender skips numbers in normal operation. Nothing is `never_seen`, and no gaps are
    reported.
    """
    reach: int = 64
    """Largest plausible distance from earlier numbers. A number further away (damaged, forged or
    behind a gap) is kept apart until another number confirms it.
    """
    stride_reach: int = 0
    """Numbers are not consecutive but advance in equal steps while one of the last `stride_reach`
    numbers was acknowledged; numbers left out by a longer step are `never_seen`. 0 = no such steps.
    """
    tick_ms: int = 0
    """How long the sender's clock takes from one number to the next, in ms; 0 = unknown. With it,
    a TIMING in the datagram of a number tells what its sender skipped before it.
    """
    slow_step: int = 0
    """Step of a sender that gets no acknowledgements: it only sends multiples of this."""
    in_order_receiver: bool = False
    """True: the receiver takes units in order only, and drops a whole datagram if its cumulative
    acknowledgement is outside the window from the last one to the newest unit that it has sent. In
    `scan`, the ACK of a datagram then comes before its units.
    """
    timeout_ms: float = 0.0
    """For datagrams that carry units of other spaces and are never retransmitted themselves: time
    without acknowledgement after which the sender forgets the datagram and retransmits the units in
    it, milliseconds. The receiver ignores a datagram whose number it has received before. 0 for
    other kinds of units.
    """
    restarts_at_will: bool = False
    """True: the sender restarts its numbers in normal operation (for a new map, for example), so
    that a RESTART is not a finding.
    """
    renews: bool = False
    """True: a sender that restarts its numbers has forgotten the connection and begun another."""
    restart_guard_ms: float = 0.0
    """A RESTART within this time of the first unit of an epoch comes from a copy of that unit,
    milliseconds.
    """
    acked_by_units: bool = False
    """True: only the peer's units of this space carry acknowledgements, so that a peer that has
    nothing to send does not acknowledge either.
    """
    acked_with: str | None = None
    """Space whose units carry the units of this one. Acknowledging the former acknowledges the
    latter.
    """
    memory: int = 256
    """Number of acknowledged units that are remembered to recognise late copies; a power of two."""
    quality: QualityRule | None = None
    """Rule by which the sender closes the connection because of loss; None without one."""
    remarks: dict[str, str] = field(default_factory=dict)
    """Code of a tracker finding -> text that the protocol adds: known defects, usual causes."""


@dataclass(frozen=True, slots=True)
class ProbeRule:
    """A request that the peer answers at once."""

    kind: str
    """Name in reports: `heartbeat`, `ping`, `keepalive`, `packet_info`."""
    bits: int
    """Width of its number on the wire; 0 without a number."""
    interval_ms: float | None = None
    """Usual interval between probes, milliseconds."""
    latest_only: bool = False
    """True: only the answer to the newest probe gives a sample, as in the programs themselves."""


@dataclass(frozen=True, slots=True)
class TimeoutRule:
    """When a side gives up a peer from which it receives nothing."""

    idle_ms: float
    """Silence after which the timer expires, milliseconds."""
    check_ms: float
    """Interval of the check, milliseconds: the side gives up between idle_ms and idle_ms +
    check_ms.
    """
    refreshed_by: frozenset[str] | None
    """Message types whose arrival restarts the timer; None = any datagram."""
    announces: str | None = None
    """STATE input of the message that a side sends when it times out; None if it stops silently.
    After a silence of `idle_ms` that input is treated as `timeout`.
    """
    shortest_ms: float | None = None
    """Lowest value to which users can configure `idle_ms`; None if it is fixed."""
    by_clock: bool = False
    """True: silence is measured by the timestamps that both sides send instead of by arrival."""
    alive_ms: float | None = None
    """Longest pause between datagrams of a side that is alive, milliseconds; None = unknown."""
    pings_ms: float | None = None
    """Longest pause between datagrams of a side that waits for its peer, until it gives up,
    milliseconds. A side that stopped earlier did so for another reason. None = unknown.
    """


BOTH: Final = (0, 1)
"""Both directions, in a row of `transition_table`."""


def split_space_name(space: str) -> tuple[str, str]:
    """Return the rule name and the key of a space: ("reliable", "3") for `reliable[3]`. The key is
    "" if the space has none.
    """
    rule, _, key = space.partition("[")
    return rule, key.removesuffix("]")


def _each(one: Any) -> tuple[Any, ...]:
    return one if isinstance(one, tuple) else (one,)


_WORDS: Final = frozenset(
    {"unknown", "open", "closed", "timed_out", "rejected", "accepted", "unanswered", "not_seen"}
)
"""Words that reports use for the states of a connection and of its handshake."""


def state_words(**states: str | tuple[str, ...]) -> dict[str, str]:
    """Return state -> word from keyword arguments that list the states of each word.

    Raises:
        ValueError: reports do not use such a word.

    """
    for word in sorted(states.keys() - _WORDS):
        raise ValueError(f"{word} is no word for a state: there are {', '.join(sorted(_WORDS))}")
    return {state: word for word, found in states.items() for state in _each(found)}


def transition_table(*rows: tuple[Any, Any, Any, str]) -> dict[tuple[str, str, int], str]:
    """Return the transitions of rows (state, input, direction, next state). Each of the first three
    may be a tuple of alternatives.
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
    """The states of a connection and their transitions. State names are the protocol's own."""

    initial: str
    """State before the first datagram."""
    states: dict[str, str]
    """State -> word of reports: `open`, `closed`, `timed_out`, `rejected`, `unknown`."""
    transitions: dict[tuple[str, str, int], str]
    """(state, input of a STATE event, direction) -> next state. Without an entry the state stays
    the same.
    """
    handshake: dict[str, str] = field(default_factory=dict)
    """State reached -> word of reports for the handshake: `accepted`, `rejected`, `unanswered`."""
    answers: frozenset[str] = frozenset()
    """Inputs that answer a goodbye: the other side ended the connection, even if its goodbye is not
    in the capture.
    """
    begins: frozenset[str] = frozenset()
    """Inputs that begin a connection. If the first datagram has one, the capture has the connection
    from its start.
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
    """(how the client gives up the server, how the server gives up the client)."""
    machine: StateMachine | None = None
    """Connection state machine; None if the protocol has no connections."""
    state_timeouts: dict[str, tuple[TimeoutRule | None, TimeoutRule | None]] = field(
        default_factory=dict
    )
    """State of the machine -> rules that replace `timeouts` in that state."""
    alive_ms: tuple[float | None, float | None] = (None, None)
    """Longest pause between datagrams that timers of (client, server) allow while a connection is
    open, milliseconds; None = any.
    """
    answer_ms: tuple[float, float] = (0.0, 0.0)
    """Longest time for which the schedule of (client, server) may delay an answer, milliseconds. A
    shorter response time does not prove that a network is between that side and the capture.
    """
    stream: bool = False
    """True: the tracker follows the TCP connection (space `tcp`) and times the messages in its
    streams (space `message`).
    """
    rtt_smoothing: float = 0.0
    """Weight of a new sample in the smoothed round trip that the peers compute (0.3 for 0.7/0.3); 0
    if they compute none.
    """
    variance_smoothing: float = 0.0
    """Weight of a new deviation in the smoothed variance that the peers compute. The variance
    starts at half of the first sample. 0 if they compute none.
    """
