"""How many units of one space were acknowledged, how quickly, and whether their sender closes the
connection because of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import AckRule, QualityRule
from netdissect.track.context import SpaceContext
from netdissect.track.feedback import Quality
from netdissect.track.lateness import Lateness
from netdissect.track.reservoir import RttReservoir
from netdissect.track.unit import Unit
from netdissect.track.vantage import MIN_ANSWERS, MIN_PASSED, NEAR_NS

SETTLED_NS: Final = 1 << 62
"""A time in ns later than any other: no acknowledgement can come any more."""
PASSED_NS: Final = 100_000_000
"""A copy that is answered although one that came this long before it was not, in ns, shows that the
earlier one, or its answer, was lost: programs seldom wait that long.
"""
PASSED_RATIO: Final = 4
"""The copy is answered in less than 1/4 of that time."""
PAUSE_NS: Final = 1_000_000_000
"""A shorter gap between two datagrams is not a pause: programs and networks hesitate that long in
normal operation.
"""
LATE_NS: Final = 1_000_000_000
"""An answer that comes within this time, in ns, after another unit of the same number, may be to
that one.
"""


class AckStats:
    """Counts the settled units of one space, and measures their round trips."""

    __slots__ = (
        "_context", "_doubt_ns", "_doubted", "_passed_ns", "acked", "lateness", "loss_quality",
        "newest_ns", "on_answer", "passed", "rtt", "try_quality", "unacked",
    )  # fmt: skip

    def __init__(self, context: SpaceContext) -> None:
        self._context = context
        self.acked: i64 = 0
        self.unacked: i64 = 0
        """Units whose acknowledgement the capture would have shown, and does not."""
        self.rtt = RttReservoir()
        self.lateness: Lateness | None = None
        """Delays caused by retransmissions; None before the first acknowledged retransmission."""
        self.passed: i64 = 0
        """How often only a later copy was answered, and that quickly; at most once in `PAUSE_NS`,
        as a busy program leaves many units unanswered at a time.
        """
        self._passed_ns: i64 = 0
        """When it was counted last."""
        self._doubted: i64 = ABSENT
        """Answers to numbers up to this one may be to those of the epoch before."""
        self._doubt_ns: i64 = ABSENT
        """Until when; ABSENT before the first answer in this epoch."""
        self.newest_ns: i64 = 0
        """When the acknowledged unit that was sent last was sent."""
        self.on_answer: Callable[[int, int, int, int, int], None] | None = None
        """Called with (direction, time of sending, frame of the answer, and of the unit that was
        answered the time of its first copy and its copies) for the first answer to anything sent
        within more than `PAUSE_NS`.
        """
        self.loss_quality: Quality | None = None
        self.try_quality: Quality | None = None

    def obey(self, rule: QualityRule | None) -> None:
        """Apply the rules of a dialect."""
        if rule is None:
            self.loss_quality = self.try_quality = None
        # A dialect with the same rule must not forget the outcomes so far.
        elif self.quality is None or self.quality.rule != rule:
            made = Quality(rule)
            self.loss_quality = made if rule.measure == "loss" else None
            self.try_quality = made if rule.measure == "attempts" else None

    @property
    def quality(self) -> Quality | None:
        """Return the state of the quality rule; None if the dialect has none."""
        return self.loss_quality or self.try_quality

    def note_answered(
        self, sent_ns: i64, frame: i64, first_ns: i64 = 0, copies: i64 = 1
    ) -> None:
        """Note that something sent at this time was answered: `copies` times, since `first_ns`."""
        ahead_ns = sent_ns - self.newest_ns
        if ahead_ns > 0:
            if ahead_ns > PAUSE_NS and self.on_answer is not None:
                self.on_answer(self._context.direction, sent_ns, frame, first_ns, copies)
            self.newest_ns = sent_ns

    def add_sample(self, sample_ns: i64) -> bool:
        """Add a round trip; return whether it is new evidence of the vantage."""
        if sample_ns < 0:
            return False
        rtt = self.rtt
        lowest = rtt.lowest
        rtt.add(sample_ns)
        # An answer within `NEAR_NS` proves the vantage already; quicker ones add nothing.
        return sample_ns < lowest > NEAR_NS or rtt.samples <= MIN_ANSWERS

    def add_resent(self, seq: int, unit: Unit, copies: int, time_ns: i64) -> bool:
        """Add an acknowledged unit that was sent more than once, which gives no round trip; return
        whether it is new evidence of the vantage.
        """
        rtt = self.rtt
        rtt.ambiguous += 1
        if self.lateness is None:
            findings = self._context.findings
            self.lateness = Lateness(self._context.rule.name, findings.late_ms)
        usual_ns = rtt.lowest if rtt.samples else 0
        first = (unit.frame, unit.first_ns)
        self.lateness.take(seq, first, copies, time_ns - unit.first_ns - usual_ns)
        waited_ns = unit.last_ns - unit.first_ns
        quick = waited_ns >= PASSED_NS and PASSED_RATIO * (time_ns - unit.last_ns) < waited_ns
        # A cumulative acknowledgement waits for earlier units; one that the capture misses does not
        # tell which copy was answered.
        context = self._context
        told = context.rule.ack is not AckRule.CUMULATIVE and not context.findings.misses
        if not (quick and told) or time_ns - self._passed_ns < PAUSE_NS:
            return False
        self._passed_ns = time_ns
        self.passed += 1
        return self.passed == MIN_PASSED

    def restart(self, newest: i64, modulus: i64) -> None:
        """Note that the numbers restart after this one, at the next multiple of the modulus."""
        self._doubted = max(self._doubted, newest) + modulus
        self._doubt_ns = ABSENT

    def _is_doubtful(self, first_ns: i64, time_ns: i64) -> bool:
        """Return whether an answer to a unit sent at `first_ns` seems quick, and may be to one of
        the epoch before. Then it took longer than it seems, so that slow ones are as slow as that.
        """
        if self._doubt_ns == ABSENT:
            self._doubt_ns = first_ns + LATE_NS
        if time_ns <= self._doubt_ns:
            return not self.rtt.samples or time_ns - first_ns < self.rtt.lowest
        self._doubted = ABSENT
        return False

    def add(self, seq: int, unit: Unit, frame: i64, time_ns: i64) -> bool:
        """Count an acknowledged unit; return whether it is new evidence of the vantage."""
        # `note_answered` inlined, because this runs once per unit.
        sent_ns, copies = unit.last_ns, unit.copies
        if sent_ns > self.newest_ns:
            if sent_ns - self.newest_ns > PAUSE_NS:
                self.note_answered(sent_ns, frame, unit.first_ns, copies)
            self.newest_ns = sent_ns
        telling = False
        if copies > 1:
            telling = self.add_resent(seq, unit, copies, time_ns)
        # An earlier copy, from before the capture, may be the one that is acknowledged.
        elif unit.again or (seq <= self._doubted and self._is_doubtful(unit.first_ns, time_ns)):
            self.rtt.ambiguous += 1
        else:
            telling = self.add_sample(time_ns - unit.first_ns)
        self.acked += 1
        quality = self.try_quality
        if quality is not None:
            if copies == 1 and quality.calm:
                quality.remember(1)
            else:
                self.add_outcome(quality, copies, frame, time_ns)
        return telling

    def add_outcome(self, quality: Quality, value: int, frame: i64, time_ns: i64) -> None:
        """Process an outcome by the sender's quality rule, and report it if it breaks the rule."""
        if quality.add_outcome(value, time_ns):
            self._context.find(
                "poor-quality", frame, time_ns, self._context.direction,
                "loses more than its sender tolerates",
            )  # fmt: skip

    def release(self) -> None:
        """Drop the reference to the connection."""
        self.on_answer = None
