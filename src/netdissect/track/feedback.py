"""Feedback that tells the fate of units once and for all, and the quality rules that feed on it."""

from __future__ import annotations

from netdissect.model.native import append, i64, mypyc_attr, vec
from netdissect.model.policy import QualityRule

__all__ = ["Feedback", "Quality"]


@mypyc_attr(acyclic=True)
class Feedback:
    """What the sender of a space was told, as far as the captured feedback says."""

    __slots__ = ("_marked", "assumed_lost", "delivered", "lost", "newest")

    def __init__(self, newest: int) -> None:
        self.newest = newest
        """Newest base so far, extended; at first the number before the first unit."""
        self.delivered = 0
        self.lost = 0
        self.assumed_lost = 0
        """Units older than the feedback's reach: nothing is known about them."""
        self._marked: dict[str, int] | None = None

    def counts(self) -> dict[str, int]:
        """Return the figures by name."""
        return {
            "delivered": self.delivered,
            "lost": self.lost,
            "assumed_lost": self.assumed_lost,
        }

    def mark(self) -> None:
        """Note the figures of now, when the sender may have stopped listening."""
        self._marked = self.counts()

    def revert(self) -> None:
        """Return to the figures marked: what came later met a closed connection."""
        if self._marked is not None:
            self.delivered = self._marked["delivered"]
            self.lost = self._marked["lost"]
            self.assumed_lost = self._marked["assumed_lost"]


@mypyc_attr(acyclic=True)
class Quality:
    """A running mean of outcomes against the limit at which the sender closes the connection.

    While no outcome of the window is above the limit the mean cannot be: then `calm` is True, and
    it is enough to `remember` an outcome that is not above it either.
    """

    __slots__ = (
        "_hot", "_marked", "_outcomes", "_place", "_sum", "above", "broken_ns", "calm", "peak",
        "rule",
    )  # fmt: skip

    def __init__(self, rule: QualityRule) -> None:
        self.rule = rule
        self._outcomes = vec[i64]()
        """The newest outcomes, as many as the rule averages, ..."""
        self._place: i64 = 0
        """... and where the oldest of them stands once there are so many."""
        self.calm = True
        self._hot = 0
        """Outcomes until the newest one above the limit leaves the window."""
        self._sum = 0
        """Sum of the outcomes; kept while not calm."""
        self.above = 0
        """Outcomes in a row above the limit, up to now."""
        self.peak = 0
        """Longest such row."""
        self.broken_ns: int | None = None
        """When the row first reached the rule's length."""
        self._marked: int | None = None

    def remember(self, value: i64) -> i64:
        """Remember an outcome; return the one that leaves the window for it, or 0."""
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
        """Take one outcome; return True where the rule is broken by it for the first time."""
        rule = self.rule
        leaving = self.remember(value)
        outcomes = self._outcomes
        if not self.calm:
            self._sum += value - leaving
        else:
            if value <= rule.limit:
                return False
            self._sum = sum([int(outcomes[place]) for place in range(len(outcomes))])
        self._hot = rule.window if value > rule.limit else self._hot - 1
        self.calm = self._hot == 0
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
        """Note the peak of now, when the sender has taken all that broke the rule."""
        self._marked = self.peak

    def revert(self) -> None:
        """Forget what came after that."""
        if self._marked is not None:
            self.peak = self._marked
