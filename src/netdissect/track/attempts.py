"""Units of one space that their sender has sent as often as it may."""

from __future__ import annotations

from typing import Any, Final

from netdissect.model.native import ABSENT, i64, mypyc_attr
from netdissect.model.policy import Exhausted, ResendRule
from netdissect.track.context import SpaceContext
from netdissect.track.unit import Unit

MIN_MISSING: Final = 3
"""Fewer missing units of the answering direction show nothing: any capture may lack some."""
MISSING_SHARE: Final = 10
"""If at least 1/10 of the units of the answering direction are missing for good, although their
sender sends each again, its answers may have been lost, too.
"""


@mypyc_attr(acyclic=True)
class Attempts:
    """Counts the units that a sender has given up."""

    __slots__ = ("_fate_unknown", "gave_up_ns", "given_up", "last_copy_ns", "limit", "spent_ns")

    def __init__(self, resend: ResendRule | None) -> None:
        self.given_up = 0
        self.gave_up_ns: int | None = None
        """When the sender gave up the last unit."""
        self.spent_ns: int | None = None
        """When the timer of an acknowledged unit was due that was sent as often as permitted or
        more often all the same.
        """
        self.last_copy_ns: int | None = None
        """When the first of these units was sent for the last time."""
        self._fate_unknown: set[int] | None = None
        """Outstanding units that were sent as often as permitted and may have been delivered: the
        other direction was not heard, or it acknowledged them too late. None before the first one.
        """
        self.obey(resend)

    def obey(self, resend: ResendRule | None) -> None:
        """Apply the rules of a dialect."""
        self.limit: i64 = 0
        """Transmissions of one unit that the sender permits; 0 = no limit."""
        if resend is not None and resend.exhausted is not Exhausted.NEVER:
            self.limit = resend.attempts or 0

    def exhausted(self, unit: Unit) -> bool:
        """Return True if the unit was sent exactly as often as permitted. More copies show a sender
        whose limit is switched off.
        """
        return self.limit > 0 and unit.copies == self.limit

    def note_exhausted(self, seq: int, unit: Unit, heard_ns: int) -> None:
        """Process the last permitted copy of a unit. If nothing of the other direction was heard
        during the later half of its copies, all its acknowledgements may have been lost.
        """
        if heard_ns <= (unit.first_ns + unit.last_ns) >> 1:
            self.mark_fate_unknown(seq)

    def mark_fate_unknown(self, seq: int) -> None:
        """Note that a unit sent as often as permitted may have been delivered."""
        if self._fate_unknown is None:
            self._fate_unknown = set()
        self._fate_unknown.add(seq)

    def spent(self, last_ns: int, due_ns: int) -> None:
        """Process the last permitted copy of an acknowledged unit, or a further one."""
        self.spent_ns = due_ns
        self._note_last_copy(last_ns)

    def _note_last_copy(self, last_ns: int) -> None:
        if self.last_copy_ns is None or last_ns < self.last_copy_ns:
            self.last_copy_ns = last_ns

    def give_up(self, context: SpaceContext, seq: int, unit: Unit) -> None:
        """Count and report a unit that was sent as often as permitted."""
        self.given_up += 1
        # Units are not given up in the order in which their timers were due.
        self.gave_up_ns = max(self.gave_up_ns or 0, unit.due_ns)
        self._note_last_copy(unit.last_ns)
        context.find(
            "attempts-exhausted", unit.frame, unit.first_ns, context.direction,
            f"{seq % (1 << context.rule.bits)} was sent {unit.copies} times, as often as permitted",
            concluded_ns=unit.last_ns, seq=seq, copies=unit.copies,
        )  # fmt: skip

    def implies_loss(self, context: SpaceContext, seq: int, peer: Any) -> bool:
        """Return whether a unit that was given up is known to be lost.

        Each copy is answered. It is unlikely that all answers were lost while others came, unless
        many units of the answering direction `peer` are missing for good although their sender
        sends each again. Then nobody knows which direction lost the unit.
        """
        fate_unknown = self._fate_unknown is not None and seq in self._fate_unknown
        if fate_unknown or context.findings.misses:
            return False
        other = None if peer is None else peer.spaces.get(context.rule.name)
        if other is None or other.numbers.newest == ABSENT:
            return True
        missing, numbers = other.numbers.missing.size, other.numbers
        few = missing < MIN_MISSING
        return bool(few or MISSING_SHARE * missing <= numbers.newest - numbers.first)

    def forget(self, seq: int) -> None:
        """Forget a unit that is settled."""
        if self._fate_unknown is not None:
            self._fate_unknown.discard(seq)
