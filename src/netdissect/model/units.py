"""The items of a timeline: units with their copies, and events of connections.

A capture has as many of them as datagrams. Their `__init__` is therefore written out: one that
`dataclass` generates is not compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from netdissect.model.native import mypyc_attr
from netdissect.model.pickling import pickle_by_fields

STREAM: Final = "tcp"
"""Name of the space of a stream's bytes."""
MESSAGES: Final = "message"
"""Name of the space of the messages in a stream."""


class CopyGaps(NamedTuple):
    """What the gap between a copy and the one before it tells, in one direction."""

    doubted: bool = False
    """Whether the network delivers retransmissions so close behind delayed copies that a short gap
    does not show a network copy.
    """
    shortest_ns: int = 0
    longest_ns: int = 0
    """The gaps that the network leaves before its own copies; 0 = unknown."""
    proven_ns: int = 0
    """The longest gap of a copy that only the network can have made; 0 = there was none."""
    copied: bool = False
    """Whether there is a network that may copy, however short it is: it copied questions that
    nobody sends twice, or their answers, left units out or changed their order.
    """
    apart_ns: int = 0
    """Copies that came too soon for their sender's timer by at least this much are the network's;
    0 = unknown.
    """
    seldom: bool = False
    """Whether so few copies came too soon for their sender that the network may make none."""
    held_ns: int = 0
    """How long the network may hold datagrams back; 0 = not all is known yet."""


NO_GAPS: Final = (CopyGaps(), CopyGaps())
"""Nothing is known of the gaps of either direction."""


