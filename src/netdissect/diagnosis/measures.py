"""Loss and lag of a connection, from its spaces and probes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from netdissect.model.diagnosis import AddedDelay, Burst, Ceiling, Lag, Limits, Loss, SilenceLoss
from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionReport, QuietSpan, RttSummary, SpaceReport

__all__ = [
    "MIN_SENT", "around_of", "came_late", "closed_window", "crosses", "is_impatient", "lag_of",
    "limit_of", "loss_of", "lost_hardly", "spans",
]  # fmt: skip

MIN_SENT = 20
"""Units of a direction before a share of them means anything."""
SEGMENTS = "tcp"
"""The space of what TCP repairs: nothing above it is lost."""
_LATE_UNITS = 3
_MISSING = ("observed", "inferred")
"""What losses rest on that missing numbers show."""
_UNKNOWN = Loss(0, 0, "unknown")
_HARDLY = 0.01
"""Share of a direction lost that is next to nothing."""
_IMPATIENT = 1.5
"""A timer shorter than so many of the slower round trips fires on a clean path as well."""
BY_DESIGN = 0.4
"""A sender that repeats this share of what it sends does so whether it is lost or not."""


def loss_of(report: ConnectionReport, direction: int) -> Loss:
    """Return what of a direction was lost, from the numbered units that it sent."""
    spaces = [
        space
        for space in report.spaces
        if space.direction == direction
        and space.copies
        and (space.space == SEGMENTS if report.transport == "tcp" else True)
    ]
    told = _told(spaces)
    if told is not None:
        return told
    if report.vantage == SIDES[1 - direction]:
        seen = _seen_beside_receiver(spaces)
        if seen is not None:
            return replace(seen, basis="bound") if report.misses_frames else seen
    if report.quiet or report.misses_frames or not report.near[direction]:
        return _UNKNOWN  # what was sent into the dark, or may not be here, is no bound
    return _by_resends(spaces, streamed=report.transport == "tcp")


def came_late(report: ConnectionReport, units: int) -> bool:
    """Return whether so many units that came late are told: one or two also wait for a program that
    was busy, but over TCP the system acknowledges.
    """
    return units >= (1 if report.transport == "tcp" else _LATE_UNITS)


def lost_hardly(part: Loss) -> bool:
    """Return whether it is known that a direction lost next to nothing."""
    return part.is_known and part.sent >= MIN_SENT and (part.share or 0.0) <= _HARDLY


def _told(spaces: list[SpaceReport]) -> Loss | None:
    """Return what the receiver says itself."""
    for space in spaces:
        lost, delivered = space.extra.get("lost"), space.extra.get("delivered")
        if isinstance(lost, int) and isinstance(delivered, int) and lost + delivered >= MIN_SENT:
            return Loss(lost + delivered, lost, "told")
    return None


def _seen_beside_receiver(spaces: list[SpaceReport]) -> Loss | None:
    """Return what missing numbers tell next to the receiver: of units that are never sent again,
    where there are enough. What is sent again leaves no gap, and TCP has no numbers of its own.
    """
    best = _best(spaces)
    if best is None:
        return None
    exact = best.consecutive and not best.retransmissions
    basis = "observed" if exact else "inferred"
    return Loss(_numbers(best), _missing(best), basis)


def _numbers(space: SpaceReport) -> int:
    """Return how many numbers a direction has used, as far as the capture shows."""
    return space.units + _of_copies(space) + space.others + _missing(space)


def _missing(space: SpaceReport) -> int:
    """Return how many numbers were never seen, but for those that copies have taken."""
    return max(0, space.never_seen - _of_copies(space))


def _of_copies(space: SpaceReport) -> int:
    return space.retransmissions if space.copies_take_numbers else 0


def _best(spaces: list[SpaceReport]) -> SpaceReport | None:
    once = [
        space
        for space in spaces
        if (space.copies_take_numbers or not space.retransmissions)
        and space.space != SEGMENTS
        and _numbers(space) >= MIN_SENT
    ]
    # Where messages travel in numbered datagrams, it is those that get lost.
    return max(once, key=lambda space: (_missing(space), _numbers(space)), default=None)


def limit_of(report: ConnectionReport, direction: int, limits: Limits) -> Ceiling | None:
    """Return the limit of a direction's rate: what its receiver told shows it, else the numbers
    missing next to it; None where there is none that lasts.
    """
    missing, told = report.ceilings[direction]
    found = told or (missing if report.vantage == SIDES[1 - direction] else None)
    return found if found is not None and found.seconds >= limits.rate_limited else None


def closed_window(report: ConnectionReport) -> tuple[int, float]:
    """Return which side's receive window was closed longest, and for how many milliseconds."""
    closed = [(space.extra.get("window_closed_ms"), space.direction) for space in report.spaces]
    known = [(ms, side) for ms, side in closed if isinstance(ms, (int, float))]
    longest_ms, side = max(known, default=(0.0, 0))
    return side, longest_ms


