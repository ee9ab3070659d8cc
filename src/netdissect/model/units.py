"""The timeline: units with their copies, and events of connections.

Their `__init__` is written out, since one that `dataclass` makes is not compiled, and a capture has
as many of these as datagrams.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from netdissect.model.native import mypyc_attr

__all__ = ["ConnectionEvent", "Copy", "UnitRecord"]


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Copy:
    """One transmission of a unit, as captured."""

    frame: int
    time_ns: int
    kind: str
    """`original`, `retransmission`, `duplicate`, or `unknown` where nothing tells which of
    the last two it is.
    """
    basis: str
    """`observed`, `declared` (the sender marks it) or `inferred`."""
    due_ns: int | None
    """When the dialect's resend timer was due for this retransmission; None for originals or where
    no timer applies.
    """
    attempts_left: int | None
    """Attempts that remained after this copy; None where the dialect has no limit."""
    doubtful: bool
    """True while the next number of its space is still to say who made it."""
    by_place: bool
    """True where its kind hangs on where the capture was taken."""
    fate: str | None
    """Label of the `Fate` that a second capture shows; None without one."""
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

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return type(self), _values(self)


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class UnitRecord:
    """One reliable unit from first sight to its outcome."""

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
    """acked, unacked, unknown or given_up."""
    delivered_order: int | None
    next_resend_due_ns: int | None
    """When the next resend would have been due had no ack come; None where no timer applies."""
    lost: bool | None
    """True where it is proven that no copy came to its receiver; None where that is not known."""
    settled_ns: int | None
    """When the outcome was fixed: first acknowledgement, or last copy of one that never got it."""
    told: bool
    """True once it was handed on: later copies have a record of their own, which has `continued` in
    `extra`: the frame of the original, None where that is not remembered.
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
        told: bool = False,  # noqa: FBT001, FBT002 - as in the fields
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
        self.told = told
        self.extra = {} if extra is None else extra

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return type(self), _values(self)

    @property
    def missed(self) -> bool:
        """Return whether it was not acknowledged and should have been: a unit that nobody would
        send again is no failure unless its receiver said that it was lost.
        """
        if self.outcome == "acked" or not self.copies:
            return False
        return (
            self.next_resend_due_ns is not None
            or len(self.copies) > 1
            or self.extra.get("reported") == "lost"
        )

    @property
    def by_design(self) -> bool:
        """Return whether nobody would have sent it again."""
        return len(self.copies) == 1 and self.next_resend_due_ns is None


@dataclass(slots=True, init=False)
class ConnectionEvent:
    """One thing that happened to a connection."""

    connection: int
    event: str
    """state, probe, timeout, resend_request, gap, reset, ack."""
    time_ns: int
    frame: int | None
    direction: int | None
    text: str
    """One line for people."""
    data: dict[str, Any]
    """Added keys for programs."""
    came: int
    """Of a gap: how many of its numbers came later, as far as the capture has been read."""

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

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return type(self), _values(self)


def _values(item: Any) -> tuple[Any, ...]:
    """Return what makes an item again: compiled, none can be made empty and filled afterwards."""
    return tuple([getattr(item, field.name) for field in fields(item)])
