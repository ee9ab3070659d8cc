"""How the clocks of two captures relate: offset, drift and steps, each with its bound.

What travels from A to B arrives after it was sent: its difference of times (B less A) is the offset
plus a delay. What travels from B to A gives the offset less a delay. So the offset lies, at every
moment, above all differences of the one kind and below all of the other. The clock between them is
the line that keeps the greatest distance from both; that distance, half the sum of the least
delays, is how far it can be off.

Source: Moon, Skelly and Towsley, "Estimation and removal of clock skew from network delay
measurements" (INFOCOM 1999), with both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["MAX_DRIFT_PPM", "Anchor", "Clock", "ClockPiece", "Step", "find_steps", "fit"]

MAX_DRIFT_PPM: Final = 500.0
"""Clocks of computers drift apart by less than this. Source: RFC 5905 section 11.3 (500 ppm)."""
STEP_NS: Final = 250_000_000
"""A clock that is set by less than this is not told from a change of the delays."""
_STEP_WINDOW: Final = 6
"""Anchors on each side of a place that must agree on a step."""
_OUTLIERS: Final = 0.02
"""Share of the anchors that may contradict a clock: equal payloads that are not one datagram."""
_MOST_OUTLIERS: Final = 32
_FEW: Final = 6
"""Of fewer anchors none is left out: there is no majority."""
_ROUNDS: Final = 60
"""Halvings of the slope's interval; the last is far below a part in 10^12."""
_ALMOST: Final = 0.9
"""A clock without drift is believed where it keeps this much of the best line's distance."""


class Anchor(NamedTuple):
    """One datagram that both captures saw, beyond doubt."""

    frame_a: int
    a_ns: int
    frame_b: int
    b_ns: int
    flow_a: int
    flow_b: int
    toward: int
    """+1: from A to B; -1: from B to A; 0: not known yet."""

    @property
    def difference(self) -> int:
        """Return the time in B less the time in A, ns."""
        return self.b_ns - self.a_ns


@dataclass(frozen=True, slots=True)
class ClockPiece:
    """The relation of the clocks between two steps."""

    at_ns: int
    """Time in A around which the line is drawn."""
    offset_ns: float
    """Clock of B less clock of A at that time."""
    drift: float
    """Growth of the offset per time in A; 1e-6 is one part in a million."""
    bound_ns: float | None
    """The offset is off by no more than this, anywhere in the piece; None where only one direction
    was seen, and nothing bounds it."""
    drift_bound: float
    """The same of the drift."""
    least_ns: tuple[float | None, float | None]
    """Least delay from A to B and from B to A by this clock."""
    anchors: int
    contradicting: int
    """Anchors that no such clock explains."""

    def offset(self, a_ns: int) -> float:
        """Return the offset at a time in A, ns."""
        return self.offset_ns + self.drift * (a_ns - self.at_ns)

    def common(self, b_ns: int) -> int:
        """Return what A's clock showed at a time in B."""
        if not self.drift:
            return b_ns - round(self.offset_ns)
        # Differences first: a float does not hold the ns since 1970.
        since = b_ns - self.at_ns - self.offset_ns
        return self.at_ns + round(since / (1 + self.drift))


