"""Compares the copies of a direction with the timer of their sender, and finds those that only the
network can have made.

A sender that works with a known timer sends a unit again no sooner than that timer expires; a copy
comes too soon only if the network delayed the one before it by the difference. How much the delays
differ shows in the copies that came in time, or nearly so. If other copies came too soon by far
more than that, and none came in between, both kinds do not have the same maker: the early ones are
the network's.
"""

from __future__ import annotations

from typing import Final

from netdissect.model.native import i64
from netdissect.track.context import RELEASED_NS, SpaceContext
from netdissect.track.numbers import Numbers

MAX_SHORTFALLS: Final = 256
"""Copies per space that show by how much copies come too soon."""
MAX_ANCHORS = 256
"""Units per space of which the newest copy that came in time is remembered."""
NEARLY: Final = 5
"""A copy is still in time if it came at most 1/5 of the timer too soon."""
MIN_SPREAD_NS: Final = 25_000_000
"""Delays may differ by this much, in ns, even if no copy has shown it: networks hold some datagrams
back for tens of milliseconds, and programs look at their timers only now and then.
"""
SPREADS: Final = 2
"""Copies came too soon by far more than others if it is twice as much."""
BETWEEN: Final = -1
"""A copy came too soon, but its sender may have made it all the same."""
HASTY: Final = -2
"""The same, and it came so much too soon (2/5 of the timer) that the network may as well have made
it.
"""
STRAGGLERS: Final = 10
"""For each copy in between there must be at least this many that came far too soon."""
CROWD: Final = 3
"""At least this many numbers that came since show how much the sender of a copy did meanwhile."""
CROWD_SHARE: Final = 3
"""They show that its timer may have expired if they are 1/3 of what it sends in that time."""


class Schedule:
    """What is known of the copies of one space whose sender's timer is known."""

    __slots__ = (
        "_anchors", "_begin", "_begin_ns", "_between", "_newest_ns", "_shortfalls", "_spread_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self._anchors: dict[int, int] = {}
        """Number -> time of its newest copy that came in time, if others have come since."""
        self._shortfalls: list[int] = []
        """By how much the copies came too soon that are below the sender's shortest wait, in ns."""
        self._between = 0
        """Copies that came too soon, but not below the sender's shortest wait."""
        self._spread_ns: i64 = 0
        """The most that a copy came too soon that counts as in time."""
        self._newest_ns: i64 = 0
        """When the newest of the copies came that `_shortfalls` lists."""
        self._begin = 0
        """The newest number when the first copy came before its sender's timer."""
        self._begin_ns = 0
        """When that was, 0 = never."""

    def shortfall(self, context: SpaceContext, seq: int, gap_ns: int, time_ns: int) -> int:
        """Process a further copy that came `gap_ns` after the one before it; return by how much it
        came too soon after the newest one that came in time, in ns: 0 if it came in time itself,
        `BETWEEN` or `HASTY` if it came too soon, but not below the sender's shortest wait.
        """
        timer_ns = context.least_timer_ns
        before_ns = self._anchors.get(seq, time_ns - gap_ns)
        since_ns = time_ns - before_ns
        short_ns = timer_ns - since_ns
        if NEARLY * short_ns <= timer_ns:
            self._anchors.pop(seq, None)
            if context.stated:
                self._spread_ns = max(int(self._spread_ns), short_ns)
            return 0
        self._anchors[seq] = before_ns
        if len(self._anchors) > MAX_ANCHORS:
            context.hit("MAX_ANCHORS")
            del self._anchors[next(iter(self._anchors))]
        if since_ns >= context.far_guard_ns:
            self._between += context.stated
            return BETWEEN if NEARLY * short_ns <= SPREADS * timer_ns else HASTY
        # Many at a time are no network copies: these come now and then.
        if context.stated and time_ns - self._newest_ns >= RELEASED_NS:
            self._newest_ns = time_ns
            if len(self._shortfalls) < MAX_SHORTFALLS:
                self._shortfalls.append(short_ns)
        return short_ns

    def crowded(self, context: SpaceContext, numbers: Numbers, seq: int, time_ns: int) -> bool:
        """Return whether so many numbers came since the first copy of `seq` that its sender may
        have waited for its timer meanwhile. A network that held datagrams back lets them go all at
        once, so that the time between them tells nothing.
        """
        newest = int(numbers.newest)
        if not self._begin_ns:
            self._begin, self._begin_ns = newest, time_ns
        passed, usual = newest - seq, newest - self._begin
        timer_ns = context.least_timer_ns or context.far_delay_ns
        waited = CROWD_SHARE * passed * (time_ns - self._begin_ns) >= usual * timer_ns > 0
        return passed >= CROWD and waited

    def apart_ns(self) -> int:
        """Return by how much copies came too soon that only the network can have made, in ns; 0 if
        the others do not stand apart from them.
        """
        least_ns = SPREADS * max(int(self._spread_ns), MIN_SPREAD_NS)
        far = sum([short_ns >= least_ns for short_ns in self._shortfalls])
        between = self._between + len(self._shortfalls) - far
        return least_ns if far and STRAGGLERS * between <= far else 0
