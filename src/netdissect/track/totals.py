"""What spans of one space count, until it is known where the capture was made."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Final

from netdissect.model.native import ABSENT, i64
from netdissect.model.reports import ConnectionEvent, UnitRecord

__all__ = [
    "COUNTS",
    "MAX_SAMPLES",
    "NEVER",
    "SpaceTotals",
    "SpanTotals",
    "by_place",
    "first_of",
    "moment_ns",
]  # fmt: skip

COUNTS = (
    "datagrams",
    "octets",
    "repeated_octets",
    "units",
    "copies",
    "retransmissions",
    "reliable_copies",
    "unacked",
    "lost",
    "decided",
    "rtt_samples",
)
"""What is added where two processes have counted the same span."""
MAX_SAMPLES = 512
"""Round trips kept per span and direction for the median: those of the first units."""
NEVER: Final = (1 << 62) - 1
"""Beyond all frames."""


class SpanTotals:
    """What one span of a space counts, one way or the other: where the capture was made decides
    which, and may be known late.
    """

    __slots__ = (
        "_enough", "arrived", "copies", "decided", "each", "frames", "lost", "retransmissions",
        "samples", "skipped", "times", "unacked", "units",
    )  # fmt: skip

    def __init__(self, skipped: i64 = 0) -> None:
        self.units: i64 = 0
        self.copies: i64 = 0
        self.retransmissions: i64 = 0
        self.unacked: i64 = 0
        self.decided: i64 = 0
        """Units whose fate is known, from elsewhere than next to the receiver."""
        self.lost: i64 = 0
        self.arrived: i64 = skipped
        """Numbers of which it is known whether they came, next to the receiver."""
        self.each: i64 = skipped
        """The same where numbers are skipped in normal operation."""
        self.skipped: i64 = skipped
        """Numbers that did not come there."""
        self.samples: i64 = 0
        self.frames: array[int] | None = None
        self.times: array[float] | None = None
        """See `round_trips`."""
        self._enough: i64 = NEVER

    def took(self, frame: int, rtt_ms: float, units: i64) -> None:
        """Take the round trip of units."""
        self.samples += units
        frames, times = self.frames, self.times
        if frames is None or times is None:
            frames = self.frames = array("q")
            times = self.times = array("d")
        if frame > self._enough:
            return
        for _ in range(units):
            frames.append(frame)
            times.append(rtt_ms)
        if len(frames) > 2 * MAX_SAMPLES:
            first_of(frames, times, MAX_SAMPLES)
            self._enough = frames[-1]

    def round_trips(self) -> Iterator[tuple[int, float]]:
        """Return frames of units, and their round trips in ms: those of the first ones."""
        return zip(self.frames or (), self.times or (), strict=True)

    def add(self, other: SpanTotals) -> None:
        """Add what hangs on where the capture was made."""
        self.decided += other.decided
        self.lost += other.lost
        self.arrived += other.arrived
        self.each += other.each
        self.skipped += other.skipped
        for frame, rtt_ms in other.round_trips():
            self.took(frame, rtt_ms, 1)


class SpaceTotals:
    """The sums of one space in one direction."""

    __slots__ = (
        "_high_ns", "_lately", "_low_ns", "_place_of", "direction", "late", "newest", "repeating",
        "space", "spans", "start",
    )  # fmt: skip

    def __init__(
        self, direction: int, space: str, place_of: Callable[[int], tuple[int, int, int]]
    ) -> None:
        """Take what is summed up, and `Intervals.place_of`."""
        self._place_of = place_of
        self._lately = SpanTotals()
        self._low_ns: i64 = 0
        self._high_ns: i64 = 0
        """The span asked for last, from and to."""
        self.direction = direction
        self.space = space
        self.spans: dict[int, SpanTotals] = {}
        """By number; before the first span is known by -1 - time."""
        self.repeating = False
        """Whether its sender has a timer for what is not acknowledged."""
        self.late: list[UnitRecord] = []
        """Acknowledged units with copies whose kinds hang on where the capture was taken."""
        self.newest: i64 = ABSENT
        self.start: i64 = 0
        """Its newest number, and what that is more than on the wire."""

    def new(self, time_ns: i64, units: i64, arrived: i64) -> None:
        """Count new units; `arrived`: so many numbers more are known to have come."""
        span = self._lately
        if not self._low_ns <= time_ns < self._high_ns:
            span = self.span(time_ns)
        span.units += units
        span.copies += units
        span.each += units
        span.arrived += arrived

    def add_copies(self, time_ns: i64, copies: i64, *, resent: bool) -> None:
        """Count further copies, and whether their sender has made them."""
        span = self.span(time_ns)
        span.copies += copies
        if resent:
            span.retransmissions += copies

    def acked(self, first_ns: i64, frame: int, sample_ns: i64, units: i64) -> None:
        """Count acknowledged units, all sent once."""
        span = self._lately
        if not self._low_ns <= first_ns < self._high_ns:
            span = self.span(first_ns)
        span.decided += units
        span.took(frame, int(sample_ns) / 1e6, units)

    def settled(self, first_ns: i64, frame: int, time_ns: i64, *, ambiguous: bool) -> None:
        """Count an acknowledged unit; an ambiguous one tells no round trip."""
        if ambiguous:
            self.span(first_ns).decided += 1
        else:
            self.acked(first_ns, frame, time_ns - first_ns, 1)

    def arrive(self, seq: i64, wire_seq: i64, units: i64) -> i64:
        """Return of how many numbers more it is known that they came, now that new units did."""
        start = seq - wire_seq
        newest = self.newest
        if newest == ABSENT or (
            start != self.start and seq - newest > (start - self.start) >> 1
        ):
            # Its sender numbers afresh: extended numbers go on at a multiple of all.
            newest = seq - 1
        self.start = start
        last = seq + units - 1
        if last <= newest:
            self.newest = newest
            return 0
        self.newest = last
        return last - newest

    def span(self, time_ns: i64) -> SpanTotals:
        """Return what the span of a time counts."""
        if self._low_ns <= time_ns < self._high_ns:
            return self._lately
        key, self._low_ns, self._high_ns = self._place_of(time_ns)
        span = self.spans.get(key)
        if span is None:
            span = self.spans[key] = SpanTotals()
        self._lately = span
        return span


def first_of(frames: array[int], times: array[float], most: int) -> None:
    """Keep those that were told first."""
    if len(frames) <= most:
        return
    first = sorted(zip(frames, times, strict=True))[:most]
    frames[:] = array("q", [frame for frame, _ in first])
    times[:] = array("d", [rtt_ms for _, rtt_ms in first])


def by_place(record: UnitRecord) -> bool:
    """Return whether a unit has copies whose kinds hang on where the capture was taken."""
    for copy in record.copies:  # noqa: SIM110 - compiled, a loop is cheaper
        if copy.by_place:
            return True
    return False


def moment_ns(item: UnitRecord | ConnectionEvent) -> int:
    """Return when a unit was first seen, or a gap noticed."""
    return item.copies[0].time_ns if isinstance(item, UnitRecord) else item.time_ns