Step = tuple[int, int]
"""(first frame after it, ns by which a clock was set)."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Takes the times of both captures to one scale: A's clock as it first was."""

    pieces: tuple[ClockPiece, ...]
    """In order of time; between steps of either clock the relation is one line."""
    starts_ns: tuple[int, ...] = ()
    """Common time from which each piece after the first counts."""
    steps: tuple[tuple[Step, ...], tuple[Step, ...]] = ((), ())
    """Steps of A's and of B's clock, in order of frames. Roughly: the pieces have the rest."""

    def unset(self, capture: int, frame: int, time_ns: int) -> int:
        """Return a time of a capture without the steps of its clock."""
        for first, span in self.steps[capture]:
            if frame >= first:
                time_ns -= span
        return time_ns

    def common(self, capture: int, frame: int, time_ns: int) -> int:
        """Return the common time of a frame of A (capture 0) or B (1)."""
        if self.steps[capture]:
            time_ns = self.unset(capture, frame, time_ns)
        return self.later(time_ns) if capture else time_ns

    def behind(self, capture: int) -> int | None:
        """Return what all times of a capture are more than common ones; None where that changes."""
        if self.steps[capture] or (capture and (self.starts_ns or self.pieces[0].drift)):
            return None
        return round(self.pieces[0].offset_ns) if capture else 0

    def later(self, time_ns: int) -> int:
        """Return the common time of a time of B without its steps."""
        common = self.pieces[0].common(time_ns)
        if not self.starts_ns:
            return common
        # In common time a piece's start is known only by the piece before it: so they are tried in
        # turn.
        for start, later in zip(self.starts_ns, self.pieces[1:], strict=True):
            if common < start:
                break
            common = later.common(time_ns)
        return common

    def aligned(self, anchor: Anchor) -> Anchor:
        """Return an anchor without the steps."""
        return anchor._replace(
            a_ns=self.unset(0, anchor.frame_a, anchor.a_ns),
            b_ns=self.unset(1, anchor.frame_b, anchor.b_ns),
        )


def find_steps(
    anchors: Sequence[Anchor],
    jumps: tuple[Sequence[tuple[int, int]], Sequence[tuple[int, int]]],
) -> list[tuple[int, int, int]]:
    """Return where a clock was set: (capture, first frame after it, ns by which B less A grew).

    Args:
        anchors: what both saw, in order of A's frames.
        jumps: of each capture (frame, time since the frame before) where its clock may have been
            set.

    """
    by_a = sorted(anchors)
    # Jumps are named by frames of their own capture; overtaking gives B another order than A.
    by_b = sorted(anchors, key=lambda anchor: anchor.frame_b)
    changes = _changes([anchor.difference for anchor in by_a])
    places = [_placed(by_a, by_b, index, step, jumps) for index, step in changes]
    return [place for place in places if place is not None]


def _changes(differences: list[int]) -> list[tuple[int, int]]:
    """Return (index of the first difference after it, height) of each lasting change."""
    width = _STEP_WINDOW
    found: list[tuple[int, int]] = []
    index, last = width, len(differences) - width
    while index <= last:
        before, after = _middles(differences, index)
        if abs(after - before) > STEP_NS:
            # The medians begin to move before the step itself: it is where they move most.
            for further in range(index + 1, min(index + width, last) + 1):
                earlier, later = _middles(differences, further)
                if abs(later - earlier) > abs(after - before):
                    index, before, after = further, earlier, later
            best = _sharpest(differences, index - width, index + width, before, after)
            found.append((best, after - before))
            # Windows that still touch this step would find it again.
            index = best + width
        index += 1
    return found


def _middles(differences: list[int], index: int) -> tuple[int, int]:
    """Return the lower middle of the differences before an index, and of those from it on."""
    middle = (_STEP_WINDOW - 1) // 2
    before = sorted(differences[index - _STEP_WINDOW : index])
    after = sorted(differences[index : index + _STEP_WINDOW])
    return before[middle], after[middle]


def _sharpest(differences: list[int], start: int, end: int, before: int, after: int) -> int:
    """Return the index that parts best what is nearer to the one from what is nearer to the
    other.
    """
    middle = (before + after) / 2
    rising = after > before
    wrong = sum((value > middle) != rising for value in differences[start:end])
    best, least = start, wrong
    for index in range(start, end):
        wrong += 1 if (differences[index] > middle) == rising else -1
        if wrong < least:
            best, least = index + 1, wrong
    return best


