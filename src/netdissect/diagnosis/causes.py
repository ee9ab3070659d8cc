"""Why a connection ended or was bad; what was ruled out, and what remains open."""

from __future__ import annotations

from typing import Final

from netdissect.diagnosis import malformed, words
from netdissect.diagnosis.measures import (
    MIN_SENT,
    closed_window,
    is_impatient,
    is_lossless,
    lag_of,
    limit_of,
    resent_of,
)
from netdissect.model.diagnosis import ENDINGS, Cause, Ending, Limits, Loss
from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionReport, QuietSpan

_RECOVERED: Final = 50
"""Badness of a silence that passed."""
_LOSSY: Final = 40
"""Badness of loss, of a program that did not read, or of malformed data."""
_MIN_RESENT: Final = 3
"""Retransmissions of a direction before they are mentioned: a busy program causes one or two."""
_BRIEF_NS: Final = 1_000_000_000
"""A silence to the end that is shorter than this explains less than loss does."""


def cause_of(
    report: ConnectionReport, ending: Ending, loss: tuple[Loss, Loss], limits: Limits
) -> Cause:
    """Return why a connection ended, or why it was bad."""
    if ending.how in ("rejected", "unreachable"):
        return _plain(report, ending, ending.how, ending.confidence)
    if ending.how in ("never-answered", "gave-up"):
        return _plain(report, ending, "no-answer", "likely" if report.gone else "cannot tell")
    span = deciding(report)
    limited = [way for way in (0, 1) if limit_of(report, way, limits) is not None]
    lossy = limited or _lossy(report, loss, limits)
    # A limit of the rate also explains a silence that passed, and loss explains a brief one.
    by_loss = limited if span is not None and span.to_ns else lossy and _is_brief(report, span)
    if span is not None and not by_loss:
        confidence = words.confidence_of(report, span)
        text = words.span_text(span, confidence, beside=report.vantage == SIDES[span.direction])
        if _is_of_the_gone(report, span):
            confidence, text = "likely", words.gone(report)
        elif span.kind == "silence":
            text += malformed.silence_text(report, span)
        return Cause(
            span.kind, span.direction, span.from_ns, span.to_ns, span.from_frame, span.to_frame,
            confidence, text,
        )  # fmt: skip
    if ending.how == "quality":
        return _plain(report, ending, "quality", ending.confidence)
    if lossy:
        worst = max(lossy, key=lambda direction: loss[direction].share or 0.0)
        back = loss[1 - worst]
        text = words.loss_text(worst, loss[worst], back if loss[worst].basis == "bound" else None)
        if back.exceeds(limits.high_loss):
            text += f" {words.loss_text(1 - worst, back)}"
        limit = limit_of(report, worst, limits)
        if limit is not None:
            text += f" The rate was limited: {limit.text}."
        else:
            text += words.WHOSE_LINK
        direction = worst if len(lossy) == 1 else None
        return Cause(
            "loss", direction, report.first_time_ns, report.last_time_ns, None, None, "likely", text
        )
    return cause_without_loss(report, ending, loss, limits)


def _is_of_the_gone(report: ConnectionReport, span: QuietSpan) -> bool:
    """Return whether a span to the end is one in which nothing listened on the port of the side
    that should have been heard, or should have answered.
    """
    if report.gone is None or span.to_ns is not None:
        return False
    return (report.gone.direction == span.direction) == (span.kind == "silence")


def _is_brief(report: ConnectionReport, span: QuietSpan | None) -> bool:
    """Return whether one side alone is silent at the end, for less than a second."""
    silent = {each.direction for each in report.quiet if each.to_ns is None}
    return (
        span is not None and len(silent) == 1 and (report.last_time_ns - span.from_ns < _BRIEF_NS)
    )


def _lossy(report: ConnectionReport, loss: tuple[Loss, Loss], limits: Limits) -> list[int]:
    """Return the directions that are known to lose more than the limit."""
    return [
        direction
        for direction, part in enumerate(loss)
        # A bound is no proof: impatient senders retransmit as much on a clean path.
        if (part.basis != "bound" or _one_way_loss(report, direction, loss))
        and part.exceeds(limits.high_loss)
        and part.sent >= MIN_SENT
    ]


def _one_way_loss(report: ConnectionReport, direction: int, loss: tuple[Loss, Loss]) -> bool:
    """Return whether what a direction sent again must have been lost in that direction: almost
    nothing that came back was lost, and its senders' timers are long enough.
    """
    if not is_lossless(loss[1 - direction]):
        return False
    slow_ms = lag_of(report).p95_ms
    resending = [
        space for space in report.spaces if space.direction == direction and space.retransmissions
    ]
    # Some senders retransmit many units after a single loss or stall.
    many = sum(space.retransmissions for space in resending) >= MIN_SENT
    return many and not any(is_impatient(space, slow_ms) for space in resending)


