"""The sentences about a connection. Every view shows these, none makes its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from netdissect.diagnosis.measures import spans
from netdissect.model.diagnosis import Cause, Ending, Limits, Loss
from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionReport, QuietSpan

__all__ = [
    "NO_SILENCE",
    "dropped_or_broken",
    "gone_on_text",
    "heard_meanwhile",
    "is_of_server",
    "late_text",
    "line",
    "loss_text",
    "lost_nothing",
    "no_loss",
    "not_the_network",
    "one_way_only",
    "plain_cause",
    "second_capture",
    "slow_text",
    "span_text",
    "untold_loss",
    "verdict",
    "whose",
]

NO_SILENCE: Final = "silence: both sides were heard as often as they should be"
MANY_ASKED: Final = 6
"""Questions without an answer from which on it is not the answers alone that were lost."""
MANY_MISSING: Final = 3
"""Numbers that are missing after a silence from which on its side did not keep silent."""
_LEAST_SHOWN_NS: Final = 1_000_000_000
"""A silence to the end that was shorter than this when the other side, too, was last heard."""
_WORTH: Final = 0.005
"""Share lost from which on it is worth a word."""
_PER_ANSWER: Final = 1.5
"""Units are sent again for answers that were lost, now and then two for one."""
_AT_MOST: Final = "at most "
_ARROWS: Final = ("client to server", "server to client")


def verdict(
    report: ConnectionReport, ending: Ending, cause: Cause, loss: tuple[Loss, Loss]
) -> str:
    """Return the one sentence that answers: who, when, why."""
    main = _ended(report, ending, cause)
    more = []
    if cause.what in ("silence", "one-way") and cause.to_ns is not None:
        more.append(_spell(report, cause))
    elif cause.what == "loss":
        shares = _shares(loss, _ARROWS, _AT_MOST)
        more.append(f"lost: {shares}" if shares else "the rate was limited")
    elif cause.what == "slow-receiver":
        # The cause begins with The, which here is no beginning.
        more.append("t" + cause.text[1:].partition(":")[0])
    return "; ".join((main, *more)) + "."


_ENDED: Final = {
    "timed-out": "Timed out at {by}{quiet}{unless_quiet}",
    "silent": "{silent}{quiet}",
    "rejected": "Rejected by {by}{because}",
    "unreachable": "Nobody listens at {server} any more (ICMP port unreachable)",
    "quality": "Closed by {by} without a word{because}",
    "reset": "Reset by {by} after {lasted}",
    "gave-up": "Given up by {by}, which got no answer{because}",
    "never-answered": "Never answered: nothing came from the server in {lasted}",
    "info-only": "No connection: information was {exchanged}",
    "open": "Still open when the capture ends, after {lasted}{lossy}{quiet}",
    "said": "Closed by {by} after {lasted}{because}{quiet}",
    "dropped": "Forgotten by {by} without a word after {lasted}: its numbers start again{quiet}",
    "unknown": "How it ended is not in the capture, which has {lasted} of it{quiet}",
}
"""`Ending.how` -> the main clause of the verdict."""
_EXCHANGED: Final = ("asked for", "given")
"""What (client, server) did who wanted no connection."""


_LINES: Final = {
    "timed-out": "timed out{at}",
    "silent": "the capture ends in silence",
    "rejected": "rejected{because}",
    "unreachable": "nobody listens there any more",
    "quality": "closed{by}{because}",
    "reset": "reset{by}",
    "gave-up": "given up{by}, no answer",
    "never-answered": "no answer in {lasted}",
    "info-only": "information only",
    "open": "still open",
    "said": "closed{by}{because}",
    "dropped": "forgotten{by}",
    "unknown": "its end is not in the capture",
}
"""`Ending.how` -> the same in a list, behind what was bad."""


def line(report: ConnectionReport) -> str:
    """Return the verdict in few words, what was bad first, for a line of a list."""
    found = report.diagnosis
    if found is None:
        return report.state
    ending, cause = found.ending, found.cause
    bad = ""
    if cause.what in ("silence", "one-way"):
        start_ns, until_ns = cause.from_ns or 0, cause.to_ns or report.last_time_ns
        what = "silent" if cause.what == "silence" else "unanswered"
        bad = f"{SIDES[cause.direction or 0]} {what} for {_seconds(until_ns - start_ns)}"
    elif cause.what == "loss":
        shares = _shares(found.loss, "→←", "<=")
        bad = f"lost {shares}" if shares else "rate limited"
    elif cause.what == "slow-receiver":
        bad = "a side did not read"
    known = ending.by is not None and ending.by != "nobody"
    side = {"both": "both sides"}.get(ending.by or "", str(ending.by))
    ended = _LINES[ending.how].format(
        at=f" at {side}" if known and not bad else "",
        by=f" by {side}" if known else "",
        because=f": {ending.reason}" if ending.reason and not bad else "",
        lasted=_seconds(report.last_time_ns - report.first_time_ns),
    )
    # A silence that ended it stands behind the end, one that passed before it.
    ends = bad and cause.to_ns is None and cause.what in ("silence", "one-way")
    text = f"{ended}: {bad}" if ends else "; ".join(part for part in (bad, ended) if part)
    return text[:1].upper() + text[1:]


def _shares(loss: tuple[Loss, Loss], names: Sequence[str], at_most: str) -> str:
    """Return what each direction lost; nothing where a limit of the rate is the cause, and what was
    lost by it is little of the whole.
    """
    return ", ".join(
        f"{at_most if part.is_limit else ''}{100 * part.share:.0f}% {name}"
        for name, part, other in zip(names, loss, loss[::-1], strict=True)
        if part.share is not None and part.share >= _WORTH and not _of_answers(part, other)
    )


def _of_answers(part: Loss, other: Loss) -> bool:
    """Return whether the answers that were lost explain all that a direction sent again."""
    lost = other.share if other.is_seen else None
    return part.basis == "bound" and lost is not None and (part.share or 0.0) <= _PER_ANSWER * lost


def _ended(report: ConnectionReport, ending: Ending, cause: Cause) -> str:
    """Return how a connection ended, with the silence that ended it."""
    ended_by_silence = cause.what in ("silence", "one-way") and cause.to_ns is None
    because = f": {ending.reason}" if ending.reason else ""
    return _ENDED[ending.how].format(
        by={None: "an unknown side", "both": "both sides"}.get(ending.by, f"the {ending.by}"),
        because=because,
        lasted=_seconds(report.last_time_ns - report.first_time_ns),
        server=report.server,
        lossy="" if ending.by else _unheard_goodbye(report),
        exchanged=" and ".join(
            what for what, count in zip(_EXCHANGED, report.datagrams, strict=True) if count
        ),
        silent=(
            f"The {ending.by} began anew at the same endpoints without a word"
            if ending.by
            else "The capture ends in silence"
        ),
        quiet=f"{_joint(ending)}{_spell(report, cause)}" if ended_by_silence else "",
        unless_quiet="" if ended_by_silence else because,
    )


def _joint(ending: Ending) -> str:
    """Return what stands between an ending and the silence before it."""
    return "; before, " if ending.how == "said" else ": "


def _unheard_goodbye(report: ConnectionReport) -> str:
    """Return why nobody can tell that a connection is still open."""
    if all(report.datagrams):
        return " (a goodbye may have been lost on its way here)"
    side = SIDES[1 if report.datagrams[0] else 0]
    return f" (what the {side} sent is not in it)"


def _spell(report: ConnectionReport, cause: Cause) -> str:
    """Return what was not heard, and for how long."""
    start_ns = cause.from_ns or report.first_time_ns
    until_ns = cause.to_ns or report.last_time_ns
    side = SIDES[cause.direction or 0]
    lasted, at = _seconds(until_ns - start_ns), _seconds(start_ns - report.first_time_ns)
    if cause.what == "one-way":
        return f"nothing that the {side} sent was answered for {lasted}, from {at} on"
    if cause.to_ns is None and until_ns - start_ns < _LEAST_SHOWN_NS:
        return f"nothing came from the {side} from {at} on"  # nor from the other one for longer
    return f"nothing came from the {side} for {lasted}, from {at} on"


def span_text(span: QuietSpan, confidence: str) -> str:
    """Return what a quiet span says of whose fault it is."""
    side, other = SIDES[span.direction], SIDES[1 - span.direction]
    if span.kind == "one-way":
        if confidence == "likely":
            return (
                f"The {other} went on speaking and answered nothing: the path from the {side} to"
                f" the {other} was broken."
            )
        return (
            f"The {other} went on speaking and answered nothing that the {side} sent: either it did"
            " not arrive, or the program did not take it."
        )
    if confidence == "certain":
        return f"The capture is next to the {side}, which sent nothing: its program stopped."
    if confidence == "likely":
        return (
            f"Numbers of the {side} are missing after the silence: it went on sending, and the path"
            f" to the {other} was broken."
        )
    return (
        f"Whether the {side} stopped or the path from it was broken cannot be told from here, nor"
        f" whether the {side} still received what the {other} sent."
    )


def gone_on_text(text: str, frame: int) -> str:
    """Return what is said of a client whose address begins another connection meanwhile."""
    return (
        f"{text.removesuffix('.')}, or went on from another port: its address begins another"
        f" connection to this server in #{frame}."
    )


def heard_meanwhile(direction: int, numbers: Sequence[int]) -> str:
    """Return what was not silent: other connections of the server were heard meanwhile."""
    if direction:
        return f"{_SERVER}it went on speaking to {_some(numbers)} meanwhile"
    clients = "client" if len(numbers) == 1 else "clients"
    return f"{_SERVER_LINK}what the {clients} of {_some(numbers)} sent came through meanwhile"


def dropped_or_broken(numbers: Sequence[int]) -> str:
    """Return the cause of a server's silence for one client alone."""
    return (
        f"The server went on speaking to {_some(numbers)}: the path from it to this client was"
        " broken, or it dropped this client without a word."
    )


