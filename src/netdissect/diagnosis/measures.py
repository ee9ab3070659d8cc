"""Loss and lag of a connection, from its spaces and probes.

The loss of a direction is taken from the best source there is: what the receiver reports; else the
numbers that are missing next to the receiver; else, next to the sender, an upper bound by what was
sent again or never acknowledged. Anywhere else, numbers that are missing although their sender does
not skip any are a lower bound; otherwise the loss is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from netdissect.model.diagnosis import AddedDelay, Burst, Ceiling, Lag, Limits, Loss, SilenceLoss
from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionReport, QuietSpan, RttSummary, SpaceReport

MIN_SENT = 20
"""Units of a direction that a share of them needs to be meaningful."""
SEGMENTS = "tcp"
"""The space of TCP segments: TCP repairs losses, so nothing above it is lost."""
_LATE_UNITS = 3
"""Late units of a connection over UDP before they are a finding."""
_MAX_WHOLE = 8
"""Copies missing for each one that is missing of a unit that came, above which that shows no loss.
"""
_MIN_LOST = 3
"""Numbers or copies missing away from both sides before they are a lower bound of the loss."""
_MIN_PERCENT = 0.5
"""And their share in percent: a sender may fail to send now and then."""
_MISSING = ("observed", "inferred")
"""The bases of a loss that is counted by missing numbers."""
_UNKNOWN = Loss(0, 0, "unknown")
_LOSSLESS = 0.01
"""A direction that loses up to this share loses almost nothing."""
_IMPATIENT = 1.5
"""A retransmission timer below 1.5 times the slower round trips also fires on a clean path."""
BY_DESIGN = 0.4
"""A sender that repeats this share of what it sends repeats by design, not because of loss."""


def loss_of(report: ConnectionReport, direction: int) -> Loss:
    """Return the loss of a direction."""
    spaces = [
        space
        for space in report.spaces
        if space.direction == direction
        and space.copies
        and (space.space == SEGMENTS if report.transport == "tcp" else True)
    ]
    reported = _reported(spaces)
    if reported is not None:
        return reported
    if report.vantage == SIDES[1 - direction]:
        tcp = report.transport == "tcp"
        missing = _by_missing_packets(spaces) if tcp else _by_missing_numbers(spaces)
        if missing is not None:
            return replace(missing, basis="bound") if report.misses_frames else missing
    # What was sent into a silence, or not captured, bounds nothing.
    if report.misses_frames:
        return _UNKNOWN
    if not report.near[direction]:
        return _lost_before(report, spaces)
    if report.quiet:
        return _UNKNOWN
    return _by_resends(spaces, streamed=report.transport == "tcp")


def is_notably_late(report: ConnectionReport, units: int) -> bool:
    """Return whether a number of late units is a finding.

    One or two may have waited for a busy program; over TCP, where the operating system
    acknowledges, one is enough.
    """
    return units >= (1 if report.transport == "tcp" else _LATE_UNITS)


def is_lossless(part: Loss) -> bool:
    """Return whether a direction is known to have lost almost nothing."""
    whole = part.is_known and not part.is_bound
    return whole and part.sent >= MIN_SENT and (part.share or 0.0) <= _LOSSLESS


def _reported(spaces: list[SpaceReport]) -> Loss | None:
    """Return the loss that the receiver itself reports, if it does."""
    for space in spaces:
        lost, delivered = space.extra.get("lost"), space.extra.get("delivered")
        if isinstance(lost, int) and isinstance(delivered, int) and lost + delivered >= MIN_SENT:
            return Loss(lost + delivered, lost, "told")
    return None


def _by_missing_numbers(spaces: list[SpaceReport]) -> Loss | None:
    """Return the loss by the numbers missing next to the receiver.

    Only spaces whose units are never sent again count, as a retransmission fills the gap, or those
    whose units are sent several times at once. Return None if there are not enough such units.
    """
    for space in spaces:
        # A sender that sends each unit several times at once.
        missing, sent = space.extra.get("copies_missing"), _transmissions(space)
        if isinstance(missing, int) and sent >= MIN_SENT:
            return Loss(sent + missing, missing, "copies")
    best = _best(spaces)
    if best is None:
        return None
    exact = best.consecutive and not best.retransmissions
    basis = "observed" if exact else "inferred"
    return Loss(_numbers(best), _missing(best), basis)


def _lost_before(report: ConnectionReport, spaces: list[SpaceReport]) -> Loss:
    """Return a lower bound of the loss where the capture is not known to be next to either side:
    what was lost between the sender and the capture.
    """
    if report.transport == "tcp":
        return _UNKNOWN
    missing = _single_copies(spaces) or _by_missing_numbers(spaces)
    if missing is None or missing.basis == "inferred":
        return _UNKNOWN
    many = missing.lost >= _MIN_LOST and missing.exceeds(_MIN_PERCENT)
    return replace(missing, basis="least") if many else _UNKNOWN


def _single_copies(spaces: list[SpaceReport]) -> Loss | None:
    """Return the loss by the units that came, if their sender sends each several times at once:
    away from the receiver, missing numbers may have been those of others.
    """
    for space in spaces:
        missing = space.extra.get("copies_missing_of_seen")
        whole = space.extra.get("copies_missing")
        came = _transmissions(space)
        if not isinstance(missing, int) or came < MIN_SENT:
            continue
        # Chance seldom takes all copies of a unit: a sender that skips most numbers may leave out
        # single copies as well.
        if isinstance(whole, int) and whole > max(came, _MAX_WHOLE * missing):
            return _UNKNOWN
        return Loss(came + missing, missing, "copies")
    return None


def _by_missing_packets(spaces: list[SpaceReport]) -> Loss | None:
    """Return the loss of a TCP stream by the packets missing next to its receiver.

    IP identifications show them, but some senders share their counter with other connections.
    Therefore they count only if bytes were missing as well, and came later. Return None if not.
    """
    for space in spaces:
        missing, segments = space.extra.get("ids_missing"), space.extra["segments"]
        came_later = space.extra["hole_filling"] - space.extra["reordered"]
        if isinstance(missing, int) and came_later > 0 and segments >= MIN_SENT:
            return Loss(segments + missing, missing, "ids")
    return None


def _numbers(space: SpaceReport) -> int:
    """Return how many numbers a sender used, as far as the capture shows."""
    return space.units + _of_copies(space) + space.others + _missing(space)


def _missing(space: SpaceReport) -> int:
    """Return how many numbers were never seen, not counting those that retransmissions took, but
    those that their sender may have skipped.
    """
    skipped = space.extra.get("lost_or_skipped", 0)
    return max(0, space.never_seen + int(skipped) - _of_copies(space))


def _of_copies(space: SpaceReport) -> int:
    """Return how many numbers retransmissions took."""
    return space.retransmissions if space.copies_take_numbers else 0


def _best(spaces: list[SpaceReport]) -> SpaceReport | None:
    """Return the space whose missing numbers are the best measure of loss."""
    best: SpaceReport | None = None
    most = -1, -1
    for space in spaces:
        if (
            (space.copies_take_numbers or not space.retransmissions)
            and space.space != SEGMENTS
            and not _is_shared(space)
            and (numbers := _numbers(space)) >= MIN_SENT
        ):
            # If messages travel in numbered datagrams, it is the datagrams that get lost.
            measure = _missing(space), numbers
            if measure > most:
                best, most = space, measure
    return best


def _is_shared(space: SpaceReport) -> bool:
    """Return whether several senders use the same numbers, so that none is known to be missing."""
    return not space.consecutive and bool(space.extra.get("collisions"))


def limit_of(report: ConnectionReport, direction: int, limits: Limits) -> Ceiling | None:
    """Return the lasting limit of a direction's rate, if any: by the receiver's reports, or by the
    numbers missing next to it.
    """
    missing, reported = report.ceilings[direction]
    found = reported or (missing if report.vantage == SIDES[1 - direction] else None)
    return found if found is not None and found.seconds >= limits.rate_limited else None


def closed_window(report: ConnectionReport) -> tuple[float, SpaceReport | None]:
    """Return how long the receive window was closed that was closed longest, in ms, and the space
    of the side that announced it.
    """
    longest_ms, longest = 0.0, None
    for space in report.spaces:
        closed_ms = space.extra.get("window_closed_ms")
        if isinstance(closed_ms, (int, float)) and closed_ms > longest_ms:
            longest_ms, longest = closed_ms, space
    return longest_ms, longest


def around_of(report: ConnectionReport, span: QuietSpan) -> SilenceLoss:
    """Return what the direction of a quiet span lost before it and during it.

    The loss of the other direction is unknown from one capture.
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
    """Return whether a burst of missing numbers covers all of a silence that passed."""
    over = span.to_ns is not None and burst.to_ns >= span.to_ns
    return over and burst.from_ns <= span.from_ns


