"""Units of one space that were sent as often as their sender permits."""

from __future__ import annotations

from typing import Any, Final

from netdissect.model.native import ABSENT, i64, mypyc_attr
from netdissect.model.policy import Exhausted, ResendRule
from netdissect.track.context import SpaceContext
from netdissect.track.unit import Unit

__all__ = ["Attempts"]

A_FEW: Final = 3
MANY: Final = 10
"""So many units that never came, and at least one in so many, are no accident: each is sent again.
"""


@mypyc_attr(acyclic=True)
class Attempts:
    """How often a sender sends a unit, and what it gave up."""

    __slots__ = ("_fate_unknown", "gave_up_ns", "given_up", "limit", "spent_ns")

    def __init__(self, resend: ResendRule | None) -> None:
        self.given_up = 0
        self.gave_up_ns: int | None = None
        """When the sender gave up the last unit that it had sent as often as it may."""
        self.spent_ns: int | None = None
        """When the timer after the last copy was due of a unit that was acknowledged, and yet sent
        as often as it may be or more often.
        """
        self._fate_unknown: set[int] | None = None
        """Open units sent as often as permitted while the other direction was not heard, or that it
        has answered too late; None before the first one, as in most spaces there is none.
        """
        self.obey(resend)

    def obey(self, resend: ResendRule | None) -> None:
        """Take the rules of a dialect."""
        self.limit: i64 = 0
        """Transmissions that the sender permits; 0 = no limit."""
        if resend is not None and resend.exhausted is not Exhausted.NEVER:
            self.limit = resend.attempts or 0

    def exhausted(self, unit: Unit) -> bool:
        """Return True where the unit was sent exactly as often as its sender permits.

        More copies than that show a sender whose limit is switched off.
        """
        return self.limit > 0 and unit.copies == self.limit

    def note_exhausted(self, seq: int, unit: Unit, heard_ns: int) -> None:
        """Note of a unit that was just sent as often as permitted whether its later half was sent
        while nothing of the other direction was heard: its answers may all have been lost then.
        """
        if heard_ns <= (unit.first_ns + unit.last_ns) >> 1:
            self.mark_fate_unknown(seq)

    def mark_fate_unknown(self, seq: int) -> None:
        """Note that a unit sent as often as permitted is not known to be lost."""
        if self._fate_unknown is None:
            self._fate_unknown = set()
        self._fate_unknown.add(seq)

    def give_up(self, context: SpaceContext, seq: int, unit: Unit) -> None:
        """Count and report a unit that was sent as often as permitted."""
        self.given_up += 1
        self.gave_up_ns = max(self.gave_up_ns or 0, unit.due_ns)
        context.find(
            "attempts-exhausted", unit.frame, unit.first_ns, context.direction,
            f"{seq % (1 << context.rule.bits)} was sent {unit.copies} times, as often as permitted",
            concluded_ns=unit.last_ns, seq=seq, copies=unit.copies,
        )  # fmt: skip

    def implies_loss(self, context: SpaceContext, seq: int, peer: Any) -> bool:
        """Return whether no answer to a unit that was given up means that nothing of it came.

        Each copy is answered: that all answers were lost where others came is not likely, unless
        the direction of the answers, `peer`, lacks many units for all that its sender has sent each
        again. Of what came back as rarely, nobody can tell which way was lost.
        """
        fate_unknown = self._fate_unknown is not None and seq in self._fate_unknown
        if fate_unknown or context.findings.misses:
            return False
        other = None if peer is None else peer.spaces.get(context.rule.name)
        if other is None or other.numbers.newest == ABSENT:
            return True
        missing, numbers = other.numbers.missing.size, other.numbers
        return bool(missing < A_FEW or MANY * missing <= numbers.newest - numbers.first)

    def forget(self, seq: int) -> None:
        """Forget a unit that waits no more."""
        if self._fate_unknown is not None:
            self._fate_unknown.discard(seq)