def lost_nothing(direction: int, numbers: Sequence[int]) -> str:
    """Return that other connections of the server lost next to nothing."""
    return (
        f"{_SERVER_LINK}{_some(numbers)} lost next to nothing from {_ARROWS[direction]} at that"
        " time"
    )


_SERVER: Final = "the server as a whole: "
_SERVER_LINK: Final = "the link of the server: "


def is_of_server(text: str) -> bool:
    """Return whether what was ruled out is what other connections of the server show."""
    return text.startswith((_SERVER, _SERVER_LINK))


def _some(numbers: Sequence[int]) -> str:
    """Return the names of a few connections, and how many more there are."""
    shown = ", ".join(f"c{number}" for number in numbers[:_SHOWN])
    more = len(numbers) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


_SHOWN: Final = 3
"""Connections that are named."""
_SEEN_ON_NS: Final = 1_000_000_000
"""What comes of its peer for so long after the last packet of a silent side shows that the capture
still saw this connection. Else its own link may have ended before others of the file, as in
captures put together.
"""


def whose(report: ConnectionReport, span: QuietSpan) -> str:
    """Return how sure it is whose fault a quiet span was."""
    side, other = SIDES[span.direction], SIDES[1 - span.direction]
    if span.kind == "one-way":
        many = span.unanswered >= MANY_ASKED
        sure = report.vantage == side and many and not _renewed(report, span)
        return "likely" if sure else "cannot tell"
    if report.vantage == side:
        unseen = span.to_ns is None and report.last_time_ns - span.from_ns < _SEEN_ON_NS
        return "cannot tell" if report.misses_frames or unseen else "certain"
    return "likely" if report.vantage == other and _went_on(report, span) else "cannot tell"