def _placed(
    by_a: list[Anchor],
    by_b: list[Anchor],
    index: int,
    step: int,
    jumps: tuple[Sequence[tuple[int, int]], Sequence[tuple[int, int]]],
) -> tuple[int, int, int] | None:
    """Return which clock was set, and the first frame after that: there, the time of that capture
    jumps by the step. None where none jumps: no clock was set.
    """
    place = by_a[index]
    in_b = by_b.index(place)
    choices: list[tuple[bool, int, int, int, int]] = []
    # B less A grows when B's clock is set forward, or A's back.
    for capture, (ordered, at, sign) in enumerate(((by_a, index, -1), (by_b, in_b, 1))):
        # An anchor has the frame of A at 0, of B at 2.
        low = ordered[max(at - _STEP_WINDOW, 0)][2 * capture]
        high = ordered[min(at + _STEP_WINDOW, len(ordered) - 1)][2 * capture]
        # A jump holds the ordinary pause before its frame, too: it is never the step exactly. The
        # other clock went on meanwhile, and tells how long a pause there was room for.
        pause = abs(ordered[at][3 - 2 * capture] - ordered[max(at - 1, 0)][3 - 2 * capture])
        for frame, span in jumps[capture]:
            if low < frame <= high:
                rest = span - sign * step
                # No pause is shorter than nothing.
                choices.append((rest < -STEP_NS, abs(rest), pause, capture, frame))
    if not choices:
        return None
    _, off, pause, capture, frame = min(choices)
    if off > max(abs(step) // 4, STEP_NS, pause + STEP_NS):
        return None
    return capture, frame, step


def fit(anchors: Sequence[Anchor], *, resolution_ns: int) -> ClockPiece | None:
    """Return the clock that explains the anchors of one piece; None where no clock does.

    Args:
        anchors: with their directions.
        resolution_ns: a time may be off by this, because a file keeps microseconds only.

    """
    allowed = 0
    if len(anchors) >= _FEW:
        allowed = min(max(1, int(len(anchors) * _OUTLIERS)), _MOST_OUTLIERS)
    lines = _Lines(anchors)
    for contradicting in range(allowed + 1):
        slope = lines.best()
        if lines.margin(slope) >= -resolution_ns:
            return lines.piece(slope, resolution_ns, contradicting)
        lines.leave_out(slope)
    return None


class _Lines:
    """The points that lines must stay below and above."""

    def __init__(self, anchors: Sequence[Anchor]) -> None:
        times = [anchor.a_ns for anchor in anchors]
        self.at_ns = at_ns = (min(times) + max(times)) // 2
        # Unrelated clocks may be 10^18 ns apart, more than a float holds to the ns.
        self.base = base = anchors[0].difference
        self.high = sorted([(a.a_ns - at_ns, a.difference - base) for a in anchors if a.toward > 0])
        self.low = sorted([(a.a_ns - at_ns, a.difference - base) for a in anchors if a.toward < 0])
        self.upper = _hull(self.high, lower=True)
        self.lower = _hull(self.low, lower=False)

    def ceiling(self, slope: float, at: float = 0.0) -> float:
        """Return the highest offset at a time that a line of this slope may have."""
        if not self.upper:
            return float("inf")
        return min(y - slope * x for x, y in self.upper) + slope * at

    def floor(self, slope: float, at: float = 0.0) -> float:
        """Return the lowest."""
        if not self.lower:
            return float("-inf")
        return max(y - slope * x for x, y in self.lower) + slope * at

    def margin(self, slope: float) -> float:
        """Return how far a line of this slope stays from the points of both kinds."""
        return (self.ceiling(slope) - self.floor(slope)) / 2

    def best(self) -> float:
        """Return the slope of the line that stays furthest from all points."""
        limit = MAX_DRIFT_PPM * 1e-6
        # Of one direction alone, delays that grow look like drift: none is claimed.
        if not (self.upper and self.lower):
            return 0.0
        slope = _peak(self.margin, -limit, limit)
        return 0.0 if self.margin(0.0) >= _ALMOST * self.margin(slope) else slope

    def leave_out(self, slope: float) -> None:
        """Leave out the point that stands most in the way of a line of this slope: the lowest one
        toward B, or the highest one toward A, whichever is further from its like.
        """
        high, above = _lowest(self.high, slope, 1)
        low, below = _lowest(self.low, slope, -1)
        # A hull is made anew from what is in order: to sort thousands of points costs far more.
        if high is not None and (low is None or above >= below):
            self.high.remove(high)
            self.upper = _hull(self.high, lower=True)
        elif low is not None:
            self.low.remove(low)
            self.lower = _hull(self.low, lower=False)

    def piece(self, slope: float, resolution_ns: int, contradicting: int) -> ClockPiece:
        """Return the line of this slope in the middle, and how far it can be off."""
        two_sided = bool(self.upper and self.lower)
        if two_sided:
            middle = (self.ceiling(slope) + self.floor(slope)) / 2
        else:
            # One way only: its least delay counts as none.
            middle = self.ceiling(slope) if self.upper else self.floor(slope)
        low, high = self._slopes(slope)
        bound = None
        if two_sided:
            start = min(self.high[0][0], self.low[0][0])
            end = max(self.high[-1][0], self.low[-1][0])
            bound = resolution_ns + max(
                self._reach(low, high, at, middle + slope * at) for at in (start, 0.0, end)
            )
        return ClockPiece(
            at_ns=self.at_ns,
            offset_ns=self.base + middle,
            drift=slope,
            bound_ns=bound,
            drift_bound=max(high - slope, slope - low),
            least_ns=(
                self.ceiling(slope) - middle if self.upper else None,
                middle - self.floor(slope) if self.lower else None,
            ),
            anchors=len(self.high) + len(self.low),
            contradicting=contradicting,
        )

    def _slopes(self, slope: float) -> tuple[float, float]:
        """Return the least and the greatest slope that some line may have."""
        limit = MAX_DRIFT_PPM * 1e-6
        if not (self.upper and self.lower):
            return -limit, limit
        found = []
        for end in (-limit, limit):
            inside, outside = slope, end
            if self.margin(end) >= 0:
                found.append(end)
                continue
            for _ in range(_ROUNDS):
                middle = (inside + outside) / 2
                if self.margin(middle) >= 0:
                    inside = middle
                else:
                    outside = middle
            found.append(inside)
        return found[0], found[1]

    def _reach(self, low: float, high: float, at: float, value: float) -> float:
        """Return how far above or below `value` the offset at a time may lie."""
        top = self.ceiling(_peak(lambda s: self.ceiling(s, at), low, high), at)
        bottom = self.floor(_peak(lambda s: -self.floor(s, at), low, high), at)
        return max(top - value, value - bottom)


def _peak(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function with one peak is greatest between two numbers."""
    for _ in range(_ROUNDS):
        third = (high - low) / 3
        left, right = low + third, high - third
        if function(left) < function(right):
            low = left
        else:
            high = right
    return (low + high) / 2


def _lowest(
    points: list[tuple[int, int]], slope: float, sign: int
) -> tuple[tuple[int, int] | None, float]:
    """Return the point that is lowest above a line of this slope (highest: sign -1), and how far
    the next one is from it; None where there is none, 0 where there is no other.
    """
    found: tuple[int, int] | None = None
    least = second = float("inf")
    for point in points:
        rest = sign * (point[1] - slope * point[0])
        if rest < least:
            found, least, second = point, rest, least
        elif rest < second:
            second = rest
    return found, second - least if second < float("inf") else 0.0


def _hull(points: list[tuple[int, int]], *, lower: bool) -> list[tuple[int, int]]:
    """Return the corners of the lower or the upper hull of points in order, from left to right.

    Source: Andrew, "Another efficient algorithm for convex hulls in two dimensions" (1979).
    """
    sign = 1 if lower else -1
    corners: list[tuple[int, int]] = []
    for x, y in points:
        while len(corners) > 1:
            (x1, y1), (x2, y2) = corners[-2], corners[-1]
            if sign * ((x2 - x1) * (y - y1) - (y2 - y1) * (x - x1)) > 0:
                break
            corners.pop()
        corners.append((x, y))
    return corners
