"""A space whose numbers come at equal steps, so that a longer step shows what did not come.

Ticks of a server that sends every so many ticks are such numbers. The step is taken from the
numbers themselves; it holds as long as one of the last numbers was acknowledged, because a sender
that is not answered changes it.
"""

from __future__ import annotations

from dataclasses import replace

from netdissect.model.policy import SpaceRule
from netdissect.model.reports import SpaceReport
from netdissect.track.findings import Findings
from netdissect.track.recorder import Recorder
from netdissect.track.space import MAX_MISSING, Space

__all__ = ["StridedSpace"]


class StridedSpace(Space):
    """Units of one direction, and the numbers between them that never came."""

    __slots__ = ("acked_at", "acked_before", "lost", "stride", "taken")

    def __init__(
        self, rule: SpaceRule, direction: int, findings: Findings, recorder: Recorder | None
    ) -> None:
        super().__init__(rule, direction, findings, recorder)
        self.lost = 0
        """Numbers that should have come and did not."""
        self.stride = 0
        """Step between numbers; 0 = not known."""
        self.acked_before = 0
        """Acknowledged units at the last look."""
        self.acked_at: int | None = None
        """Newest number when the last acknowledgement came; None = none came yet."""
        self.taken = 0
        """Units in order at the last step of more than one."""

    def _advance(self, last: int, seq: int, frame: int, time_ns: int) -> None:
        """Take a newer number; note those that should have come before it."""
        super()._advance(last, seq, frame, time_ns)
        in_order, before = self.units - self.out_of_order, self.taken + 1
        self.taken = in_order
        if self.acked != self.acked_before:
            self.acked_before = self.acked
            self.acked_at = last
        reach = self.rule.stride_reach
        if self.acked_at is None or last - self.acked_at > reach:
            self.stride = 0
            return
        step = seq - last
        if in_order > before:
            self.stride = 1  # steps of one do not come here
        stride = self.stride
        if not stride or step < stride:
            self.stride = step
            return
        if step == stride or step % stride or step > reach:
            return
        lacking = range(last + stride, seq, stride)
        self.lost += len(lacking)
        missing = self.missing
        missing.update(lacking)
        if len(missing) > MAX_MISSING:
            for old in sorted(missing)[: len(missing) - MAX_MISSING // 2]:
                missing.discard(old)
        if self.recorder is not None:
            self.recorder.gap(self, lacking[0], lacking[-1], frame, time_ns)

    def _came(self, seq: int) -> None:
        """Take a number that came late."""
        super()._came(seq)
        self.lost -= 1

    def restart(self) -> None:
        """Begin a new epoch."""
        super().restart()
        self.stride = 0
        self.acked_at = None
        self.taken = self.units - self.out_of_order

    def report(self) -> SpaceReport:
        """Return the figures; `never_seen` are the numbers that did not come."""
        return replace(super().report(), never_seen=max(0, self.lost))
