"""The numbers of one space in one direction: which were used, and which were skipped.

`seq` is the extended (unwrapped) number, `wire_seq` the one on the wire. An *epoch* lasts from one
start of the numbers to the next.
"""

from __future__ import annotations

from typing import Final

from netdissect.model.diagnosis import Burst
from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import SpaceRule
from netdissect.track.context import SpaceContext
from netdissect.track.ranges import Recent

MAX_MISSING: Final = 1024
"""Skipped numbers remembered per space, to tell a late first copy from a further copy."""
LEAST_BURST: Final = 2
"""At least this many missing numbers in a row are a burst of losses."""
MAX_LEAPS: Final = 64
"""Runs of missing numbers of a space whose times are remembered: the newest."""
USED: Final = 64
"""Of the newest so many numbers, those that are not units are remembered with their times."""
MAX_BURSTS = 32
"""Bursts kept per space; of more than these, the longest."""
_MIN_MISSING: Final = 3
"""A pause is a silence if at least this many numbers in a row are missing after it, ..."""
_MANY_MISSING: Final = 12
"""... or this many if some may be from before it, or skipped by a busy sender."""


class Numbers:
    """The numbers of one space up to the newest one."""

    __slots__ = (
        "_base", "_before", "_bits", "_context", "_never_before", "bursts", "consecutive",
        "disorder", "ended", "first", "half", "isolated", "leaps", "mask", "missing", "modulus",
        "newest", "other", "other_ns", "out_of_order", "pauses", "reach", "skipped", "used_ns",
    )  # fmt: skip

    def __init__(self, context: SpaceContext) -> None:
        self._context = context
        self.newest: i64 = ABSENT
        self.first: i64 = 0
        """Newest and lowest extended number of the epoch."""
        self._base = 0
        """The first number that was captured in the epoch."""
        self._before = 0
        """Missing numbers below `_base`, if the capture begins in the middle: they may have come
        before it.
        """
        self.missing = Recent()
        """Skipped numbers whose first copy may still come."""
        self.skipped: i64 = 0
        """Numbers used by something that is not a unit."""
        self.other: i64 = ABSENT
        self.other_ns: i64 = 0
        """The newest of those numbers, and when it last came."""
        self.used_ns: list[int] = []
        """Number modulo `USED` -> when such a number last came, 0 = unknown; empty until asked for.
        """
        self.isolated: i64 = 0
        """Units that use another unit's number, or one far from all others."""
        self.out_of_order: i64 = 0
        self.disorder: i64 = 0
        """First copies out of order that only a network can explain."""
        self.leaps: list[tuple[int, int, int]] = []
        """(time, first missing number, number that came) of the newest runs of missing numbers."""
        self.bursts: list[Burst] = []
        """The longest runs of missing numbers."""
        self.pauses: tuple[tuple[int, int, int], ...] = ()
        """(from, to, numbers left out) of the newest pauses of a sender whose numbers come at equal
        steps.
        """
        self._never_before = 0
        """How many numbers the ended epochs span."""
        self.ended: tuple[int, int] | None = None
        """(first, last) number of the ended epochs; None before the first restart."""
        self.obey(context.rule)

    def obey(self, rule: SpaceRule) -> None:
        """Apply the rules of a dialect."""
        self._bits = rule.bits
        self.modulus: i64 = 1 << rule.bits
        self.mask: i64 = self.modulus - 1
        self.half: i64 = self.modulus >> 1
        # If the sender skips numbers freely, a far one is as plausible as any.
        steady = rule.consecutive or rule.stride_reach
        self.reach: i64 = min(rule.reach, self.half) if steady else self.half
        self.consecutive = rule.consecutive

    @property
    def last(self) -> int | None:
        """Return the newest number; None before the first one."""
        return None if self.newest == ABSENT else self.newest

    def newest_or_zero(self) -> i64:
        """Return the newest number; 0 before the first one."""
        return 0 if self.newest == ABSENT else self.newest

    def extend(self, wire_seq: i64) -> i64:
        """Return the extended number closest to the newest one."""
        newest = self.newest
        if newest == ABSENT:
            newest = 0
        ahead = (wire_seq - newest) & self.mask
        if ahead > self.half:
            ahead -= self.modulus
        return newest + ahead

    @property
    def seen(self) -> bool:
        """Return True if the capture has any number of the space."""
        return self.newest != ABSENT or self.ended is not None

    def skipped_start(self, first: int) -> bool:
        """Return True if the capture has no copy of the protocol's first number."""
        return self.last is not None and self.ended is None and self.first > first

    def is_far(self, ahead: i64, last: i64, used: i64) -> bool:
        """Return whether a number `ahead` of the newest one is far from all others; up to `used`
        numbers may have been taken by copies seen since.
        """
        if ahead <= self.half:
            return ahead > self.reach + used
        rule, seq = self._context.rule, last + ahead - self.modulus
        if rule.restarts_at_will and last - seq > rule.stride_reach:
            return True  # The sender may have restarted, with the announcement not in the capture.
        # Within the epoch, so that it is late or a copy, however old.
        if seq >= self.first:
            return False
        first = rule.first_seq
        if self._context.started and self.ended is None and first is not None and seq < first:
            return True
        return seq < self.first - self.reach

    def begin(self, wire_seq: i64) -> i64:
        """Begin an epoch with this number; return the number before it."""
        base = int(wire_seq & self.mask)
        if self.ended is not None:
            # Extended numbers never repeat: a new epoch starts at the next multiple of the modulus.
            base += ((self.ended[1] >> self._bits) + 1) << self._bits
        self.first = self._base = base
        return base - 1

    def extend_back(self, seq: int) -> None:
        """Extend the epoch down to a number below its first one."""
        if self.consecutive:
            self.add_missing(seq + 1, self.first)
            if not self._context.started:
                # The numbers in between were not necessarily lost: they may have come before the
                # capture began.
                self._before += self.first - seq - 1
        self.first = seq

    def add_missing(self, low: int, end: int) -> None:
        """Remember the numbers in [low, end) as missing; of too many, the newest."""
        if low >= end:
            return
        self.missing.add(max(low, end - MAX_MISSING), end)
        self.bound_missing()

    def bound_missing(self) -> None:
        """Forget the older half of the missing numbers if there are too many."""
        if self.missing.size > MAX_MISSING:
            self._context.hit("MAX_MISSING")
            self.missing.keep(MAX_MISSING // 2)

    def leap(self, last: int, seq: int, time_ns: int) -> None:
        """Remember the numbers between `last` and `seq`, which came now, as missing."""
        self.add_missing(last + 1, seq)
        leaps = self.leaps
        leaps.append((time_ns, last + 1, seq))
        if len(leaps) > MAX_LEAPS:
            del leaps[0]

    def use_otherwise(self, seq: i64, time_ns: i64) -> None:
        """Process a newer number that something uses that is not a unit."""
        self.newest = self.other = seq
        self.other_ns = time_ns
        self.skipped += 1
        if self.used_ns:
            self.used_ns[seq & USED - 1] = time_ns

    def used_again(self, seq: i64, time_ns: i64) -> None:
        """Note when one of those numbers came again."""
        if seq == self.other:
            self.other_ns = time_ns
        if self.used_ns:
            self.used_ns[seq & USED - 1] = time_ns

    def since_used(self, seq: i64, time_ns: i64) -> int:
        """Return how long ago one of those numbers last came, in ns; `ABSENT` if it is forgotten.
        From the first call on, this is remembered of the newest `USED` numbers.
        """
        if not self.used_ns:
            self.used_ns = [0] * USED
        used_ns = self.used_ns[seq & USED - 1] if seq > self.newest - USED else 0
        if seq == self.other:
            used_ns = self.other_ns
        return time_ns - used_ns if used_ns else ABSENT

    def other_ns_of(self, seq: i64, unknown_ns: i64) -> i64:
        """Return when the newest of those numbers came if it is `seq`; `unknown_ns` if not."""
        return self.other_ns if seq == self.other else unknown_ns

    def lost(self) -> list[int]:
        """Return when numbers after the newest missing ones came."""
        missing = self.missing
        return [time_ns for time_ns, low, end in self.leaps if missing.touches(low, end)]

    def add_burst(
        self, last: int, seq: int, lost: int, since_ns: int, frame: int, time_ns: int
    ) -> None:
        """Record the run of missing numbers between `last`, which came at `since_ns`, and `seq`, of
        which so many are `lost`.
        """
        bursts = self.bursts
        bursts.append(Burst(lost, since_ns, time_ns, frame, last + 1, seq - 1))
        if len(bursts) > MAX_BURSTS:
            self._context.hit("MAX_BURSTS")
            bursts.remove(min(bursts, key=lambda burst: burst.count))

    def add_pause(self, from_ns: int, to_ns: int, steps: int) -> None:
        """Remember a pause in which numbers at equal steps, so many, were left out."""
        self.pauses = (*self.pauses[1 - MAX_LEAPS :], (from_ns, to_ns, steps))

    def ran_on(self, since_ns: int, until_ns: int) -> bool:
        """Return whether numbers are missing after a pause of a side: it should have been heard."""
        bursts = [(burst.from_ns, burst.to_ns, burst.count) for burst in self.bursts]
        # Numbers that were missing before the last packet say nothing about the pause. If that was
        # not the last number, so many were missing in the pause as is its share of the time.
        return any(
            from_ns == since_ns and until_ns <= to_ns and count >= _MIN_MISSING
            for from_ns, to_ns, count in bursts
        ) or any(
            from_ns <= since_ns < until_ns <= to_ns
            and count * (until_ns - since_ns) >= _MANY_MISSING * (to_ns - from_ns)
            for from_ns, to_ns, count in (*bursts, *self.pauses)
        )

    def arrived_late(self, seq: int) -> None:
        """Note that a missing number has come. If its sender never sends again, the number was
        overtaken, and does not count in its burst; nor does it if a retransmission would have taken
        another number, which is missing then.
        """
        self.missing.discard(seq)
        if seq < self._base and self._before:
            self._before -= 1
        rule = self._context.rule
        counts = rule.resend is None or rule.copies_take_numbers
        for place, burst in enumerate(self.bursts if counts else ()):
            if burst.low <= seq <= burst.high:
                left = burst.count - 1
                self.bursts[place] = Burst(
                    left, burst.from_ns, burst.to_ns, burst.frame, burst.low, burst.high
                )
                return

    def restart(self) -> None:
        """End the epoch: the sender starts its numbers again."""
        self.missing = Recent()
        self.leaps = []
        if self.consecutive:
            self._never_before += self.newest - self.first + 1 - self._before
        self._before = 0
        first = self.ended[0] if self.ended else self.first
        self.ended = (first, self.newest)
        self.newest = self.other = ABSENT

    def span(self) -> tuple[int | None, int | None]:
        """Return (first, last) number over all epochs."""
        last = self.last
        if self.ended is not None:
            return self.ended[0], self.ended[1] if last is None else last
        return None if last is None else self.first, last

    def never_seen(self, units: int) -> int:
        """Return how many numbers up to the newest were not seen, if `units` of them were units."""
        if not self.consecutive:
            return 0
        span = self._never_before
        if self.last is not None:
            span += self.last - self.first + 1 - self._before
        return max(0, span - (units - self.isolated + self.skipped))
