"""Findings of what operators ask: loss, resends, round trips, slow programs, ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from netdissect.diagnosis.causes import HIGH_LOSS
from netdissect.diagnosis.measures import BY_DESIGN, MIN_SENT
from netdissect.model.annotations import CodeRow, Severity
from netdissect.model.diagnosis import Diagnosis
from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionReport, SpaceReport

__all__ = ["CODES", "Found", "findings_of"]

HIGH_RESEND: Final = 0.25
"""Share of what a side sent that was a repetition, from which on it is told."""
SPIKE: Final = 4.0
"""A round trip so many times the usual one ..."""
SPIKE_MS: Final = 150.0
"""... and so much longer is a spike, milliseconds."""
JITTER_MS: Final = 60.0
"""Round trips of which 5% take so much longer than half of them do vary, milliseconds."""
WINDOW_MS: Final = 500.0
"""A receive window closed for so long is that of a slow program, milliseconds."""
LATE_UNITS: Final = 3
"""Units that came late before it is told: one or two also wait for a program that was busy."""
_FEW: Final = 2 * MIN_SENT

CODES: Final = (
    CodeRow(
        "high-loss", Severity.WARN, "sequence", "more lost than players forgive",
        "More than 5% of what this direction sent was lost: the receiver says so, or the numbers"
        " are missing next to it.",
    ),
    CodeRow(
        "high-resend", Severity.CHAT, "sequence", "much of what was sent was sent before",
        "More than a quarter of what this side sent were repetitions: data or acknowledgements are"
        " lost, or its timer is shorter than the path.",
    ),
    CodeRow(
        "rtt-spike", Severity.NOTE, "sequence", "round trip far above the usual one",
        "A round trip took four times the usual one and 150 ms more at least: a queue on the way, a"
        " program that was busy, or a side that slept.",
    ),
    CodeRow(
        "jitter", Severity.NOTE, "sequence", "round trips vary",
        "One round trip of twenty takes 60 ms longer than the median and more than twice as long:"
        " what depends on steady arrival stutters.",
    ),
    CodeRow(
        "slow-receiver", Severity.WARN, "sequence", "program does not read",
        "The receive window of this side was closed for half a second or longer: its program does"
        " not read what arrives, and the sender has to wait.",
    ),
    CodeRow(
        "late-delivery", Severity.NOTE, "sequence", "units delivered late",
        "Units that had to be sent again were acknowledged more than 200 ms later than the path"
        " allows. The frame is that of the slowest one's first copy.",
    ),
    CodeRow(
        "closed-by", Severity.CHAT, "protocol", "who ended the connection",
        "Told where a message, a segment or an ICMP error says so, inferred where a timer or a rule"
        " of the protocol does.",
    ),
)  # fmt: skip
"""Codes of this room."""


@dataclass(frozen=True, slots=True)
class Found:
    """One finding about a whole connection."""

    code: str
    direction: int | None
    message: str
    frame: int | None = None
    time_ns: int | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    later: bool = True
    """Whether it is concluded at the end, not with its frame."""

    @property
    def terms(self) -> tuple[str, int | None, int | None, int | None, str, dict[str, Any]]:
        """Return what the tracker's findings take of it, in their order."""
        return self.code, self.frame, self.time_ns, self.direction, self.message, self.evidence


def findings_of(report: ConnectionReport, found: Diagnosis) -> Iterator[Found]:
    """Yield what operators ask of a connection; each has a span and a basis in its evidence."""
    span = {"from_ns": report.first_time_ns, "to_ns": report.last_time_ns,
            "frames": [report.first_frame, report.last_frame]}  # fmt: skip
    for direction, part in enumerate(found.loss):
        known = part.basis in ("observed", "told") and part.sent >= _FEW
        if known and (part.share or 0.0) > HIGH_LOSS:
            text = f"{100 * (part.share or 0.0):.1f}% of {part.sent} lost"
            yield Found("high-loss", direction, text, evidence={"basis": part.basis, **span})
    for space in report.spaces:
        yield from _resends(space, span)
    yield from _round_trips(found, report, span)
    for direction, late in enumerate(found.lag.added):
        if late.beyond >= LATE_UNITS and late.worst:
            worst = late.worst[0]
            yield Found(
                "late-delivery", direction,
                f"{late.beyond} units, {worst.space} {worst.seq} by {worst.added_ms:.0f} ms",
                worst.frame, worst.time_ns, {"basis": "inferred", "units": late.beyond, **span},
            )  # fmt: skip
    yield from _end(report, found)


def _resends(space: SpaceReport, span: dict[str, Any]) -> Iterator[Found]:
    sent = space.copies - space.duplicates
    share = space.retransmissions / sent if sent else 0.0
    if sent >= _FEW and HIGH_RESEND < share < BY_DESIGN:
        text = f"{space.space}: {100 * share:.0f}% of {sent} were repetitions"
        yield Found("high-resend", space.direction, text, evidence={"basis": "inferred", **span})
    closed_ms = space.extra.get("window_closed_ms")
    if isinstance(closed_ms, (int, float)) and closed_ms >= WINDOW_MS:
        text = f"the {SIDES[space.direction]} took nothing for {closed_ms / 1e3:.1f} s in all"
        yield Found("slow-receiver", space.direction, text, evidence={"basis": "observed", **span})


def _round_trips(
    found: Diagnosis, report: ConnectionReport, span: dict[str, Any]
) -> Iterator[Found]:
    usual, slow = found.lag.path_ms, found.lag.p95_ms
    if usual is None or slow is None:
        return
    enough = [probe.rtt for probe in report.probes if probe.rtt.samples >= _FEW]
    most = max((rtt.maximum or 0.0 for rtt in enough), default=0.0)
    evidence = {"basis": "observed", **span}
    if most > SPIKE * usual and most - usual > SPIKE_MS:
        text = f"{most:.0f} ms, usually {usual:.0f} ms"
        yield Found("rtt-spike", None, text, evidence=evidence)
    if enough and slow - usual > JITTER_MS and slow > 2 * usual:
        text = f"half within {usual:.0f} ms, 95% within {slow:.0f} ms"
        yield Found("jitter", None, text, evidence=evidence)


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
