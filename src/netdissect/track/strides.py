"""A space whose numbers come at equal steps, so that a longer step shows what did not come.

Ticks of a server that sends every so many ticks are such numbers. The step is taken from the
numbers themselves; it holds as long as one of the last numbers was acknowledged, because a sender
that is not answered changes it. Whether acknowledgements reach the sender, the capture beside their
receiver cannot tell: a number that the slow sender would send too is judged by the one behind it.
Next to the sender nothing is missing: what it leaves out it has not sent.
"""

from __future__ import annotations

from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import SpaceRule
from netdissect.model.reports import SpaceReport
from netdissect.track.findings import Findings
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.space import Space

__all__ = ["StridedSpace"]


class StridedSpace(Space):
    """Units of one direction, and the numbers between them that never came."""

    __slots__ = ("_open", "acked_at", "acked_before", "lost", "stride", "taken")

    def __init__(
        self, rule: SpaceRule, direction: int, findings: Findings,
        recorder: ConnectionRecorder | None,
    ) -> None:  # fmt: skip
        super().__init__(rule, direction, findings, recorder)
        self.lost = 0
        """Numbers that should have come and did not."""
        self.stride = 0
        """Step between numbers; 0 = not known."""
        self.acked_before = 0
        """Acknowledged units at the last look."""
        self.acked_at: i64 = ABSENT
        """Newest number when the last acknowledgement came."""
        self.taken = 0
        """Units in order at the last step of more than one."""
        self._open: tuple[list[int], int, int] | None = None
        """(numbers left out, frame, time) of the last longer step, while it is not judged."""

    def _advance(self, last: i64, seq: i64, frame: int, time_ns: int) -> None:
        """Take a newer number; note those that should have come before it."""
        numbers = self.numbers
        super()._advance(last, seq, frame, time_ns)
        slowed = self._judge(seq - last)
        in_order, before = self.units - numbers.out_of_order, self.taken + 1
        self.taken = in_order
        if self.ack_stats.acked != self.acked_before:
            self.acked_before = self.ack_stats.acked
            self.acked_at = last
        reach = self.rule.stride_reach
        if self.acked_at == ABSENT or last - self.acked_at > reach:
            self.stride = 0
            return
        step = int(seq - last)
        if in_order > before:
            self.stride = 1  # steps of one do not come here
        stride = self.stride
        if not stride or step < stride:
            self.stride = step
            return
        if step == stride or step % stride or step > reach or slowed:
            return
        lacking = list(range(int(last) + stride, int(seq), stride))
        missing = numbers.missing
        for number in lacking:
            missing.add(number, number + 1)
        numbers.bound_missing()
        self._open = (lacking, frame, time_ns)
        slow = self.rule.slow_step
        if not slow or seq % slow:
            self._judge(0)

    def _judge(self, step: int) -> bool:
        """Count what the last longer step has left out, unless its sender went over to slow steps;
        return True then.

        `step` is the one behind it: such a step too, or what was left of one when the sender was
        answered again.
        """
        if self._open is None:
            return False
        lacking, frame, time_ns = self._open
        self._open = None
        missing = self.numbers.missing
        slow = self.rule.slow_step
        stride = self.stride
        if slow and step > stride > 0 and stride * (len(lacking) + 1) + step >= slow:
            for number in lacking:
                missing.discard(number)
            if step >= slow and step % slow == 0:
                self.stride = slow
            return True
        lost = [seq for seq in lacking if seq in missing]
        self.lost += len(lost)
        if lost and self.recorder is not None and not self.context.sender_near:
            self.recorder.gap(self.context, lost[0], lost[-1], frame, time_ns, self.stride)
        return False

    def _arrived_late(self, seq: int, time_ns: int) -> None:
        """Take a number that came late."""
        super()._arrived_late(seq, time_ns)
        if self._open is None or seq not in self._open[0]:
            self.lost -= 1

    def restart(self) -> None:
        """Begin a new epoch."""
        super().restart()
        self.stride = 0
        self._open = None
        self.acked_at = ABSENT
        self.taken = self.units - self.numbers.out_of_order

    def report(self) -> SpaceReport:
        """Return the figures; `never_seen` are the numbers that did not come."""
        found = super().report()
        found.never_seen = 0 if self.context.sender_near else max(0, self.lost)
        return found