def cause_without_loss(
    report: ConnectionReport, ending: Ending, loss: tuple[Loss, Loss], limits: Limits
) -> Cause:
    """Return the cause if no side was silent and no direction is known to have lost more than the
    limit: a program did not read, or could not; else no problem was seen, with what could not be
    seen.
    """
    closed_ms, slow = closed_window(report)
    if slow is not None and closed_ms >= limits.slow_receiver:
        span = slow.extra["window_closed"]
        return Cause(
            "slow-receiver", slow.direction, span["from_ns"], span["to_ns"],
            span["frames"][0], span["frames"][1], "certain",
            words.slow_text(SIDES[slow.direction], closed_ms),
        )  # fmt: skip
    data = malformed.ended_by(report, ending)
    if data is not None:
        return Cause(
            "malformed", data.direction, data.time_ns, ending.time_ns, data.frame, ending.frame,
            "likely", malformed.ended_text(ending, data),
        )  # fmt: skip
    what = "closed" if ending.how in ("said", "reset") else "none"
    unknown = _unknown_losses(report, loss, limits)
    bounded = [way for way in unknown if loss[way].is_bound]
    late = words.late_text(report)
    resent = [(way, *resent_of(report, way)) for way in unknown if way not in bounded]
    resent = [
        each
        for each in resent
        if each[1] >= _MIN_RESENT and 100 * each[1] > limits.high_loss * each[2]
    ]
    # After the end, errors say nothing more.
    since_ns = report.gone.time_ns if report.gone else 0
    gone = words.gone(report) if since_ns < (ending.time_ns or since_ns + 1) else ""
    found = _plain(
        report, ending, what, ending.confidence if what == "closed" else "cannot tell",
        calm=not bounded and not late and not resent and not gone,
    )  # fmt: skip
    text = f"{found.text} {gone}".strip() + words.one_way_only(report) + late
    text += "".join(f" {words.loss_text(way, loss[way])}" for way in bounded)
    text += "".join(f" {words.resent_text(way, again, sent)}" for way, again, sent in resent)
    text += words.unknown_loss([way for way in unknown if way not in bounded])
    found.text = text.strip()
    return found


def _unknown_losses(report: ConnectionReport, loss: tuple[Loss, Loss], limits: Limits) -> list[int]:
    """Return the directions that may have lost more than the limit: their loss is unknown, or only
    a high bound of it is known.
    """
    # If both sides are on the captured link, there is no network between them to lose anything.
    if report.near == (True, True) and not report.misses_frames:
        return []
    return [
        direction
        for direction, part in enumerate(loss)
        if report.datagrams[direction]
        and (part.basis == "unknown" or part.is_bound)
        and (part.share is None or part.basis == "least" or part.exceeds(limits.high_loss))
    ]


def _plain(
    report: ConnectionReport, ending: Ending, what: str, confidence: str, *, calm: bool = True
) -> Cause:
    text, calm = words.plain_cause(report, ending, what, calm=calm)
    return Cause(what, None, None, None, ending.frame, ending.frame, confidence, text, calm)


def deciding(report: ConnectionReport) -> QuietSpan | None:
    """Return the quiet span that explains most: the first of those that lasted to the end, or else
    the longest.
    """
    spans = report.quiet
    to_the_end = [span for span in spans if span.to_ns is None]
    if to_the_end:
        # A side that only answers falls silent after the requests no longer reach it.
        return min(to_the_end, key=lambda span: span.from_ns)
    return max(spans, key=lambda span: (span.to_ns or 0) - span.from_ns, default=None)


def badness(report: ConnectionReport, ending: Ending, cause: Cause, loss: tuple[Loss, Loss]) -> int:
    """Return how bad a connection is: first by how it ended, then by what happened before."""
    bad, _ = ENDINGS[ending.how]
    if cause.what in ("silence", "one-way"):
        bad = max(bad, _RECOVERED if cause.to_ns is not None else ENDINGS["silent"][0])
    elif cause.what in ("loss", "slow-receiver", "malformed"):
        bad = max(bad, _LOSSY)
    share = max(part.share or 0.0 for part in loss)
    warned = bool(report.anomalies.get("warn") or report.anomalies.get("error"))
    # Connections that ended alike are ordered by their loss: one step for each 5%, up to 45%.
    return bad * 10 + min(9, int(20 * share)) + warned


def ruled_out(
    report: ConnectionReport,
    ending: Ending,
    cause: Cause,
    loss: tuple[Loss, Loss],
    limits: Limits,
) -> tuple[str, ...]:
    """Return what was not the cause, each with the reason."""
    found = []
    if cause.what not in ("loss", "silence", "one-way"):
        for direction, part in enumerate(loss):
            known = part.share is not None and not part.is_bound
            if known and not part.exceeds(limits.high_loss):
                found.append(words.no_loss(direction, part))
    two_way = ending.how not in ("info-only", "timed-out") and all(report.datagrams)
    if two_way and not report.quiet:
        found.append(words.NO_SILENCE)
    return tuple(found)


def settles(
    report: ConnectionReport, cause: Cause, loss: tuple[Loss, Loss], limits: Limits
) -> str | None:
    """Return what another capture would settle; None if nothing is open."""
    if cause.what in ("none", "closed", "quality"):
        is_open = bool(_unknown_losses(report, loss, limits))
    else:
        is_open = cause.confidence != "certain" and cause.what != "malformed"
    second = words.second_capture(report, cause) if is_open else None
    return " ".join(filter(None, (second, words.assumed_dialect(report)))) or None
