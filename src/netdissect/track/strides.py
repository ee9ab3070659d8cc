"""A space whose numbers come at equal steps, so that a longer step shows what is missing.

An example are the ticks of a server that sends a snapshot every second tick. The method:

* The step (`stride`) is learnt from the numbers themselves. It is trusted as long as one of the
  last `SpaceRule.stride_reach` numbers was acknowledged, because a server without acknowledgements
  sends more slowly, at multiples of `SpaceRule.slow_step`.
* A step that is a multiple of the stride leaves numbers out. They count as lost at once, unless the
  slow server would have sent the same number. Then the step after it decides: a capture next to the
  client cannot see whether its acknowledgements reach the server.
* Next to the sender, nothing is missing: what it left out it has not sent.
"""

from __future__ import annotations

from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import SpaceRule
from netdissect.model.reports import SpaceReport
from netdissect.track.findings import Findings
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.space import Space


class StridedSpace(Space):
    """The units of one direction, and the numbers between them that never came."""

    __slots__ = ("_before_jump", "_open", "acked_at", "acked_before", "lost", "stride", "taken")

    def __init__(
        self, rule: SpaceRule, direction: int, findings: Findings,
        recorder: ConnectionRecorder | None,
    ) -> None:  # fmt: skip
        super().__init__(rule, direction, findings, recorder)
        self.lost = 0
        """Numbers that should have come and are missing."""
        self.stride: i64 = 0
        """Step between numbers; 0 = unknown."""
        self.acked_before: i64 = 0
        """Acknowledged units when the last newer number came."""
        self.acked_at: i64 = ABSENT
        """Newest number when the last acknowledgement came."""
        self.taken: i64 = 0
        """Units in order when the last step of more than one was seen."""
        self._before_jump: tuple[int, int, int] = (0, ABSENT, 0)
        """`stride`, `acked_at` and `taken` before the newest jump."""
        self._open: tuple[list[int], int, int] | None = None
        """(numbers left out, frame, time) of the last longer step, until the next step judges it.
        """

    def _advance(self, last: i64, seq: i64, frame: i64, time_ns: i64) -> None:
        """Process a newer number, and find those that should have come before it."""
        numbers = self.numbers
        super()._advance(last, seq, frame, time_ns)
        slowed = self._judge(seq - last)
        in_order, before = self._in_order(), self.taken + 1
        self.taken = in_order
        if self.ack_stats.acked != self.acked_before:
            self.acked_before = self.ack_stats.acked
            self.acked_at = last
        reach = self.rule.stride_reach
        if self.acked_at == ABSENT or last - self.acked_at > reach:
            self.stride = 0
            return
        step = seq - last
        if in_order > before:
            self.stride = 1  # there were steps of one in between, which never get here
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
        # The slow server sends multiples of `slow_step` only, so this number is not one of its.
        if not slow or seq % slow:
            self._judge(0)

    def _in_order(self) -> i64:
        """Return how many units came in order."""
        return self.units - self.numbers.isolated - self.numbers.out_of_order

    def jump(self, last: int, seq: int, frame: i64, time_ns: i64) -> None:
        """Process a newer number `seq` after `last`; remember the step before a jump."""
        if seq - last > self.numbers.reach:
            self._before_jump = (self.stride, int(self.acked_at), self.taken)
        super().jump(last, seq, frame, time_ns)

    def jump_undone(self, last: int) -> None:
        """Restore the step before the jump."""
        super().jump_undone(last)
        self.stride, self.acked_at, self.taken = self._before_jump

    def _judge(self, step: i64) -> bool:
        """Count what the last longer step has left out as lost, unless the sender has slowed down;
        return True if it has.

        `step` is the step after it, or 0 if it need not be known. If the sender has slowed down,
        this is a slow step as well, or the rest of one after which acknowledgements came again.
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

    def _arrived_late(self, seq: int, time_ns: i64) -> None:
        """Process a number that came late."""
        super()._arrived_late(seq, time_ns)
        if self._open is None or seq not in self._open[0]:
            self.lost -= 1

    def restart(self) -> None:
        """Begin a new epoch."""
        super().restart()
        self.stride = 0
        self._open = None
        self.acked_at = ABSENT
        self.taken = self._in_order()

    def report(self) -> SpaceReport:
        """Return the report; `never_seen` counts the missing numbers."""
        found = super().report()
        found.never_seen = 0 if self.context.sender_near else max(0, self.lost)
        return found