def _renewed(report: ConnectionReport, span: QuietSpan) -> bool:
    """Return whether the side that did not answer forgot the connection meanwhile."""
    sign = report.end_hint
    if sign is None or sign.kind != "renewed" or sign.direction == span.direction:
        return False
    return sign.time_ns >= span.from_ns and (span.to_ns is None or sign.time_ns <= span.to_ns)


def _went_on(report: ConnectionReport, span: QuietSpan) -> bool:
    """Return whether numbers of a silent side are missing after the silence, and only there."""
    return any(
        burst.count >= MANY_MISSING and spans(burst, span)
        for space in report.spaces
        if space.direction == span.direction
        for burst in space.bursts
    )


def loss_text(direction: int, loss: Loss, back: Loss | None = None) -> str:
    """Return what was lost of a direction, and what that rests on; `back`: the loss of the other
    one, where that does not explain it.
    """
    share = f"{100 * (loss.share or 0.0):.1f}%"
    side, other = SIDES[direction], SIDES[1 - direction]
    sent = f"{share} of what the {side} sent"
    match loss.basis:
        case "told":
            return f"{sent} was lost on its way to the {other}, which reports it."
        case "observed":
            return (
                f"{sent} was lost on its way: the capture is next to the {other}, and those numbers"
                " are missing there."
            )
        case "inferred":
            return (
                f"{sent} did not arrive at the {other}, or was never sent: those numbers are"
                f" missing next to the {other}, and the {side} may have skipped some."
            )
        case _ if back is not None:
            return (
                f"{sent} was sent again or not acknowledged, and of {back.sent} that came back"
                f" {back.lost or 'none'} {'was' if back.lost == 1 else 'were'} lost: most of it was"
                f" lost on its way to the {other}."
            )
    return (
        f"{sent} was sent again or not acknowledged: at most so much was lost, or the"
        " acknowledgements of it were."
    )


