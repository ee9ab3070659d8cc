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
    choices: list[tuple[float, int, int]] = []
    # B less A grows when B's clock is set forward, or A's back.
    for capture, (ordered, at, sign) in enumerate(((by_a, index, -1), (by_b, in_b, 1))):
        # An anchor has the frame of A at 0, of B at 2.
        low = ordered[max(at - _STEP_WINDOW, 0)][2 * capture]
        high = ordered[min(at + _STEP_WINDOW, len(ordered) - 1)][2 * capture]
        for frame, span in jumps[capture]:
            if low < frame <= high:
                choices.append((abs(span - sign * step), capture, frame))
    # A jump holds the ordinary pause before its frame, too: it is never the step exactly.
    if not choices or min(choices)[0] > max(abs(step) / 4, STEP_NS):
        return None
    _, capture, frame = min(choices)
    return capture, frame, step


def fit(anchors: Sequence[Anchor], *, resolution_ns: int) -> ClockPiece | None:
    """Return the clock that explains the anchors of one piece; None where no clock does.

    Args:
        anchors: with their directions.
        resolution_ns: a time may be off by this, because a file keeps microseconds only.

    """
    kept = list(anchors)
    allowed = min(max(1, int(len(kept) * _OUTLIERS)), _MOST_OUTLIERS) if len(kept) >= _FEW else 0
    at_ns = (min(a.a_ns for a in kept) + max(a.a_ns for a in kept)) // 2
    for contradicting in range(allowed + 1):
        lines = _Lines(kept, at_ns)
        slope = lines.best()
        if lines.margin(slope) >= -resolution_ns:
            return lines.piece(slope, resolution_ns, contradicting)
        worst = lines.culprit(slope)
        kept = [anchor for anchor in kept if anchor != worst]
    return None


class _Lines:
    """The points that lines must stay below and above."""

    def __init__(self, anchors: Sequence[Anchor], at_ns: int) -> None:
        self.anchors = anchors
        self.at_ns = at_ns
        # Unrelated clocks may be 10^18 ns apart, more than a float holds to the ns.
        self.base = anchors[0].difference
        points = [(a.a_ns - at_ns, a.difference - self.base, a.toward) for a in anchors]
        self.start = min(x for x, _, _ in points)
        self.end = max(x for x, _, _ in points)
        self.upper = _hull([(x, y) for x, y, toward in points if toward > 0], lower=True)
        self.lower = _hull([(x, y) for x, y, toward in points if toward < 0], lower=False)

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

    def culprit(self, slope: float) -> Anchor:
        """Return the anchor that stands most in the way of a line of this slope: the lowest one
        toward B, or the highest one toward A, whichever is further from its like.
        """
        high = sorted((self._rest(a, slope), a) for a in self.anchors if a.toward > 0)
        low = sorted((-self._rest(a, slope), a) for a in self.anchors if a.toward < 0)
        gaps = [two[1][0] - two[0][0] if len(two) > 1 else 0.0 for two in (high, low)]
        return (high if gaps[0] >= gaps[1] else low)[0][1]

    def _rest(self, anchor: Anchor, slope: float) -> float:
        return anchor.difference - self.base - slope * (anchor.a_ns - self.at_ns)

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
            bound = resolution_ns + max(
                self._reach(low, high, at, middle + slope * at)
                for at in (self.start, 0.0, self.end)
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
            anchors=len(self.anchors),
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


def _hull(points: list[tuple[int, int]], *, lower: bool) -> list[tuple[int, int]]:
    """Return the corners of the lower or the upper hull of points, from left to right.

    Source: Andrew, "Another efficient algorithm for convex hulls in two dimensions" (1979).
    """
    sign = 1 if lower else -1
    corners: list[tuple[int, int]] = []
    for x, y in sorted(points):
        while len(corners) > 1:
            (x1, y1), (x2, y2) = corners[-2], corners[-1]
            if sign * ((x2 - x1) * (y - y1) - (y2 - y1) * (x - x1)) > 0:
                break
            corners.pop()
        corners.append((x, y))
    return corners
