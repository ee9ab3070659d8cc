"""The timers of senders, and the delays that retransmissions cause."""

from __future__ import annotations

from typing import Final

from netdissect.model.diagnosis import AddedDelay, LateUnit
from netdissect.model.policy import ResendRule
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


def resend_timers(
    resend: ResendRule, smoothed_ms: float | None, variance_ms: float
) -> tuple[int, int]:
    """Return (timer, guard) in ns of a sender that knows this round trip. The guard is the shortest
    time that it leaves between two transmissions of a unit.
    """
    delay_ms, guard_ms = resend.initial_ms, resend.guard_ms
    if smoothed_ms is not None and resend.rtt_factor:
        delay_ms = resend.rtt_factor * smoothed_ms + resend.rtt_variances * variance_ms
        delay_ms = max(resend.floor_ms, delay_ms)
    if smoothed_ms is not None and resend.guard_rtt_factor:
        guard_ms = resend.guard_rtt_factor * smoothed_ms
    return int(delay_ms * 1_000_000), int(guard_ms * 1_000_000)
