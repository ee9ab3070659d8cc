"""The relation of two captures' clocks: offset, drift and steps, each with its error bound.

Method. For a datagram that both captures hold, take its timestamp in B minus its timestamp in A. A
datagram that travels from A to B arrives after it was sent, so its difference is the clock offset
plus its delay. For one that travels from B to A the difference is the offset minus its delay.
Plotted over time, the offset is therefore a line below every point of the first kind and above
every point of the second. Only the lower convex hull of the upper points and the upper hull of the
lower points can touch such a line. The line fitted here is the one furthest from both hulls. Its
distance to them, half the sum of the least delays of both directions, bounds its error.

A clock that was set while a capture ran makes all differences jump. Such steps are found first, and
one line is fitted between each two of them.

Source: Moon, Skelly and Towsley, "Estimation and removal of clock skew from network delay
measurements" (INFOCOM 1999), extended to both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

MAX_DRIFT_PPM: Final = 500.0
"""The greatest drift between two computers' clocks that is considered.

Source: RFC 5905 section 11.3 (500 ppm).
"""
STEP_NS: Final = 250_000_000
"""A smaller step of a clock cannot be told from a change of the delays."""
STEP_WINDOW: Final = 6
"""Anchors on each side of a step whose medians are compared."""
FLOW_WINDOWS: Final = 8
"""Anchors of each flow are looked for in this many windows on each side of a step."""
_MAX_OUTLIER_SHARE: Final = 0.02
"""Share of the anchors that may contradict a clock: equal payloads that are not the same
datagram."""
_MAX_OUTLIERS: Final = 32
_MIN_FOR_OUTLIERS: Final = 6
"""With fewer anchors none is discarded: there is no majority."""
_ITERATIONS: Final = 60
"""Iterations of a search over slopes; the last interval is far narrower than 1e-12."""
_ZERO_DRIFT_MARGIN: Final = 0.9
"""Zero drift is preferred if it keeps this share of the best line's distance from the points."""


class Anchor(NamedTuple):
    """A datagram that both captures certainly hold."""

    frame_a: int
    a_ns: int
    frame_b: int
    b_ns: int
    flow_a: int
    flow_b: int
    toward: int
    """+1: it travels from A to B; -1: from B to A; 0: not known yet."""

    @property
    def difference(self) -> int:
        """Return the timestamp in B minus the timestamp in A, ns."""
        return self.b_ns - self.a_ns


@dataclass(frozen=True, slots=True)
class ClockPiece:
    """The relation of both clocks between two steps: a line over A's time."""

    at_ns: int
    """Time in A at which `offset_ns` applies."""
    offset_ns: float
    """Clock of B minus clock of A at that time."""
    drift: float
    """Slope of the offset: 1e-6 is one part per million."""
    bound_ns: float | None
    """Greatest error of the offset anywhere in the piece; None where only one direction was seen,
    so that nothing bounds it."""
    drift_bound: float
    """Greatest error of the drift."""
    least_ns: tuple[float | None, float | None]
    """Least delay from A to B and from B to A by this clock."""
    anchors: int
    contradicting: int
    """Anchors that were discarded because no clock explains them."""
    whole_ns: int = field(init=False)
    """`offset_ns`, rounded."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "whole_ns", round(self.offset_ns))

    def with_delays_of(self, other: ClockPiece) -> ClockPiece:
        """Return this piece, of one direction, with the least delay of another, seen from both."""
        going, coming = other.least_ns
        by = -(going or 0.0) if self.least_ns[0] is not None else coming or 0.0
        return replace(self, offset_ns=self.offset_ns + by, least_ns=other.least_ns)

    def offset(self, a_ns: int) -> float:
        """Return the offset at a time in A, ns."""
        return self.offset_ns + self.drift * (a_ns - self.at_ns)

    def common(self, b_ns: int) -> int:
        """Return what A's clock showed at a time in B."""
        if not self.drift:
            return b_ns - self.whole_ns
        # Subtract first: a float cannot hold the ns since 1970.
        since = b_ns - self.at_ns - self.offset_ns
        return self.at_ns + round(since / (1 + self.drift))


