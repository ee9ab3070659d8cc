"""Findings about whole connections: loss, retransmissions, round trips, slow programs, endings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from netdissect.diagnosis.measures import (
    BY_DESIGN,
    MIN_SENT,
    crosses,
    is_impatient,
    is_notably_late,
    limit_of,
)
from netdissect.model.diagnosis import Diagnosis, Limits
from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionReport, RttSummary, SpaceReport

SPIKE: Final = 4.0
"""A round trip of this many times the usual one is a spike, if it is also long enough."""
_ENOUGH: Final = 2 * MIN_SENT
"""Units from which on a share of them can be a finding."""
_MIN_PROBES: Final = 5
"""Answered probes from which on one of them can be an outlier."""
_AT_ONCE: Final = 1.5
"""Units whose usual round trip is at most this many times the shortest are acknowledged at once."""


@dataclass(slots=True, init=False)
class Found:
    """One finding about a whole connection."""

    code: str
    direction: int | None
    message: str
    frame: int | None
    time_ns: int | None
    evidence: dict[str, Any]
    later: bool
    """Whether it was concluded when the connection ended, not at its frame."""

    def __init__(
        self, code: str, direction: int | None, message: str, frame: int | None = None,
        time_ns: int | None = None, evidence: dict[str, Any] | None = None, *, later: bool = True,
    ) -> None:  # fmt: skip
        self.code = code
        self.direction = direction
        self.message = message
        self.frame = frame
        self.time_ns = time_ns
        self.evidence = evidence or {}
        self.later = later

    @property
    def terms(self) -> tuple[str, int | None, int | None, int | None, str, dict[str, Any]]:
        """Return the arguments for the tracker's findings."""
        return self.code, self.frame, self.time_ns, self.direction, self.message, self.evidence


def findings_of(report: ConnectionReport, found: Diagnosis, limits: Limits) -> Iterator[Found]:
    """Yield the findings about a connection, each with its span and basis as evidence."""
    span = {"from_ns": report.first_time_ns, "to_ns": report.last_time_ns,
            "frames": [report.first_frame, report.last_frame]}  # fmt: skip
    for direction, part in enumerate(found.loss):
        known = part.is_seen and part.sent >= _ENOUGH
        if known and part.exceeds(limits.high_loss):
            text = f"{part.limit()}{100 * (part.share or 0.0):.1f}% of {part.sent} lost"
            yield Found("high-loss", direction, text, evidence={"basis": part.basis, **span})
        yield from _rate_limited(report, direction, limits)
    for space in report.spaces:
        yield from _space_findings(space, found, span, limits)
        yield from _bursts(space, report, limits)
    yield from _round_trips(report, span, limits)
    for direction, late in enumerate(found.lag.added):
        if is_notably_late(report, late.over_limit) and late.worst:
            worst = late.worst[0]
            units = "1 unit" if late.over_limit == 1 else f"{late.over_limit} units"
            yield Found(
                "late-delivery", direction,
                f"{units}, {worst.space} {worst.seq} by {worst.added_ms:.0f} ms",
                worst.frame, worst.time_ns, {"basis": "inferred", "units": late.over_limit, **span},
            )  # fmt: skip
    yield from _end(report, found)


def _rate_limited(report: ConnectionReport, direction: int, limits: Limits) -> Iterator[Found]:
    found = limit_of(report, direction, limits)
    if found is not None:
        basis = "observed" if found.unit == "bytes" else "told"
        yield Found(
            "rate-limited", direction, found.text, found.first_frame, found.from_ns,
            {"basis": basis, "per_second": found.per_second, "unit": found.unit,
             "queue_ms": found.queue_ms, "from_ns": found.from_ns, "to_ns": found.to_ns,
             "frames": [found.first_frame, found.last_frame]},
        )  # fmt: skip


def _space_findings(
    space: SpaceReport, found: Diagnosis, span: dict[str, Any], limits: Limits
) -> Iterator[Found]:
    sent = space.copies - space.duplicates
    share = space.retransmissions / sent if sent else 0.0
    many = sent >= _ENOUGH and limits.high_resend < 100 * share < 100 * BY_DESIGN
    if many and (not is_impatient(space, found.lag.p95_ms) or _lossy(found, limits)):
        text = f"{space.space}: {100 * share:.0f}% of {sent} were retransmissions"
        yield Found("high-resend", space.direction, text, evidence={"basis": "inferred", **span})
    closed_ms = space.extra.get("window_closed_ms")
    if isinstance(closed_ms, (int, float)) and closed_ms >= limits.slow_receiver:
        text = f"the {SIDES[space.direction]} read nothing for {closed_ms / 1e3:.1f} s in total"
        closed = space.extra["window_closed"]
        yield Found(
            "slow-receiver", space.direction, text, closed["frames"][0], closed["from_ns"],
            {"basis": "observed", **closed},
        )  # fmt: skip


