"""Runs the state machine of a connection, which is a table of states."""

from __future__ import annotations

from netdissect.model.native import mypyc_attr
from netdissect.model.packets import SIDES
from netdissect.model.policy import StateMachine


@mypyc_attr(acyclic=True)
class StateRunner:
    """The current state of one `StateMachine`."""

    __slots__ = ("answered", "close", "handshake", "machine", "reject_reason", "state")

    def __init__(self, machine: StateMachine | None) -> None:
        self.machine = machine
        self.state = machine.initial if machine else ""
        """The protocol's name of the state."""
        self.handshake = "not_seen"
        """How the handshake went, as in `ConnectionReport.handshake`."""
        self.reject_reason: str | None = None
        self.close: dict[str, object] | None = None
        """`by`, `reason` and `frame` of the end of the connection."""
        self.answered = False
        """Whether the connection's end shows only in the answer to a goodbye that was not captured.
        """

    @property
    def word(self) -> str:
        """Return the state as in `ConnectionReport.state`."""
        return self.machine.states.get(self.state, "unknown") if self.machine else "unknown"

    @property
    def over(self) -> bool:
        """Return whether the connection has ended."""
        return self.word in ("closed", "rejected", "timed_out")

    def step(self, name: str, detail: str | None, direction: int, frame: int) -> str | None:
        """Process an input; return the new state, or None if the state stays."""
        machine = self.machine
        if machine is None:
            return None
        target = machine.transitions.get((self.state, name, direction))
        if target is None or target == self.state:
            return None
        ended = self.over
        self.state = target
        word = machine.handshake.get(target)
        if word is not None:
            self.handshake = word
        kind = machine.states.get(target, "unknown")
        if kind == "rejected":
            self.reject_reason = detail
        if kind in ("closed", "rejected", "timed_out"):
            if ended and self.close is not None:
                return target  # the first to end it stays recorded
            self.answered = name in machine.answers
            # Who answers a goodbye did not say it first.
            by = SIDES[direction ^ self.answered]
            self.close = {"by": by, "reason": detail, "frame": frame}
        # A new handshake on the same ports begins another life.
        elif self.close is not None:
            self.close = None
        return target