Step = tuple[int, int]
"""(first frame after the step, ns by which the clock was set)."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Converts the timestamps of both captures to the common time: A's clock before any step."""

    pieces: tuple[ClockPiece, ...]
    """In order of time."""
    starts_ns: tuple[int, ...] = ()
    """Common time at which each piece but the first begins."""
    steps: tuple[tuple[Step, ...], tuple[Step, ...]] = ((), ())
    """Steps of A's and of B's clock, in order of frames. They are approximate: the pieces hold the
    remainder."""

    def without_steps(self, capture: int, frame: int, time_ns: int) -> int:
        """Return what a capture's timestamp would be if its clock had never been set."""
        for first, span in self.steps[capture]:
            if frame >= first:
                time_ns -= span
        return time_ns

    def common(self, capture: int, frame: int, time_ns: int) -> int:
        """Return the common time of a frame of A (capture 0) or B (1)."""
        if self.steps[capture]:
            time_ns = self.without_steps(capture, frame, time_ns)
        return self.common_of_b(time_ns) if capture else time_ns

    def constant_offset(self, capture: int) -> int | None:
        """Return a capture's time minus the common time, ns; None if that difference changes."""
        if self.steps[capture] or (capture and (self.starts_ns or self.pieces[0].drift)):
            return None
        return self.pieces[0].whole_ns if capture else 0

    def common_of_b(self, time_ns: int) -> int:
        """Return the common time of a timestamp of B from which the steps were removed."""
        common = self.pieces[0].common(time_ns)
        if not self.starts_ns:
            return common
        # Where a piece begins in common time is known only by the piece before it, so the pieces
        # are tried in order.
        for start, later in zip(self.starts_ns, self.pieces[1:], strict=True):
            if common < start:
                break
            common = later.common(time_ns)
        return common

    def align(self, anchor: Anchor) -> Anchor:
        """Return an anchor with the steps removed from its timestamps."""
        return anchor._replace(
            a_ns=self.without_steps(0, anchor.frame_a, anchor.a_ns),
            b_ns=self.without_steps(1, anchor.frame_b, anchor.b_ns),
        )


def find_steps(
    anchors: Sequence[Anchor],
    jumps: tuple[Sequence[tuple[int, int]], Sequence[tuple[int, int]]],
) -> list[tuple[int, int, int]]:
    """Return (capture, first frame after the step, growth of B minus A in ns) of each step.

    Args:
        anchors: datagrams that both captures hold.
        jumps: per capture, (frame, time since the previous frame in ns) of each frame at which its
            clock may have been set.

    """
    # Frames of A come first in an anchor.
    by_a = sorted(anchors)
    # Jumps are named by frames of their own capture, and reordering gives B another order than A.
    by_b = sorted(anchors, key=lambda anchor: anchor.frame_b)
    # In the order of the capture whose clock was not set, the datagrams that were on their way then
    # blur the step. The clearer order explains more of the changes.
    best: list[tuple[int, int, int]] = []
    most: tuple[int, int] | None = None
    for ordered in (by_a, by_b):
        differences = [anchor.difference for anchor in ordered]
        changes = [
            (index, height)
            for index, height in _lasting_changes(differences)
            if _is_in_each_flow(ordered, index, height)
        ]
        steps = [_locate(by_a, by_b, ordered[index], height, jumps) for index, height in changes]
        first = changes[0][0] if changes else len(ordered)
        last = changes[-1][0] if changes else 0
        for index, height in _changes_at_ends(differences, first, last):
            step = _locate(by_a, by_b, ordered[index], height, jumps)
            few = ordered[:index] if index < first else ordered[index:]
            if step is not None and _is_certain(step, few, jumps):
                steps.append(step)
        located = {step[:2]: step for step in steps if step is not None}
        clear = (-steps.count(None), len(located))
        if most is None or clear > most:
            best, most = list(located.values()), clear
    return best