def _by_resends(spaces: list[SpaceReport], *, streamed: bool) -> Loss:
    """Return an upper bound of loss, next to the sender of units that are sent again if lost.

    It counts what was sent again, because it or its acknowledgement was lost or because the sender
    was impatient, and what was never acknowledged.
    """
    repaired = [
        space
        for space in spaces
        if space.acked
        and (streamed or space.timer_ms is not None or space.retransmissions)
        and not _repeats_by_design(space)
    ]
    sent = sum(map(_transmissions, repaired))
    lost = sum(space.retransmissions + space.units - space.acked for space in repaired)
    return Loss(sent, lost, "bound" if sent >= MIN_SENT else "unknown")


def resent_of(report: ConnectionReport, direction: int) -> tuple[int, int]:
    """Return (retransmissions, transmissions) of a direction, without network copies and without
    what is repeated by design.
    """
    spaces = [
        space
        for space in report.spaces
        if space.direction == direction and not _repeats_by_design(space)
    ]
    return sum(space.retransmissions for space in spaces), sum(map(_transmissions, spaces))


def _transmissions(space: SpaceReport) -> int:
    """Return how often the sender of a space has sent a unit."""
    return space.copies - space.duplicates


def _repeats_by_design(space: SpaceReport) -> bool:
    return space.retransmissions >= BY_DESIGN * _transmissions(space)


