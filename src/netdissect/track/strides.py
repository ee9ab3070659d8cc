"""A space whose numbers come at equal steps, so that a longer step shows what is missing.

An example are the ticks of a server that sends a snapshot every second tick. The method:

* The step (`stride`) is learnt from the numbers themselves. It is trusted as long as one of the
  last `SpaceRule.stride_reach` numbers was acknowledged, because a server without acknowledgements
  sends more slowly, at multiples of `SpaceRule.slow_step`.
* A step that is a multiple of the stride leaves numbers out: they were lost, or a busy server
  skipped them. If the slow server would have sent the same number, the step after it decides: a
  capture next to the client cannot see whether its acknowledgements reach the server.
* A server with a clock (`SpaceRule.tick_ms`) says how long something waited that it sends with a
  number. Numbers that passed meanwhile were skipped, as it would have gone with them. The number
  that began less than a tick before was sent, as the server worked in that tick.
* Where nothing proves either, it stays open (`lost_or_skipped`). Without a clock, all numbers left
  out are lost.
* Next to the sender, nothing is missing: what it left out it has not sent.
"""

from __future__ import annotations

from typing import Final

from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import SpaceRule
from netdissect.model.reports import SpaceReport
from netdissect.track.ackstats import PAUSE_NS
from netdissect.track.findings import Findings
from netdissect.track.numbers import MAX_MISSING
from netdissect.track.ranges import Recent
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.space import Space

_EXACT_MS: Final = 2
"""How exact the times on the sender's clock are."""
_LOOP_MS: Final = 3
"""A busy sender may work for so long after it has looked at its clock."""


class StridedSpace(Space):
    """The units of one direction, and the numbers between them that never came."""

    __slots__ = (
        "_before_jump", "_clock_frame", "_clock_ms", "_open", "_unproven", "acked_at",
        "acked_before", "lost", "stride", "taken", "unproven",
    )  # fmt: skip

    def __init__(
        self, rule: SpaceRule, direction: int, findings: Findings,
        recorder: ConnectionRecorder | None,
    ) -> None:  # fmt: skip
        super().__init__(rule, direction, findings, recorder)
        self.lost = 0
        """Numbers that were lost."""
        self.unproven = 0
        """Numbers that were lost or skipped."""
        self._unproven = Recent()
        """The newest of them."""
        self._clock_frame: i64 = 0
        self._clock_ms: i64 = 0
        """When the first thing of the newest datagram that has such a time began to wait, in ms of
        the sender's clock, and the frame of that datagram.
        """
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
        self._open: tuple[list[int], int, int, i64, int] | None = None
        """(numbers left out, frame, time, `_clock_ms` or ABSENT, time of the number before) of the
        last longer step, until the next step judges it.
        """

    def clocked(self, number: i64, left_ms: i64, frame: i64) -> None:
        """Process when something began to wait for the datagram in `frame`: `left_ms` before the
        sender's clock reaches `number`.
        """
        since_ms = number * self.rule.tick_ms - left_ms
        if frame != self._clock_frame:
            self._clock_frame = frame
            self._clock_ms = since_ms
        elif since_ms < self._clock_ms:
            self._clock_ms = since_ms

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
        since_ms = self._clock_ms if frame == self._clock_frame else ABSENT
        self._open = (lacking, frame, time_ns, since_ms, self._arrival_ns(last, time_ns))
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
        lacking, frame, time_ns, since_ms, since_ns = self._open
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
        if time_ns - since_ns > PAUSE_NS:
            self.numbers.add_pause(since_ns, time_ns, len(lacking))
        lost = [seq for seq in lacking if seq in missing]
        if self.rule.tick_ms:
            lost = self._judge_by_clock(lost, since_ms)
        self.lost += len(lost)
        if lost and self.recorder is not None and not self.context.sender_near:
            self.recorder.gap(self.context, lost[0], lost[-1], frame, time_ns, self.stride)
        return False

    def _judge_by_clock(self, lacking: list[int], since_ms: i64) -> list[int]:
        """Count the numbers that a longer step left out, and return those that are lost.
        `since_ms`: since when something waited for the number after them; ABSENT = unknown.
        """
        tick_ms: i64 = self.rule.tick_ms
        lost: list[int] = []
        for number in lacking:
            begin_ms = number * tick_ms
            if since_ms != ABSENT and since_ms < begin_ms - _EXACT_MS:
                self.numbers.missing.discard(number)
            elif since_ms != ABSENT and begin_ms + _LOOP_MS <= since_ms < begin_ms + tick_ms:
                lost.append(number)
            else:
                self._unproven.add(number, number + 1)
                self.unproven += 1
        self._unproven.keep(MAX_MISSING)
        return lost

    def _arrived_late(self, seq: int, time_ns: i64) -> None:
        """Process a number that came late."""
        super()._arrived_late(seq, time_ns)
        if self._open is not None and seq in self._open[0]:
            return
        if seq in self._unproven:
            self._unproven.discard(seq)
            self.unproven -= 1
        else:
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
        if self.context.sender_near:
            return found
        found.never_seen = max(0, self.lost)
        if self.unproven:
            found.extra["lost_or_skipped"] = self.unproven
        return found
