"""The totals of one space per span of time, until the vantage is known."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Final

from netdissect.model.native import ABSENT, i64
from netdissect.model.reports import ConnectionEvent, UnitRecord

COUNTS = (
    "datagrams", "octets", "repeated_octets", "units", "copies", "retransmissions",
    "reliable_copies", "unacked", "lost", "decided", "rtt_samples",
)  # fmt: skip
"""The counts of a span that are added up over processes."""
MAX_SAMPLES = 512
"""Round trips kept per span and direction for the median: those of the first units."""
NEVER: Final = (1 << 62) - 1
"""A number above all frames."""


class SpanTotals:
    """The counts of one span of a space, in both ways between which the vantage decides."""

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
        """Units with a known outcome, away from the receiver."""
        self.lost: i64 = 0
        self.arrived: i64 = skipped
        """Numbers known to have arrived or not, next to the receiver."""
        self.each: i64 = skipped
        """The same if the sender skips numbers in normal operation."""
        self.skipped: i64 = skipped
        """Numbers that did not arrive, next to the receiver."""
        self.samples: i64 = 0
        self.frames: array[int] | None = None
        self.times: array[float] | None = None
        """See `round_trips`."""
        self._enough: i64 = NEVER

    def took(self, frame: int, rtt_ms: float, units: i64) -> None:
        """Add the round trip of units."""
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
            # Frames are not in order, but no later one than the last kept one can be among the
            # first.
            self._enough = frames[-1]

    def round_trips(self) -> Iterator[tuple[int, float]]:
        """Return (frame, round trip in ms) of the first units."""
        return zip(self.frames or (), self.times or (), strict=True)

    def add(self, other: SpanTotals) -> None:
        """Add the counts that depend on the vantage."""
        self.decided += other.decided
        self.lost += other.lost
        self.arrived += other.arrived
        self.each += other.each
        self.skipped += other.skipped
        for frame, rtt_ms in other.round_trips():
            self.took(frame, rtt_ms, 1)


class SpaceTotals:
    """The totals of one space in one direction."""

    __slots__ = (
        "_high_ns", "_lately", "_low_ns", "_place_of", "direction", "late", "newest", "repeating",
        "space", "spans", "start",
    )  # fmt: skip

    def __init__(
        self, direction: int, space: str, place_of: Callable[[int], tuple[int, int, int]]
    ) -> None:
        """Create totals; `place_of` is that of `Intervals`."""
        self._place_of = place_of
        self._lately = SpanTotals()
        self._low_ns: i64 = 0
        self._high_ns: i64 = 0
        """The times between which the span used last is valid."""
        self.direction = direction
        self.space = space
        self.spans: dict[int, SpanTotals] = {}
        """Number of the span (or -1 - time, before the first span is known) -> counts."""
        self.repeating = False
        """Whether its sender has a resend timer."""
        self.late: list[UnitRecord] = []
        """Acknowledged units that are `undecided`."""
        self.newest: i64 = ABSENT
        self.start: i64 = 0
        """The difference between the newest number and the number on the wire."""

    def new(self, time_ns: i64, units: i64, arrived: i64) -> None:
        """Count new units; `arrived` more numbers are known to have arrived or not."""
        span = self._lately
        if not self._low_ns <= time_ns < self._high_ns:
            span = self.span(time_ns)
        span.units += units
        span.copies += units
        span.each += units
        span.arrived += arrived

    def add_copies(self, time_ns: i64, copies: i64, *, resent: bool) -> None:
        """Count further copies; `resent`: their sender has made them."""
        span = self.span(time_ns)
        span.copies += copies
        if resent:
            span.retransmissions += copies

    def acked(self, first_ns: i64, frame: int, sample_ns: i64, units: i64) -> None:
        """Count acknowledged units that were sent once."""
        span = self._lately
        if not self._low_ns <= first_ns < self._high_ns:
            span = self.span(first_ns)
        span.decided += units
        span.took(frame, int(sample_ns) / 1e6, units)

    def settled(self, first_ns: i64, frame: int, time_ns: i64, *, ambiguous: bool) -> None:
        """Count an acknowledged unit; an ambiguous one gives no round trip."""
        if ambiguous:
            self.span(first_ns).decided += 1
        else:
            self.acked(first_ns, frame, time_ns - first_ns, 1)

    def arrive(self, seq: i64, wire_seq: i64, units: i64) -> i64:
        """Return how many more numbers are known to have arrived or not, now that units have."""
        start = seq - wire_seq
        newest = self.newest
        if newest == ABSENT or (
            start != self.start and seq - newest > (start - self.start) >> 1
        ):
            # The sender has restarted: extended numbers go on at the next multiple.
            newest = seq - 1
        self.start = start
        last = seq + units - 1
        if last <= newest:
            self.newest = newest
            return 0
        self.newest = last
        return last - newest

    def span(self, time_ns: i64) -> SpanTotals:
        """Return the counts of the span at a time."""
        if self._low_ns <= time_ns < self._high_ns:
            return self._lately
        key, self._low_ns, self._high_ns = self._place_of(time_ns)
        span = self.spans.get(key)
        if span is None:
            span = self.spans[key] = SpanTotals()
        self._lately = span
        return span


def first_of(frames: array[int], times: array[float], most: int) -> None:
    """Drop all but the first `most` round trips."""
    if len(frames) <= most:
        return
    first = sorted(zip(frames, times, strict=True))[:most]
    frames[:] = array("q", [frame for frame, _ in first])
    times[:] = array("d", [rtt_ms for _, rtt_ms in first])


def undecided(record: UnitRecord) -> bool:
    """Return whether a unit has copies whose kinds depend on the vantage or the next number."""
    for copy in record.copies:  # noqa: SIM110 - compiled, a loop is cheaper
        if copy.by_place or copy.doubtful:
            return True
    return False


def moment_ns(item: UnitRecord | ConnectionEvent) -> int:
    """Return the time of a unit's first copy, or of a gap."""
    return item.copies[0].time_ns if isinstance(item, UnitRecord) else item.time_ns