class Placement(NamedTuple):
    """Where the capture was taken, and what it misses, for one connection."""

    near: tuple[bool | None, bool | None] = (None, None)
    """(client, server): whether it was taken next to that side; None = unknown."""
    misses_frames: bool = False
    copy_gaps: tuple[CopyGaps, CopyGaps] = NO_GAPS
    """The last two as in `ConnectionReport`."""


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Copy:
    """One transmission of a unit, as captured."""

    frame: int
    time_ns: int
    kind: str
    """`original`, `retransmission`, `duplicate`, or `unknown` (one of the last two)."""
    basis: str
    """`observed`, `declared` (the sender marks it) or `inferred`."""
    due_ns: int | None
    """When the sender's timer was due for this retransmission; None for an original, and without a
    timer.
    """
    attempts_left: int | None
    """Attempts that remained after this copy; None without a limit."""
    doubtful: bool
    """True until the next number of the space shows whether sender or network made this copy."""
    by_place: bool
    """True if its kind depends on where the capture was taken."""
    fate: str | None
    """Label of the `Fate` that a second capture shows; None without a second capture."""
    delay_ms: float | None
    """One-way delay that a second capture shows."""

    def __init__(
        self,
        frame: int,
        time_ns: int,
        kind: str,
        basis: str = "observed",
        due_ns: int | None = None,
        attempts_left: int | None = None,
        doubtful: bool = False,  # noqa: FBT001, FBT002 - as in the fields
        by_place: bool = False,  # noqa: FBT001, FBT002 - as in the fields
        fate: str | None = None,
        delay_ms: float | None = None,
    ) -> None:
        self.frame = frame
        self.time_ns = time_ns
        self.kind = kind
        self.basis = basis
        self.due_ns = due_ns
        self.attempts_left = attempts_left
        self.doubtful = doubtful
        self.by_place = by_place
        self.fate = fate
        self.delay_ms = delay_ms

    def twin(self) -> Copy:
        """Return another object with the same values."""
        return Copy(
            self.frame, self.time_ns, self.kind, self.basis, self.due_ns, self.attempts_left,
            self.doubtful, self.by_place, self.fate, self.delay_ms,
        )  # fmt: skip


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class UnitRecord:
    """One unit from its first copy to its outcome."""

    connection: int
    direction: int
    space: str
    wire_seq: int
    seq: int
    """Extended (unwrapped) number."""
    type: str | None
    copies: list[Copy]
    acked_frame: int | None
    acked_time_ns: int | None
    rtt_ms: float | None
    rtt_ambiguous: bool
    outcome: str
    """`acked`, `unacked`, `unknown` or `given_up`."""
    delivered_order: int | None
    """Position, from 1, in the order in which new units reached the receiver; None if the capture
    was not taken next to it.
    """
    next_resend_due_ns: int | None
    """When the next retransmission would have been due without acknowledgement; None without a
    timer.
    """
    lost: bool | None
    """True if it is proven that no copy reached the receiver; None = unknown."""
    settled_ns: int | None
    """When the outcome was decided: at the first acknowledgement, or else at the last copy."""
    emitted: bool
    """True once the record was passed to the consumer of the timeline. Later copies go to a new
    record; its `extra["continued"]` is the frame of the original, or None if that is forgotten.
    """
    extra: dict[str, Any]

    def __init__(
        self,
        connection: int,
        direction: int,
        space: str,
        wire_seq: int,
        seq: int,
        type: str | None,  # noqa: A002 - a key of the JSON
        copies: list[Copy],
        acked_frame: int | None,
        acked_time_ns: int | None,
        rtt_ms: float | None,
        rtt_ambiguous: bool,  # noqa: FBT001 - as in the fields
        outcome: str,
        delivered_order: int | None,
        next_resend_due_ns: int | None = None,
        lost: bool | None = None,  # noqa: FBT001 - as in the fields
        settled_ns: int | None = None,
        emitted: bool = False,  # noqa: FBT001, FBT002 - as in the fields
        extra: dict[str, Any] | None = None,
    ) -> None:
        self.connection = connection
        self.direction = direction
        self.space = space
        self.wire_seq = wire_seq
        self.seq = seq
        self.type = type
        self.copies = copies
        self.acked_frame = acked_frame
        self.acked_time_ns = acked_time_ns
        self.rtt_ms = rtt_ms
        self.rtt_ambiguous = rtt_ambiguous
        self.outcome = outcome
        self.delivered_order = delivered_order
        self.next_resend_due_ns = next_resend_due_ns
        self.lost = lost
        self.settled_ns = settled_ns
        self.emitted = emitted
        self.extra = {} if extra is None else extra

    def parts(self, count: int) -> list[UnitRecord]:
        """Return records of `count` consecutive units that are all like this one."""
        return [
            UnitRecord(
                self.connection, self.direction, self.space, self.wire_seq + index,
                self.seq + index, self.type, [copy.twin() for copy in self.copies],
                self.acked_frame, self.acked_time_ns, self.rtt_ms, self.rtt_ambiguous, self.outcome,
                self.delivered_order, self.next_resend_due_ns, self.lost, self.settled_ns,
                self.emitted,
            )
            for index in range(count)
        ]  # fmt: skip

    @property
    def failed(self) -> bool:
        """Return whether the unit should have been acknowledged and was not. A unit that is never
        retransmitted has failed only if the receiver reports it as lost.
        """
        if self.outcome == "acked" or not self.copies:
            return False
        return not self.best_effort or self.extra.get("reported") == "lost"

    @property
    def best_effort(self) -> bool:
        """Return whether the unit was sent once and its sender would not have retransmitted it.
        What the network duplicated was still sent once. When a kernel would have sent bytes of a
        TCP stream again is not known, but it would have.
        """
        if self.space in (STREAM, MESSAGES) or self.next_resend_due_ns is not None:
            return False
        return all(copy.kind in ("original", "duplicate") for copy in self.copies)


@dataclass(slots=True, init=False)
class ConnectionEvent:
    """One thing that happened to a connection."""

    connection: int
    event: str
    """`state`, `probe`, `timeout`, `resend_request`, `gap`, `reset` or `ack`."""
    time_ns: int
    frame: int | None
    direction: int | None
    text: str
    """One line for people."""
    data: dict[str, Any]
    """Further keys for programs."""
    came: int
    """For a gap: how many of its numbers have arrived late so far."""

    def __init__(
        self,
        connection: int,
        event: str,
        time_ns: int,
        frame: int | None,
        direction: int | None,
        text: str,
        data: dict[str, Any] | None = None,
        came: int = 0,
    ) -> None:
        self.connection = connection
        self.event = event
        self.time_ns = time_ns
        self.frame = frame
        self.direction = direction
        self.text = text
        self.data = {} if data is None else data
        self.came = came


pickle_by_fields([Copy, UnitRecord, ConnectionEvent])
