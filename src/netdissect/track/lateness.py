"""The timers of senders, and the delays that retransmissions cause."""

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
        self._worst: list[tuple[int, int, int, int, int]] = []

    def take(self, seq: int, first: tuple[int, int], copies: int, added_ns: int) -> None:
        """Add a unit: its number, (frame, time) of its first copy, its copies, its delay in ns."""
        added_ns = max(0, added_ns)
        self._kept.add(added_ns)
        self._beyond += added_ns > self._late_ns
        worst = self._worst
        if len(worst) < WORST or added_ns > worst[-1][0]:
            worst.append((added_ns, seq, first[0], first[1], copies))
            worst.sort(key=lambda item: (-item[0], item[2]))
            del worst[WORST:]

    def summary(self) -> AddedDelay:
        """Return the figures for the report."""
        kept = self._kept.summary()
        worst = tuple(
            LateUnit(self.space, seq, frame, time_ns, added_ns / 1e6, copies)
            for added_ns, seq, frame, time_ns, copies in self._worst
        )
        limit_ms = self._late_ns // 1_000_000
        return AddedDelay(
            kept.samples, kept.p50, kept.p95, kept.maximum, self._beyond, worst, limit_ms
        )
