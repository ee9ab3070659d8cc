"""The delays that retransmissions cause."""

from __future__ import annotations

from typing import Final

from netdissect.model.diagnosis import AddedDelay, LateUnit
from netdissect.track.reservoir import RttReservoir

WORST: Final = 3
"""The report names this many units with the longest delays."""


class Lateness:
    """The delays of retransmitted units of one space in one direction."""

    __slots__ = ("_beyond", "_kept", "_late_ns", "_worst", "space")

    def __init__(self, space: str, late_ms: int) -> None:
        """Create statistics; a delay of more than `late_ms` milliseconds is late for a game."""
        self.space = space
        self._late_ns = late_ms * 1_000_000
        self._kept = RttReservoir()
        self._beyond = 0
        self._worst: list[LateUnit] = []

    def take(self, seq: int, first: tuple[int, int], copies: int, added_ns: int) -> None:
        """Add a unit: its number, (frame, time) of its first copy, its copies, its delay in ns."""
        added_ns = max(0, added_ns)
        self._kept.add(added_ns)
        self._beyond += added_ns > self._late_ns
        worst, added_ms = self._worst, added_ns / 1e6
        if len(worst) < WORST or added_ms > worst[-1].added_ms:
            worst.append(LateUnit(self.space, seq, *first, added_ms, copies))
            worst.sort(key=lambda unit: (-unit.added_ms, unit.frame))
            del worst[WORST:]

    def summary(self) -> AddedDelay:
        """Return the figures for the report."""
        kept = self._kept.summary()
        limit_ms = self._late_ns // 1_000_000
        return AddedDelay(
            kept.samples, kept.p50, kept.p95, kept.maximum, self._beyond, tuple(self._worst),
            limit_ms,
        )