def _lossy(found: Diagnosis, limits: Limits) -> bool:
    """Return whether either direction is known to lose enough to cause retransmissions."""
    return any(part.is_seen and part.exceeds(limits.high_loss) for part in found.loss)


def _bursts(space: SpaceReport, report: ConnectionReport, limits: Limits) -> Iterator[Found]:
    # Elsewhere, or if frames were not captured, a missing number says nothing about the network.
    if report.vantage != SIDES[1 - space.direction] or report.misses_frames:
        return
    for burst in space.bursts:
        if burst.count >= limits.burst_loss:
            text = (
                f"{space.space}: {burst.count} in a row within"
                f" {(burst.to_ns - burst.from_ns) / 1e6:.0f} ms"
            )
            yield Found(
                "burst-loss", space.direction, text, burst.frame, burst.to_ns,
                {"basis": "observed", "lost": burst.count, "from_ns": burst.from_ns,
                 "to_ns": burst.to_ns, "frames": [None, burst.frame]},
            )  # fmt: skip


def _round_trips(report: ConnectionReport, span: dict[str, Any], limits: Limits) -> Iterator[Found]:
    answered = _answered(report)
    named = _named(report)
    spikes = [rtt for rtt in answered if _is_spike(rtt, limits)]
    spikes += [
        rtt
        for units, loading in ((_at_once(report), False), (named, True))
        for rtt in units
        if _slower(rtt) > limits.jitter and _is_spike(rtt, limits, loading=loading)
    ]
    evidence = {"basis": "observed", **span}
    if spikes:
        spike = max(spikes, key=_longest)
        text = f"{spike.maximum:.0f} ms, usually {spike.p50:.0f} ms"
        yield Found("rtt-spike", None, text, evidence=evidence)
        return
    many = [rtt for rtt in (*answered, *named) if rtt.samples >= MIN_SENT]
    if not many:
        return
    uneven = max(many, key=_slower)
    if _slower(uneven) > limits.jitter:
        text = f"half within {uneven.p50:.0f} ms, 95% within {uneven.p95:.0f} ms"
        yield Found("jitter", None, text, evidence=evidence)


def _answered(report: ConnectionReport) -> list[RttSummary]:
    """Return the round trips of probes, which are answered at once.

    Next to the side that answers, these are the round trips that the other side states.
    """
    found = [
        probe.rtt if crosses(report, probe.direction) else probe.declared for probe in report.probes
    ]
    return [rtt for rtt in found if rtt.samples >= _MIN_PROBES]


def _at_once(report: ConnectionReport) -> list[RttSummary]:
    """Return the round trips of units that are usually acknowledged at once.

    Spaces with retransmissions are excluded: a lost unit delays those behind it.
    """
    return [
        space.rtt
        for space in report.spaces
        if space.timer_ms is not None
        and not space.retransmissions
        and space.rtt.samples >= MIN_SENT
        and crosses(report, space.direction)
        and (space.rtt.p50 or 0.0) <= _AT_ONCE * (space.rtt.minimum or 0.0)
    ]


def _named(report: ConnectionReport) -> list[RttSummary]:
    """Return the round trips of units that are acknowledged one by one, if none was sent again."""
    return [
        space.rtt
        for space in report.spaces
        if space.by_name
        and not space.retransmissions
        and space.rtt.samples >= 2 * _MIN_PROBES
        and crosses(report, space.direction)
    ]


def _is_spike(rtt: RttSummary, limits: Limits, *, loading: bool = False) -> bool:
    # Among few, the first may have been slow because a program was starting; units are also sent
    # while it is loading.
    least = limits.rtt_spike * (1 if rtt.samples >= _ENOUGH and not loading else 2)
    return _longest(rtt) > least and (rtt.maximum or 0.0) > SPIKE * (rtt.p50 or 0.0)


def _longest(rtt: RttSummary) -> float:
    """Return the longest round trip minus the median, ms."""
    return (rtt.maximum or 0.0) - (rtt.p50 or 0.0)


def _slower(rtt: RttSummary) -> float:
    """Return the 95th percentile of the round trips minus the median, ms."""
    return (rtt.p95 or 0.0) - (rtt.p50 or 0.0)


def _end(report: ConnectionReport, found: Diagnosis) -> Iterator[Found]:
    ending = found.ending
    if ending.by is None or ending.how in ("open", "info-only", "never-answered", "unknown"):
        return
    side = SIDES.index(ending.by) if ending.by in SIDES else None
    basis = "told" if ending.frame is not None and ending.how != "quality" else "inferred"
    yield Found(
        "closed-by", side, found.verdict, ending.frame,
        report.ended_ns,
        {"by": ending.by, "how": ending.how, "reason": ending.reason, "basis": basis},
        later=basis == "inferred",
    )  # fmt: skip
