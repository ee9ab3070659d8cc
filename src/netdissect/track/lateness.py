"""How much later than the path allows the units came that were sent more than once."""

from __future__ import annotations

from typing import Final

from netdissect.model.diagnosis import Late, Worst
from netdissect.track.reservoir import RttReservoir

__all__ = ["WORST", "Lateness"]

WORST: Final = 3
"""Units named."""


class Lateness:
    """The waits of one space in one direction."""

    __slots__ = ("_beyond", "_kept", "_late_ns", "_worst", "space")

    def __init__(self, space: str, late_ms: int) -> None:
        """`late_ms`: a unit that comes so much later than the path allows is late for a game."""
        self.space = space
        self._late_ns = late_ms * 1_000_000
        self._kept = RttReservoir()
        self._beyond = 0
        self._worst: list[tuple[int, int, int, int, int]] = []

    def take(self, seq: int, first: tuple[int, int], copies: int, added_ns: int) -> None:
        """Take one unit: number, (frame, time) of its first copy, copies, what it waited."""
        added_ns = max(0, added_ns)
        self._kept.add(added_ns)
        self._beyond += added_ns > self._late_ns
        worst = self._worst
        if len(worst) < WORST or added_ns > worst[-1][0]:
            worst.append((added_ns, seq, first[0], first[1], copies))
            worst.sort(key=lambda item: (-item[0], item[2]))
            del worst[WORST:]

    def summary(self) -> Late:
        """Return the figures of the report."""
        kept = self._kept.summary()
        worst = tuple(
            Worst(self.space, seq, frame, time_ns, added_ns / 1e6, copies)
            for added_ns, seq, frame, time_ns, copies in self._worst
        )
        limit_ms = self._late_ns // 1_000_000
        return Late(kept.samples, kept.p50, kept.p95, kept.maximum, self._beyond, worst, limit_ms)
