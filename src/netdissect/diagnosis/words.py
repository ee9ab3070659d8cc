"""Every sentence about a connection, but for those about its neighbours and malformed data. All
views show these; none makes its own.

A verdict is one sentence: how the connection ended, and what was bad about it. A cause says whose
fault it was as far as the capture shows, and how sure that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from netdissect.diagnosis.ends import was_answered
from netdissect.diagnosis.malformed import seen_text
from netdissect.diagnosis.measures import MIN_SENT, SEGMENTS, spans
from netdissect.model.diagnosis import LOSS_BASIS, Cause, Ending, Limits, Loss
from netdissect.model.figures import tenths
from netdissect.model.packets import PORT_UNREACHABLE, SIDES
from netdissect.model.reports import ConnectionReport, QuietSpan

_DEFAULTS: Final = Limits()
NO_SILENCE: Final = "silence: packets of both sides arrived as often as their timers require"
MIN_UNANSWERED: Final = 6
"""With this many unanswered requests, the requests and not only their answers were lost."""
MIN_MISSING: Final = 3
"""Numbers missing after a silence from which on its side must have kept sending."""
_SECOND: Final = 1_000_000_000
_TENTH_NS: Final = 100_000_000
"""Shorter spans are shown in ms."""
_MS: Final = 1_000_000
_MIN_SHOWN_NS: Final = 1_000_000_000
"""A shorter silence to the end of the capture is shown without its duration."""
_MIN_SHARE: Final = 0.005
"""A smaller share of loss is not mentioned."""
_PER_ANSWER: Final = 1.5
"""Units that are sent again for each answer lost: now and then two for one."""
DIRECTIONS: Final = ("client to server", "server to client")


def verdict(
    report: ConnectionReport,
    ending: Ending,
    cause: Cause,
    loss: tuple[Loss, Loss],
    limits: Limits = _DEFAULTS,
) -> str:
    """Return the verdict as a sentence. A loss beyond the limit is in it whatever the cause."""
    clauses = [_ending_clause(report, ending, cause)]
    if cause.what in ("silence", "one-way") and cause.to_ns is not None:
        clauses.append(_silence_clause(report, cause))
    elif cause.what == "loss":
        shares = _shares(loss, DIRECTIONS)
        clauses.append(f"lost: {shares}" if shares else "the rate was limited")
    elif cause.what in ("slow-receiver", "malformed"):
        # The first clause of the cause, continued in lower case.
        clauses.append("t" + cause.text[1:].partition(":")[0])
    if cause.what != "loss" and any(_is_high(part, limits) for part in loss):
        clauses.append(f"lost: {_shares(loss, DIRECTIONS)}")
    return "; ".join(clauses) + "."


def _is_high(part: Loss, limits: Limits) -> bool:
    return part.is_known and part.sent >= MIN_SENT and part.exceeds(limits.high_loss)


_ENDINGS: Final = {
    "timed-out": "Timed out at {by}{quiet}{unless_quiet}",
    "silent": "{silent}{quiet}",
    "rejected": "Rejected by {by}{because}",
    "unreachable": "Nothing listens at {server} (ICMP port unreachable)",
    "quality": "Closed by {by} without notice{because}",
    "reset": "Reset by {by} after {lasted}{quiet}",
    "gave-up": "Given up by {by}, which got no answer{because}",
    "never-answered": "Never answered: nothing came from the server in {lasted}",
    "unacknowledged": "Never opened: the client acknowledged nothing from the server in {lasted}",
    "info-only": "No connection: server information was {exchanged}",
    "open": "Still open when the capture ends, after {lasted}{lossy}{quiet}",
    "said": "Closed by {by} after {lasted}{because}{quiet}",
    "dropped": "Dropped by {by} without notice after {lasted}: its sequence numbers restart{quiet}",
    "unknown": "The end is not in the capture, which covers {lasted} of the connection{quiet}",
}
"""`Ending.how` -> main clause of the verdict."""
_EXCHANGED: Final = ("requested", "sent")
"""What the client and what the server did, if server information was all they exchanged."""


_ENDINGS_IN_LISTS: Final = {
    "timed-out": "timed out{at}",
    "silent": "the capture ends in silence",
    "rejected": "rejected{because}",
    "unreachable": "nothing listens there",
    "quality": "closed{by}{because}",
    "reset": "reset{by}",
    "gave-up": "given up{by}, no answer",
    "never-answered": "no answer in {lasted}",
    "unacknowledged": "never opened in {lasted}",
    "info-only": "server information only",
    "open": "still open",
    "said": "closed{by}{because}",
    "dropped": "dropped{by}",
    "unknown": "its end is not in the capture",
}
"""`Ending.how` -> the same in a list, after what was bad."""


def line(report: ConnectionReport) -> str:
    """Return a short verdict for a line of a list: what was bad, then how the connection ended."""
    found = report.diagnosis
    if found is None:
        return report.state
    ending, cause = found.ending, found.cause
    bad = ""
    if cause.what in ("silence", "one-way"):
        start_ns, until_ns = cause.from_ns or 0, cause.to_ns or report.last_time_ns
        what = "silent" if cause.what == "silence" else "unanswered"
        who = "both sides" if cause.direction is None else SIDES[cause.direction]
        bad = f"{who} {what} for {_seconds(until_ns - start_ns)}"
    elif cause.what == "loss":
        shares = _shares(found.loss, "→←", "<=", ">=")
        bad = f"lost {shares}" if shares else "rate limited"
    elif cause.what == "slow-receiver":
        bad = "a receiver did not read"
    elif cause.what == "malformed":
        bad = f"malformed data from the {SIDES[cause.direction or 0]}"
    known = ending.by is not None and ending.by != "nobody"
    side = {"both": "both sides"}.get(ending.by or "", str(ending.by))
    ended = _ENDINGS_IN_LISTS[_how(report, ending)].format(
        at=f" at {side}" if known and not bad else "",
        by=f" by {side}" if known else "",
        because=f": {ending.reason}" if ending.reason and not bad else "",
        lasted=_seconds(report.last_time_ns - report.first_time_ns),
    )
    # A silence that ended the connection follows its end; one that passed precedes it.
    ends = bad and cause.to_ns is None and cause.what in ("silence", "one-way")
    text = f"{ended}: {bad}" if ends else "; ".join(part for part in (bad, ended) if part)
    return text[:1].upper() + text[1:]


def _shares(loss: tuple[Loss, Loss], names: Sequence[str], *limits: str) -> str:
    """Return what each direction lost; "" if both lost too little to mention, because a limit of
    the rate is the cause.
    """
    return ", ".join(
        f"{part.limit(*limits)}{100 * part.share:.0f}% {name}"
        for name, part, other in zip(names, loss, loss[::-1], strict=True)
        if part.share is not None and part.share >= _MIN_SHARE and not _of_answers(part, other)
    )


def _of_answers(part: Loss, other: Loss) -> bool:
    """Return whether lost answers explain everything that a direction sent again."""
    lost = other.share if other.is_seen else None
    return part.basis == "bound" and lost is not None and (part.share or 0.0) <= _PER_ANSWER * lost


def _ending_clause(report: ConnectionReport, ending: Ending, cause: Cause) -> str:
    """Return how a connection ended, with the silence that ended it."""
    ended_by_silence = cause.what in ("silence", "one-way") and cause.to_ns is None
    because = f": {ending.reason}" if ending.reason else ""
    if ending.how == "timed-out" or (ending.how == "rejected" and ending.reason in _ALSO_SENT):
        because = because.replace(": ", ", which sent ", 1)
    over_ns = _over_ns(report, ending)
    told = "; before that, " if over_ns == report.last_time_ns else "; "
    joint = told if ending.how in ("said", "dropped", "reset") else ": "
    return _ENDINGS[_how(report, ending)].format(
        by={None: "an unknown side", "both": "both sides"}.get(ending.by, f"the {ending.by}"),
        because=because,
        lasted=_seconds(over_ns - report.first_time_ns),
        server=report.server,
        lossy="" if ending.by else _uncaptured_goodbye(report),
        exchanged=_exchanged(report) if ending.how == "info-only" else "",
        silent=(
            f"The {ending.by} opened a new connection from the same endpoint without closing this"
            " one"
            if ending.by
            else "The capture ends in silence"
        ),
        quiet=f"{joint}{_silence_clause(report, cause)}" if ended_by_silence else "",
        unless_quiet="" if ended_by_silence else because,
    )


def _exchanged(report: ConnectionReport) -> str:
    sides = zip(_EXCHANGED, report.datagrams, strict=True)
    return " and ".join(what for what, count in sides if count)


def _over_ns(report: ConnectionReport, ending: Ending) -> int:
    """Return when a connection was over: a side may send on after a goodbye, or a FIN, which counts
    then. What a drop shows in may come before the end.
    """
    told_ns = ending.time_ns if ending.how in ("said", "reset") else None
    return report.last_time_ns if told_ns is None else told_ns


def _how(report: ConnectionReport, ending: Ending) -> str:
    """Return the key of the words about an ending."""
    unacknowledged = ending.how == "never-answered" and was_answered(report)
    return "unacknowledged" if unacknowledged else ending.how


def _uncaptured_goodbye(report: ConnectionReport) -> str:
    """Return why it is not certain that a connection is still open."""
    if all(report.datagrams):
        return " (a goodbye may have been lost before it was captured)"
    side = SIDES[1 if report.datagrams[0] else 0]
    return f" (nothing that the {side} sent is in the capture)"


def _silence_clause(report: ConnectionReport, cause: Cause) -> str:
    """Return what did not come, or was not answered, and for how long."""
    start_ns = cause.from_ns or report.first_time_ns
    until_ns = cause.to_ns or report.last_time_ns
    side = "either side" if cause.direction is None else f"the {SIDES[cause.direction]}"
    at = _seconds(start_ns - report.first_time_ns)
    span = f"for {_seconds(until_ns - start_ns)}, starting {at} into the connection"
    if cause.what == "one-way":
        return f"nothing that {side} sent was answered {span}"
    if cause.to_ns is None and until_ns - start_ns < _MIN_SHOWN_NS:
        return f"nothing came from {side} after {at}"  # nor for longer from the other side
    return f"nothing came from {side} {span}"


def span_text(span: QuietSpan, confidence: str, *, beside: bool) -> str:
    """Return what a quiet span shows about whose fault it is; `beside`: the capture was taken next
    to the side of the span.
    """
    side, other = SIDES[span.direction], SIDES[1 - span.direction]
    if span.kind == "one-way":
        if confidence == "likely":
            return (
                f"The {other} kept sending but answered nothing: the path from the {side} to the"
                f" {other} was broken."
            )
        also = "" if span.unanswered >= MIN_UNANSWERED else ", or the answers were lost"
        return (
            f"The {other} kept sending but answered nothing that the {side} sent: either it did"
            f" not arrive, or the program did not process it{also}."
        )
    if confidence == "likely":
        return (
            f"Numbers of the {side}'s packets are missing after the silence: it kept sending, and"
            f" the path to the {other} was broken."
        )
    if beside:
        return (
            f"The capture was taken next to the {side}, and has nothing that the {side} sent: its"
            " program stopped, or the capture lacks what it sent."
        )
    return (
        f"This capture cannot tell whether the {side} stopped or the path from it was broken, nor"
        f" whether the {side} still received what the {other} sent."
    )


def gone(report: ConnectionReport) -> str:
    """Return what an ICMP error says of a side; "" without one."""
    error = report.gone
    if error is None:
        return ""
    endpoint = (report.client, report.server)[error.direction]
    reason = error.reason or ""
    closed = reason == PORT_UNREACHABLE
    # Of a closed TCP port, the host itself would have sent RST.
    if "prohibited" in reason or (closed and report.transport == "tcp"):
        return f"A firewall rejects what is sent to {endpoint} (ICMP {reason})."
    if not closed:
        return f"A host or router reports that {endpoint} cannot be reached (ICMP {reason})."
    before = report.datagrams[error.direction]
    since = f": the {SIDES[error.direction]} stopped, or closed its socket" if before else ""
    any_more = " any more" if before else ""
    return f"The host of {endpoint} reports that nothing listens on the port{any_more}{since}."


def confidence_of(report: ConnectionReport, span: QuietSpan) -> str:
    """Return how sure it is whose fault a quiet span was."""
    side, other = SIDES[span.direction], SIDES[1 - span.direction]
    if span.kind == "one-way":
        understood = report.dialects[0] == report.dialects[1] and not _renewed(report, span)
        sure = report.vantage == side and span.unanswered >= MIN_UNANSWERED and understood
        return "likely" if sure else "cannot tell"
    return "likely" if report.vantage == other and _kept_sending(report, span) else "cannot tell"


def _renewed(report: ConnectionReport, span: QuietSpan) -> bool:
    """Return whether the side that did not answer had dropped the connection before or meanwhile.
    What came thereafter was for another one, so that it may have arrived.
    """
    sign = report.end_hint
    if sign is None or sign.kind != "renewed" or sign.direction == span.direction:
        return False
    return span.to_ns is None or sign.time_ns <= span.to_ns


def _kept_sending(report: ConnectionReport, span: QuietSpan) -> bool:
    """Return whether numbers of a silent side are missing after the silence, and only there."""
    return any(
        burst.count >= MIN_MISSING and spans(burst, span)
        for space in report.spaces
        if space.direction == span.direction
        for burst in space.bursts
    )


WHOSE_LINK: Final = (
    " Whether that was the link of the client or of the server, this capture alone cannot tell."
)
"""A further sentence about a loss, unless other connections show it."""


def loss_text(direction: int, loss: Loss, back: Loss | None = None) -> str:
    """Return what a direction lost, and what that is based on.

    Args:
        direction: the direction.
        loss: its loss.
        back: loss of the other direction, if that does not explain what was sent again.

    """
    side, other = SIDES[direction], SIDES[1 - direction]
    sent = f"{100 * (loss.share or 0.0):.1f}% of what the {side} sent"
    if back is not None and loss.basis not in _LOSS_TEXTS:
        return (
            f"{sent} was sent again or never acknowledged, but of {back.sent} that came back"
            f" {back.lost or 'none'} {'was' if back.lost == 1 else 'were'} lost: most of it was"
            f" lost on the way to the {other}."
        )
    return _LOSS_TEXTS.get(loss.basis, _MOST_LOST).format(sent=sent, side=side, other=other)


_LOSS_TEXTS: Final = {
    # Receivers discard what newer messages have overtaken, and report it like what was lost.
    "told": "{sent} was lost or overtaken on the way to the {other}, as the {other} reports.",
    "observed": "{sent} was lost on the way: those numbers are missing next to the {other}, where"
    " the capture was taken.",
    "copies": "{sent} was lost on the way: the {side} sends everything several times at once, and"
    " next to the {other}, where the capture was taken, copies are missing.",
    "ids": "At most {sent} was lost on the way: IP identifications are missing next to the {other},"
    " where the capture was taken, but the {side} may have used some for other packets.",
    "least": "At least {sent} was lost before it was captured: numbers or copies are missing.",
    "inferred": "{sent} did not arrive at the {other}, or was never sent: those numbers are missing"
    " next to the {other}, and the {side} may have skipped some.",
}
"""`Loss.basis` -> sentence about a loss that is seen."""
_MOST_LOST: Final = (
    "{sent} was sent again or never acknowledged: at most that much was lost, as some of it may"
    " have arrived and only its acknowledgement was lost."
)


def slow_text(side: str, closed_ms: float) -> str:
    """Return the cause if the program of a side did not read."""
    return (
        f"The receive window of the {side} was closed for {closed_ms / 1e3:.1f} s in total: its"
        " program did not read."
    )


def one_way_only(report: ConnectionReport) -> str:
    """Return a further sentence if only one direction was captured; else ""."""
    captured = [side for side, count in zip(SIDES, report.datagrams, strict=True) if count]
    if len(captured) != 1 or not report.misses_frames:
        return ""
    return f" The capture holds only what the {captured[0]} sent."


def plain_cause(
    report: ConnectionReport, ending: Ending, what: str, *, calm: bool = True
) -> tuple[str, bool]:
    """Return the cause that the ending itself gives, and `Cause.calm`.

    Args:
        report: the connection.
        ending: how it ended.
        what: `Cause.what`.
        calm: whether nothing else shows a problem.

    """
    reason = f" ({ending.reason})" if ending.reason else ""
    seen = seen_text(report)
    calm = calm and not seen and what in ("closed", "none") and ending.how != "timed-out"
    match what:
        case "rejected":
            text = f"The {ending.by or 'server'} refused the connection{reason}."
        case "unreachable":
            text = f"The host of {report.server} reports that nothing listens on the port."
        case "no-answer":
            text = gone(report) or (_UNACKNOWLEDGED if was_answered(report) else _NO_ANSWER)
        case "quality":
            text = f"The {ending.by} closes connections of such poor quality{reason}."
        case "closed":
            ended = f"The {ending.by} closed it" if ending.by in SIDES else "It was closed"
            if ending.by == "both":
                ended = "Both sides closed it before they heard of each other"
            also = _ALSO_SENT.get(ending.reason or "", "")
            text = f"{ended}{reason}{'; no problem was seen before' if calm else ''}.{also}{seen}"
        case _ if ending.how == "timed-out":
            text = (_BY_STAMPS if _was_heard(report) else _TIMED_OUT[ending.by]) + seen
        case _:
            text = "No problem was seen." if calm else seen.lstrip()
    return text, calm


_NO_ANSWER: Final = (
    "Nothing came back. This capture cannot tell whether the server was down or would not answer,"
    " or whether the path was broken."
)
_UNACKNOWLEDGED: Final = (
    "The server answered. This capture cannot tell whether its answers were lost on the way to the"
    " client, or the client no longer wanted them."
)
_ALSO_SENT: Final = {
    "FIN": " The operating system also sends FIN for a program that crashed.",
    "RST": " A firewall on the path may have sent the RST in its name.",
}
"""TCP flag that ended a connection -> who else may have sent it."""
_TIMED_OUT: Final = {
    "client": "Nothing that keeps the connection alive reached the client in time.",
    "server": "Nothing that keeps the connection alive reached the server in time.",
    "both": "Both sides timed out: this capture cannot tell whether both stopped or the path"
    " between them was broken.",
    None: "Nothing that keeps the connection alive arrived in time.",
}
"""Side that timed out -> the cause, if no silence shows it."""
_BY_STAMPS: Final = (
    "The server measures a silence by the time stamps that the client sends: the newest was too"
    " old, although packets kept arriving."
)


_JUST_NS: Final = 1_000_000_000
"""A side that was heard for the last time within this time before has just been heard."""


def _was_heard(report: ConnectionReport) -> bool:
    """Return whether a side timed out although it had just heard its peer."""
    return any(
        verdict.due_ns - verdict.last_heard_ns < _JUST_NS
        for verdict in report.timeouts
        if verdict.fired and verdict.due_ns is not None and verdict.last_heard_ns is not None
    )


def late_text(report: ConnectionReport) -> str:
    """Return a further sentence: how much of what was sent again was acknowledged late; "" if
    nothing was.
    """
    late = [space.added for space in report.spaces if space.added and space.added.over_limit]
    if not late:
        return ""
    units = sum(added.over_limit for added in late)
    unit = "segment" if any(space.space == SEGMENTS for space in report.spaces) else "message"
    them = f"1 {unit} sent again was" if units == 1 else f"{units} {unit}s sent again were"
    return f" {them} acknowledged more than {late[0].limit_ms} ms late."


def resent_text(direction: int, resent: int, sent: int) -> str:
    """Return a further sentence: how much of what a direction sent was sent again, of unknown
    cause.
    """
    return (
        f"{resent} of {sent} transmissions by the {SIDES[direction]} were retransmissions: the"
        " earlier ones or their acknowledgements were lost or late."
    )


def unknown_loss(directions: list[int]) -> str:
    """Return a further sentence if the loss of any direction is unknown; else ""."""
    if not directions:
        return ""
    way = f" from {DIRECTIONS[directions[0]]}" if len(directions) == 1 else ""
    return f" Loss{way} cannot be determined from this capture."


def no_loss(direction: int, loss: Loss) -> str:
    """Return that a direction lost little."""
    share = f"{100 * (loss.share or 0.0):.1f}%"
    return f"loss from {DIRECTIONS[direction]}: {share} of {loss.sent}, {LOSS_BASIS[loss.basis]}"


_ELSEWHERE: Final = {
    "silence": "whether anything was sent during the silence",
    "one-way": "whether what was sent arrived",
    **dict.fromkeys(
        ("loss", "none", "closed", "quality"), "which datagrams were lost, and in which direction"
    ),
    "no-answer": "whether the first datagrams arrived",
}
"""`Cause.what` -> what a capture at another place would show."""


def second_capture(report: ConnectionReport, cause: Cause) -> str:
    """Return what a capture at another place would show."""
    known = report.vantage in SIDES
    other = SIDES[1 - SIDES.index(report.vantage)] if known else ""
    where = f"next to the {other}" if known else "next to each side"
    what = _ELSEWHERE.get(cause.what, "what each side saw")
    return f"A capture {where} at the same time would show {what}."


def assumed_dialect(report: ConnectionReport) -> str | None:
    """Return what would show the dialect, if a finding says that it is assumed in a connection that
    was joined in mid-stream; else None.
    """
    if not report.complete:
        for code in report.codes:
            if code.endswith("-ambiguous-dialect"):
                return f"The dialect is open ({code}): the start of the connection may show it."
    return None


def _seconds(span_ns: int) -> str:
    if 0 < span_ns < _TENTH_NS:
        return f"{tenths(span_ns, _MS)} ms"
    return f"{tenths(span_ns, _SECOND)} s"
