"""Feedback that tells the fate of units once and for all, and the quality rules that feed on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from netdissect.model.policy import QualityRule

__all__ = ["Feedback", "Quality"]

MAX_ASSUMED = 65536
"""Numbers assumed lost at once at most: one turn of a 16-bit counter."""


class Feedback:
    """What the sender of a space was told, as far as the captured feedback says."""

    __slots__ = ("assumed_lost", "delivered", "lost", "newest", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        """Units told by bits before the base."""
        self.newest: int | None = None
        """Newest base so far, extended."""
        self.delivered = 0
        self.lost = 0
        self.assumed_lost = 0

    def told(self, base: int, bits: int, start: int | None) -> Iterator[tuple[int, bool | None]]:
        """Yield (number, delivered) of every unit that this base tells; None = assumed lost.

        Args:
            base: extended number that was received.
            bits: bit i stands for base - 1 - i.
            start: number before the first one, None where the capture starts mid-stream: the first
                base then tells only of itself.

        """
        newest = self.newest
        if newest is None:
            newest = base - 1 if start is None else start
        if base <= newest:
            return
        self.newest = base
        edge = base - self.width
        for number in range(max(newest + 1, edge - MAX_ASSUMED), edge):
            yield number, None
        for number in range(max(newest + 1, edge), base):
            yield number, bool(bits >> (base - 1 - number) & 1)
        yield base, True


class Quality:
    """A running mean of outcomes against the limit at which the sender closes the connection."""

    __slots__ = ("_outcomes", "_sum", "above", "broken_ns", "peak", "rule")

    def __init__(self, rule: QualityRule) -> None:
        self.rule = rule
        self._outcomes: deque[int] = deque(maxlen=rule.window)
        self._sum = 0
        self.above = 0
        """Outcomes in a row above the limit, up to now."""
        self.peak = 0
        """Longest such row."""
        self.broken_ns: int | None = None
        """When the row first reached the rule's length."""

    def outcome(self, value: int, time_ns: int) -> bool:
        """Take one outcome; return True where the rule is broken by it for the first time."""
        outcomes = self._outcomes
        if len(outcomes) == outcomes.maxlen:
            self._sum -= outcomes[0]
        outcomes.append(value)
        self._sum += value
        divisor = self.rule.window if self.rule.fixed_divisor else len(outcomes)
        if self._sum / divisor <= self.rule.limit:
            self.above = 0
            return False
        self.above += 1
        if self.above > self.peak:
            self.peak = self.above
        if self.above >= self.rule.run and self.broken_ns is None:
            self.broken_ns = time_ns
            return True
        return False