def _lasting_changes(differences: list[int]) -> list[tuple[int, int]]:
    """Return (index of the first difference after the change, height) of each lasting change."""
    width = STEP_WINDOW
    changes: list[tuple[int, int]] = []
    index, last = width, len(differences) - width
    while index <= last:
        before, after = _medians_around(differences, index)
        if abs(after - before) > STEP_NS:
            # The medians start to move before the step itself: it is where they move most.
            near = ((at, *_medians_around(differences, at))
                    for at in range(index, min(index + width, last) + 1))  # fmt: skip
            index, before, after = max(near, key=lambda row: abs(row[2] - row[1]))
            best = _best_split(differences, index - width, index + width, before, after)
            changes.append((best, after - before))
            # Windows that still overlap this step would find it again.
            index = best + width
        index += 1
    return changes


def _is_in_each_flow(ordered: list[Anchor], index: int, height: int) -> bool:
    """Return whether the flows on both sides of a change have changed by about its height, too.

    The differences of opposite directions are a round trip apart. Where one direction hands over to
    the other, the medians of both together change by that much, although no clock was set.
    """
    flows: dict[int, tuple[list[int], list[int]]] = {}
    reach = FLOW_WINDOWS * STEP_WINDOW
    for side, anchors in enumerate((
        reversed(ordered[max(index - reach, 0) : index]), ordered[index : index + reach]
    )):  # fmt: skip
        for anchor in anchors:
            values = flows.setdefault(anchor.flow_a, ([], []))[side]
            if len(values) < STEP_WINDOW:
                values.append(anchor.difference)
    votes = 0
    for before, after in flows.values():
        if before and after:
            change = _median(after) - _median(before)
            same = abs(change - height) <= max(abs(height) // 2, STEP_NS // 2)
            votes += (1 if same else -1) * min(len(before), len(after))
    return votes >= 0


def _changes_at_ends(differences: list[int], first: int, last: int) -> list[tuple[int, int]]:
    """Return the changes, as `_lasting_changes` does, that have less than a window on one side: of
    the differences up to `first` the one near the start, and of those from `last` on the one near
    the end.
    """
    changes: list[tuple[int, int]] = []
    found = _change_at_start(differences[:first])
    if found is not None:
        changes.append(found)
    found = _change_at_start(differences[:last:-1] if last else differences[::-1])
    if found is not None and (index := len(differences) - found[0]) > first:
        changes.append((index, -found[1]))
    return changes


def _change_at_start(differences: list[int]) -> tuple[int, int] | None:
    """Return where few differences that agree are followed by more that agree on another value, and
    the height of that change; None if it is nowhere.
    """
    for few in range(min(STEP_WINDOW, len(differences) // 2 + 1) - 1, 0, -1):
        before, after = differences[:few], differences[few : few + STEP_WINDOW]
        height = _median(after) - _median(before)
        if (
            abs(height) > STEP_NS
            and max(before) - min(before) <= STEP_NS
            and max(after) - min(after) <= STEP_NS
        ):
            return few, height
    return None


def _is_certain(
    step: tuple[int, int, int],
    few: Sequence[Anchor],
    jumps: tuple[Sequence[tuple[int, int]], Sequence[tuple[int, int]]],
) -> bool:
    """Return whether a step with only a few anchors on one side can be nothing else.

    Time never runs back, and a network that held datagrams back for so long would have shifted the
    differences of both directions apart.
    """
    capture, frame, _ = step
    return dict(jumps[capture])[frame] < 0 or len({anchor.flow_a for anchor in few}) > 1


def _median(values: list[int]) -> int:
    """Return the lower median."""
    return sorted(values)[(len(values) - 1) // 2]


def _medians_around(differences: list[int], index: int) -> tuple[int, int]:
    """Return the lower median of the window before an index, and of the window from it on."""
    before = differences[index - STEP_WINDOW : index]
    return _median(before), _median(differences[index : index + STEP_WINDOW])


def _best_split(differences: list[int], start: int, end: int, before: int, after: int) -> int:
    """Return the index that best separates values near `before` from values near `after`."""
    middle = (before + after) / 2
    rising = after > before
    wrong = sum((value > middle) != rising for value in differences[start:end])
    best, least = start, wrong
    for index in range(start, end):
        wrong += 1 if (differences[index] > middle) == rising else -1
        if wrong < least:
            best, least = index + 1, wrong
    return best


def _locate(
    by_a: list[Anchor],
    by_b: list[Anchor],
    place: Anchor,
    step: int,
    jumps: tuple[Sequence[tuple[int, int]], Sequence[tuple[int, int]]],
) -> tuple[int, int, int] | None:
    """Return the step that explains a lasting change at an anchor.

    The clock that was set is that of the capture whose time jumps by the step near that place.
    Return None if neither does: then the delays changed, not a clock.
    """
    in_a, in_b = by_a.index(place), by_b.index(place)
    choices: list[tuple[bool, int, int, int, int]] = []
    # B minus A grows when B's clock is set forward, or A's back.
    for capture, (ordered, at, sign) in enumerate(((by_a, in_a, -1), (by_b, in_b, 1))):
        # In an anchor, field 0 is the frame of A and field 2 that of B.
        low = ordered[max(at - STEP_WINDOW, 0)][2 * capture]
        high = ordered[min(at + STEP_WINDOW, len(ordered) - 1)][2 * capture]
        # A jump is never exactly the step: it includes the ordinary pause before its frame. The
        # other clock kept running, and shows how long that pause may have been.
        pause = abs(ordered[at][3 - 2 * capture] - ordered[max(at - 1, 0)][3 - 2 * capture])
        for frame, span in jumps[capture]:
            if low < frame <= high:
                rest = span - sign * step
                # A pause cannot be negative.
                choices.append((rest < -STEP_NS, abs(rest), pause, capture, frame))
    if not choices:
        return None
    _, off, pause, capture, frame = min(choices)
    if off > max(abs(step) // 4, STEP_NS, pause + STEP_NS):
        return None
    return capture, frame, step


def fit(anchors: Sequence[Anchor], *, resolution_ns: int) -> ClockPiece | None:
    """Return the clock that explains the anchors of one piece; None if none does.

    Args:
        anchors: with known directions.
        resolution_ns: how far a difference may be off because a file stores only microseconds.

    """
    allowed = 0
    if len(anchors) >= _MIN_FOR_OUTLIERS:
        allowed = min(max(1, int(len(anchors) * _MAX_OUTLIER_SHARE)), _MAX_OUTLIERS)
    lines = _Lines(anchors)
    # One by one: discarding the worst point may free the line from several others.
    for contradicting in range(allowed + 1):
        slope = lines.best_slope()
        if lines.margin(slope) >= -resolution_ns:
            return lines.piece(slope, resolution_ns, contradicting)
        lines.discard_outlier(slope)
    return None


class _Lines:
    """Points (time in A, difference) of both directions, and the lines that separate them."""

    def __init__(self, anchors: Sequence[Anchor]) -> None:
        times = [anchor.a_ns for anchor in anchors]
        self.at_ns = at_ns = (min(times) + max(times)) // 2
        # Unrelated clocks may be 1e18 ns apart, which a float does not hold to the ns.
        self.base = base = anchors[0].difference
        self.high = sorted([(a.a_ns - at_ns, a.difference - base) for a in anchors if a.toward > 0])
        self.low = sorted([(a.a_ns - at_ns, a.difference - base) for a in anchors if a.toward < 0])
        self.upper = _hull(self.high, lower=True)
        self.lower = _hull(self.low, lower=False)

    def ceiling(self, slope: float, at: float = 0.0) -> float:
        """Return the highest offset at a time that a line of this slope can have."""
        if not self.upper:
            return float("inf")
        return min(y - slope * x for x, y in self.upper) + slope * at

    def floor(self, slope: float, at: float = 0.0) -> float:
        """Return the lowest offset at a time that a line of this slope can have."""
        if not self.lower:
            return float("-inf")
        return max(y - slope * x for x, y in self.lower) + slope * at

    def margin(self, slope: float) -> float:
        """Return the distance that the middle line of this slope keeps from the points."""
        return (self.ceiling(slope) - self.floor(slope)) / 2

    def best_slope(self) -> float:
        """Return the slope of the line that is furthest from all points."""
        limit = MAX_DRIFT_PPM * 1e-6
        # With one direction alone, growing delays would look like drift, so none is claimed.
        if not (self.upper and self.lower):
            return 0.0
        slope = _peak(self.margin, -limit, limit)
        return 0.0 if self.margin(0.0) >= _ZERO_DRIFT_MARGIN * self.margin(slope) else slope

    def discard_outlier(self, slope: float) -> None:
        """Discard the point that most obstructs a line of this slope.

        It is the lowest point of the A-to-B direction or the highest of the other, whichever is
        further from its own kind.
        """
        high, above = _extreme(self.high, slope, 1)
        low, below = _extreme(self.low, slope, -1)
        # The points stay sorted, so that a hull is rebuilt without sorting thousands of them.
        if high is not None and (low is None or above >= below):
            self.high.remove(high)
            self.upper = _hull(self.high, lower=True)
        elif low is not None:
            self.low.remove(low)
            self.lower = _hull(self.low, lower=False)

    def piece(self, slope: float, resolution_ns: int, contradicting: int) -> ClockPiece:
        """Return the middle line of this slope, with its error bounds."""
        two_sided = bool(self.upper and self.lower)
        if two_sided:
            middle = (self.ceiling(slope) + self.floor(slope)) / 2
        else:
            # With one direction alone, its least delay is taken as zero.
            middle = self.ceiling(slope) if self.upper else self.floor(slope)
        low, high = self._slope_range(slope)
        bound = None
        if two_sided:
            start = min(self.high[0][0], self.low[0][0])
            end = max(self.high[-1][0], self.low[-1][0])
            bound = resolution_ns + max(
                self._offset_error(low, high, at, middle + slope * at) for at in (start, 0.0, end)
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

    def _slope_range(self, slope: float) -> tuple[float, float]:
        """Return the least and the greatest slope that a separating line can have."""
        limit = MAX_DRIFT_PPM * 1e-6
        if not (self.upper and self.lower):
            return -limit, limit
        ends = []
        for end in (-limit, limit):
            inside, outside = slope, end
            if self.margin(end) >= 0:
                ends.append(end)
                continue
            for _ in range(_ITERATIONS):
                middle = (inside + outside) / 2
                if self.margin(middle) >= 0:
                    inside = middle
                else:
                    outside = middle
            ends.append(inside)
        return ends[0], ends[1]

    def _offset_error(self, low: float, high: float, at: float, value: float) -> float:
        """Return how far the true offset at a time can be from `value`.

        Args:
            low: least slope of a separating line.
            high: greatest slope.
            at: the time.
            value: the offset that is claimed for it.

        """
        top = self.ceiling(_peak(lambda s: self.ceiling(s, at), low, high), at)
        bottom = self.floor(_peak(lambda s: -self.floor(s, at), low, high), at)
        return max(top - value, value - bottom)


def _peak(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function with a single peak is greatest between two numbers."""
    for _ in range(_ITERATIONS):
        third = (high - low) / 3
        left, right = low + third, high - third
        if function(left) < function(right):
            low = left
        else:
            high = right
    return (low + high) / 2


def _extreme(
    points: list[tuple[int, int]], slope: float, sign: int
) -> tuple[tuple[int, int] | None, float]:
    """Return the lowest point relative to a line (the highest if `sign` is -1), and its distance
    to the next one. The point is None if there are no points, the distance 0 if there is one.
    """
    extreme: tuple[int, int] | None = None
    least = second = float("inf")
    for point in points:
        rest = sign * (point[1] - slope * point[0])
        if rest < least:
            extreme, least, second = point, rest, least
        elif rest < second:
            second = rest
    return extreme, second - least if second < float("inf") else 0.0


def _hull(points: list[tuple[int, int]], *, lower: bool) -> list[tuple[int, int]]:
    """Return the corners of the lower or upper convex hull of sorted points, from left to right.

    Source: Andrew, "Another efficient algorithm for convex hulls in two dimensions" (1979).
    """
    sign = 1 if lower else -1
    corners: list[tuple[int, int]] = []
    for x, y in points:
        while len(corners) > 1:
            (x1, y1), (x2, y2) = corners[-2], corners[-1]
            # Equal directions count as no corner, so that no corner lies within an edge.
            if sign * ((x2 - x1) * (y - y1) - (y2 - y1) * (x - x1)) > 0:
                break
            corners.pop()
        corners.append((x, y))
    return corners