def around_of(report: ConnectionReport, span: QuietSpan) -> SilenceLoss:
    """Return what the direction of a quiet span lost before it and in it; of the other direction
    one capture does not know.
    """
    basis = loss_of(report, span.direction).basis
    spaces = [space for space in report.spaces if space.direction == span.direction]
    best = _best(spaces)
    before = inside = _UNKNOWN
    for known in span.before:
        if basis == "told" and known.lost + known.delivered:
            before = Loss(known.lost + known.delivered, known.lost, basis)
        elif basis in _MISSING and best is not None and known.space == best.space:
            before = Loss(known.units + known.never_seen, known.never_seen, basis)
    if basis in _MISSING and best is not None and span.kind == "silence":
        missing = sum(burst.count for burst in best.bursts if spans(burst, span))
        inside = Loss(missing, missing, basis) if missing else _UNKNOWN
    if span.direction:
        return SilenceLoss((_UNKNOWN, before), (_UNKNOWN, inside))
    return SilenceLoss((before, _UNKNOWN), (inside, _UNKNOWN))


def spans(burst: Burst, span: QuietSpan) -> bool:
    """Return whether numbers are missing where a side was silent, and not only there by chance."""
    over = span.to_ns is not None and burst.to_ns >= span.to_ns
    return over and burst.from_ns <= span.from_ns


def _by_resends(spaces: list[SpaceReport], *, streamed: bool) -> Loss:
    """Return a bound, next to the sender of what is sent again where it is lost: what was sent
    again, because it or its acknowledgement was lost, or because the sender was impatient, and what
    nobody has acknowledged.
    """
    repaired = [
        space
        for space in spaces
        if space.acked
        and (streamed or space.timer_ms is not None or space.retransmissions)
        and space.retransmissions < BY_DESIGN * (space.copies - space.duplicates)
    ]
    sent = sum(space.copies - space.duplicates for space in repaired)
    lost = sum(space.retransmissions + space.units - space.acked for space in repaired)
    return Loss(sent, lost, "bound" if sent >= MIN_SENT else "unknown")


def is_impatient(space: SpaceReport, slow_ms: float | None) -> bool:
    """Return whether a sender's timer is too short for the path, or not known; `slow_ms`: what 95%
    of the round trips do not exceed.
    """
    slow = max(space.rtt.p95 or 0.0, slow_ms or 0.0)
    return space.timer_ms is None or not slow or space.timer_ms < _IMPATIENT * slow


def lag_of(report: ConnectionReport) -> Lag:
    """Return the round trip of the path, and what resends added in each direction."""
    path = _path(report)
    return Lag(
        None if path is None else path.p50,
        None if path is None else path.p95,
        (_added(report, 0), _added(report, 1)),
    )


def _path(report: ConnectionReport) -> RttSummary | None:
    """Return the round trips that cross the whole path, probes first."""
    probes, units = (
        [each.rtt for each in items if each.rtt.samples and crosses(report, each.direction)]
        for items in (report.probes, report.spaces)
    )
    # The path is in all of them; the others have some waiting of a program besides.
    return min(probes or units, key=lambda rtt: rtt.p50 or 0.0, default=None)


def crosses(report: ConnectionReport, direction: int) -> bool:
    """Return whether what a side asks is seen to cross the path: next to the side that answers, a
    round trip has nothing of the path in it.
    """
    return report.vantage != SIDES[1 - direction]


def _added(report: ConnectionReport, direction: int) -> AddedDelay:
    late = [
        space.added
        for space in report.spaces
        if space.direction == direction and space.added is not None and space.added.units
    ]
    if not late:
        return AddedDelay(0, None, None, None, 0, (), 0)
    most = max(late, key=lambda item: item.maximum or 0.0)
    worst = sorted((each for item in late for each in item.worst), key=lambda each: -each.added_ms)
    return AddedDelay(
        sum(item.units for item in late),
        most.p50,
        _most(item.p95 for item in late),
        _most(item.maximum for item in late),
        sum(item.over_limit for item in late),
        tuple(worst[:3]),
        late[0].limit_ms,
    )


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
