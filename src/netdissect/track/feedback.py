"""Final feedback on units (each delivered or lost), and the rules by which a sender closes a
connection of poor quality.
"""

from __future__ import annotations

from netdissect.model.native import append, i64, mypyc_attr, vec
from netdissect.model.policy import QualityRule


@mypyc_attr(acyclic=True)
class Feedback:
    """What the captured feedback has told the sender of a space."""

    __slots__ = ("_marked", "assumed_lost", "delivered", "lost", "newest")

    def __init__(self, newest: int) -> None:
        self.newest = newest
        """Newest base so far, as an extended number; at first the number before the first unit."""
        self.delivered = 0
        self.lost = 0
        self.assumed_lost = 0
        """Units that the feedback no longer covered: their sender assumes that they were lost."""
        self._marked: dict[str, int] | None = None

    def counts(self) -> dict[str, int]:
        """Return the figures by name."""
        return {
            "delivered": self.delivered,
            "lost": self.lost,
            "assumed_lost": self.assumed_lost,
        }

    def mark(self) -> None:
        """Save the figures now that the sender may have closed the connection."""
        self._marked = self.counts()

    def revert(self) -> None:
        """Restore the saved figures: later feedback met a closed connection."""
        if self._marked is not None:
            self.delivered = self._marked["delivered"]
            self.lost = self._marked["lost"]
            self.assumed_lost = self._marked["assumed_lost"]


@mypyc_attr(acyclic=True)
class Quality:
    """Compares a running mean of outcomes with the limit at which the sender closes the connection.

    While no outcome in the window is above the limit, the mean cannot be either. Then `calm` is
    True, and for a further outcome that is not above the limit, `remember` is enough.
    """

    __slots__ = (
        "_hot", "_marked", "_outcomes", "_place", "_sum", "above", "broken_ns", "calm", "peak",
        "rule",
    )  # fmt: skip

    def __init__(self, rule: QualityRule) -> None:
        self.rule = rule
        self._outcomes = vec[i64]()
        """The newest outcomes, as many as the rule averages."""
        self._place: i64 = 0
        """Index of the oldest outcome, once the window is full."""
        self.calm = True
        self._hot = 0
        """How many outcomes must follow until the newest one above the limit leaves the window."""
        self._sum = 0
        """Sum of the outcomes; maintained while not calm."""
        self.above = 0
        """For how many outcomes in a row the mean has been above the limit."""
        self.peak = 0
        """The longest such run."""
        self.broken_ns: int | None = None
        """When the run first reached the length at which the sender closes the connection."""
        self._marked: int | None = None

    def remember(self, value: i64) -> i64:
        """Add an outcome to the window; return the one that leaves the window, or 0."""
        outcomes = self._outcomes
        if len(outcomes) < self.rule.window:
            self._outcomes = append(outcomes, value)
            return 0
        place = self._place
        leaving = outcomes[place]
        outcomes[place] = value
        self._place = (place + 1) % len(outcomes)
        return leaving

    def add_outcome(self, value: int, time_ns: int) -> bool:
        """Process an outcome; return True if it breaks the rule for the first time."""
        rule = self.rule
        leaving = self.remember(value)
        outcomes = self._outcomes
        if not self.calm:
            self._sum += value - leaving
        else:
            if value <= rule.limit:
                return False
            # The sum is not maintained while calm, because hardly any connection ever needs it.
            self._sum = sum([int(outcomes[place]) for place in range(len(outcomes))])
        self._hot = rule.window if value > rule.limit else self._hot - 1
        self.calm = self._hot == 0
        # With a fixed divisor, the outcomes that are still to come count as good ones.
        counted: int = rule.window if rule.fixed_divisor else len(outcomes)
        if self._sum <= rule.limit * counted:
            self.above = 0
            return False
        self.above += 1
        self.peak = max(self.peak, self.above)
        if self.above >= rule.run and self.broken_ns is None:
            self.broken_ns = time_ns
            return True
        return False

    def mark(self) -> None:
        """Save the peak, now that the sender has processed all that broke the rule."""
        self._marked = self.peak

    def revert(self) -> None:
        """Restore the saved peak."""
        if self._marked is not None:
            self.peak = self._marked