def slow_text(side: str, closed_ms: float) -> str:
    """Return what is said of a side whose program does not read."""
    return (
        f"The receive window of the {side} was closed for {closed_ms / 1e3:.1f} s in all: its"
        " program did not read."
    )


def one_way_only(report: ConnectionReport) -> str:
    """Return a further sentence: that a side was there, and the capture has nothing of it; ""
    where it has, or where nobody can tell.
    """
    heard = [side for side, count in zip(SIDES, report.datagrams, strict=True) if count]
    if len(heard) != 1 or not report.misses_frames:
        return ""
    return f" The capture has only what the {heard[0]} sent."


def plain_cause(
    report: ConnectionReport, ending: Ending, what: str, *, calm: bool = True
) -> str:
    """Return the cause that an ending names itself; `calm`: nothing bad was seen."""
    reason = f" ({ending.reason})" if ending.reason else ""
    match what:
        case "rejected":
            return f"The {ending.by or 'server'} refused the connection{reason}."
        case "unreachable":
            return f"The host of {report.server} says that nobody listens on the port."
        case "no-answer":
            return (
                "Nothing came back: whether the server was not there, would not answer, or the path"
                " was broken cannot be told from here."
            )
        case "quality":
            return f"By its own rule the {ending.by} closes a connection this poor{reason}."
        case "closed":
            ended = f"The {ending.by} ended it" if ending.by in SIDES else "It was ended"
            also = _ALSO_SENT.get(ending.reason or "", "")
            return f"{ended}{reason}{'; nothing bad was seen before' if calm else ''}.{also}"
        case _:
            quiet = "Nothing bad was seen." if calm else ""
            return _TIMED_OUT[ending.by] if ending.how == "timed-out" else quiet


_ALSO_SENT: Final = {
    "FIN": " A system sends FIN also for a program that died.",
    "RST": " A firewall on the path may have sent the RST in its name.",
}
"""What TCP says at the end -> who else may have made it say so."""
_TIMED_OUT: Final = {
    "client": "The client no longer heard from the server what keeps a connection alive.",
    "server": "The server no longer heard from the client what keeps a connection alive.",
    "both": "Neither side was heard any more: whether both stopped or the path between them was"
    " broken cannot be told from here.",
    None: "What keeps a connection alive was no longer heard.",
}
"""Side whose timer fired -> why, where no silence shows it."""


def late_text(units: int, limits: Limits) -> str:
    """Return a further sentence: how much of what was sent again came late, or its answer did."""
    were = "was" if units == 1 else "were"
    return (
        f" Of what was sent again, {units} {were} acknowledged more than {limits.late_delivery} ms"
        " late."
    )


def untold_loss(directions: list[int]) -> str:
    """Return a further sentence: that what these directions lost cannot be told; "" for none."""
    if not directions:
        return ""
    way = f" from {_ARROWS[directions[0]]}" if len(directions) == 1 else ""
    return f" What was lost{way} cannot be told from here."


def no_loss(direction: int, loss: Loss) -> str:
    """Return that a direction lost little."""
    share = f"{100 * (loss.share or 0.0):.1f}%"
    return f"loss from {_ARROWS[direction]}: {share} of {loss.sent} ({loss.basis})"


def not_the_network(side: str) -> str:
    """Return that the network is not to blame for a silence of a side next to the capture."""
    return f"the network: the capture is next to the {side}, and the {side} sent nothing"


def second_capture(report: ConnectionReport, cause: Cause) -> str:
    """Return what a capture elsewhere would settle."""
    known = report.vantage in SIDES
    other = SIDES[1 - SIDES.index(report.vantage)] if known else ""
    where = f"next to the {other}" if known else "next to each side"
    what = {
        "silence": "whether anything was sent in the silence",
        "one-way": "whether what was sent arrived",
        **dict.fromkeys(
            ("loss", "none", "closed"), "which datagrams were lost, and in which direction"
        ),
        "no-answer": "whether the first datagrams arrived",
    }.get(cause.what, "what each side saw")
    return f"A capture {where} at the same time would show {what}."


def _seconds(span_ns: int) -> str:
    return f"{span_ns / 1e9:.1f} s"