def is_impatient(space: SpaceReport, slow_ms: float | None) -> bool:
    """Return whether a sender's timer is too short for the path, or unknown; `slow_ms` is the 95th
    percentile of the round trips.
    """
    slow = max(space.rtt.p95 or 0.0, slow_ms or 0.0)
    return space.timer_ms is None or not slow or space.timer_ms < _IMPATIENT * slow


def lag_of(report: ConnectionReport) -> Lag:
    """Return the round trip of the path, and the delay that retransmissions added per direction."""
    path = _path(report)
    return Lag(
        None if path is None else path.p50,
        None if path is None else path.p95,
        (_added(report, 0), _added(report, 1)),
    )


def _path(report: ConnectionReport) -> RttSummary | None:
    """Return the shortest round trips that cross the whole path, of probes if there are any."""
    probes, units = (
        [each.rtt for each in items if each.rtt.samples and crosses(report, each.direction)]
        for items in (report.probes, report.spaces)
    )
    # All of them include the path; the longer ones also include the waiting of a program.
    shortest: RttSummary | None = None
    for rtt in probes or units:
        if shortest is None or (rtt.p50 or 0.0) < (shortest.p50 or 0.0):
            shortest = rtt
    return shortest


def crosses(report: ConnectionReport, direction: int) -> bool:
    """Return whether the round trips that a side starts include the path.

    Those seen next to the side that answers do not.
    """
    return report.vantage != SIDES[1 - direction]


def _added(report: ConnectionReport, direction: int) -> AddedDelay:
    """Return the delay that retransmissions added in a direction, over all of its spaces.

    What is sent several times at once waits for no retransmission.
    """
    late = [
        space.added
        for space in report.spaces
        if space.direction == direction and space.added is not None and space.added.units
        # Of a few units, most may have been retransmitted because they were lost.
        if not (_repeats_by_design(space) and _transmissions(space) >= MIN_SENT)
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
