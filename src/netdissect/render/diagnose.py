"""Prints diagnoses, one block per connection."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from netdissect.model.diagnosis import (
    ENDINGS,
    LOSS_BASIS,
    AddedDelay,
    Cause,
    Diagnosis,
    LateUnit,
    Loss,
)
from netdissect.model.packets import SIDES, Direction
from netdissect.model.reports import ConnectionReport
from netdissect.render.console import Line, Screen
from netdissect.render.safe import safe
from netdissect.render.units import (
    Clock,
    arrow_of,
    counted,
    dialect_text,
    duration,
    in_brackets,
    percent,
    seen_at,
)

HANG = 3
"""Indentation of the lines about a connection, in columns."""

_NAME_COLUMNS = 10
_WORST = 3
"""Maximum number of late units that are listed."""
_SPREAD = 4
"""Minimum number of late units for which percentiles are shown."""
_LEAST_SHARE = 0.0005
"""Minimum share that is shown as a percentage: less would be rounded to 0.0%."""
_BAD = 600
_DOUBTFUL = 400
"""Minimum badness of a verdict that is shown as bad, or as doubtful."""


def show_diagnoses(
    screen: Screen,
    reports: Sequence[ConnectionReport],
    clock: Clock,
    file: str,
    limit: int | None = None,
) -> None:
    """Print one block per connection, in the given order.

    Of several connections, how they ended comes first, and those without a problem take one line.

    Args:
        screen: where to.
        reports: the connections, worst first.
        clock: formats times.
        file: the capture, for the suggested commands.
        limit: maximum number of connections that are shown; None = all.

    """
    if not reports:
        screen.text("No connection of a known protocol.")
        return
    several = len(reports) > 1
    if several:
        screen.line((_summary(reports), "title"), hang=HANG)
    after_brief = False
    for number, report in enumerate(islice(reports, limit)):
        found = report.diagnosis
        if found is None:
            continue
        brief = several and _is_harmless(found)
        if (number or several) and not (brief and after_brief):
            screen.text()
        after_brief = brief
        title, verdict = _title(screen, report, found), (found.verdict, style_of(found))
        if brief:
            screen.line(*title, ("  ", ""), verdict, hang=HANG)
            continue
        screen.line(*title, (f", {seen_at(report.vantage)}", "dim"), hang=HANG)
        screen.line(("   ", ""), verdict, hang=HANG)
        # There is nothing more to say about a mere query and its answer.
        if found.ending.how != "info-only":
            _show_facts(screen, _facts(report, found, clock, file))


def _show_facts(screen: Screen, facts: Iterable[tuple[str, str]]) -> None:
    for name, text in facts:
        head = f"   {name:<{_NAME_COLUMNS}}  "
        # A command stays on one line, so that it can be copied.
        hang = None if name == "see" else len(head)
        screen.line((head, "dim"), (safe(text, 600), ""), hang=hang)


def _summary(reports: Sequence[ConnectionReport]) -> str:
    """Return how many connections there are, how they ended, and how many had no problem."""
    ended: Counter[str] = Counter()
    harmless = 0
    for report in reports:
        if report.diagnosis is not None:
            ended[report.diagnosis.ending.how] += 1
            harmless += _is_harmless(report.diagnosis)
    which = f" in {harmless:,}" if harmless < len(reports) else ""
    seen = f"; no problem was seen{which}" if harmless else ""
    return f"{counted(len(reports), 'connection')}, worst first: {endings_text(ended)}{seen}"


def _is_harmless(found: Diagnosis) -> bool:
    """Return whether nothing is to be explained: no problem was seen, and it did not end in one."""
    return found.cause.calm and found.badness < _DOUBTFUL


def style_of(found: Diagnosis) -> str:
    """Return the style of a verdict."""
    if found.badness >= _BAD:
        return "bad"
    return "note" if found.badness >= _DOUBTFUL else "good"


def endings_text(counts: Mapping[str, int]) -> str:
    """Return how connections ended, of which there are so many per `Ending.how`, worst first."""
    return ", ".join(
        f"{counts[how]:,} {text}" for how, (_, text) in ENDINGS.items() if counts.get(how)
    )


def brief_lines(found: Diagnosis) -> Iterator[Line]:
    """Yield the verdict and, if there was trouble, its cause: the head of a connection."""
    yield [("   ", ""), (found.verdict, style_of(found))]
    if found.cause.what in _TROUBLE:
        yield [("   ", ""), (f"{found.cause.confidence}: ", "dim"), (found.cause.text, "")]


def loss_text(part: Loss) -> str:
    """Return the loss of a direction as a short text: `5.2%`, `<=5.2%`, `>=5.2%` or `?`."""
    if part.share is None:
        return "?"
    return (part.limit("<=", ">=") if part.lost else "") + percent(part.share)


def _title(screen: Screen, report: ConnectionReport, found: Diagnosis) -> Line:
    client, server = (
        screen.name(address) + in_brackets(name)
        for address, name in zip((report.client, report.server), found.names, strict=True)
    )
    return [
        (f"c{report.connection}  ", "title"),
        (dialect_text(report.dialects), "protocol"),
        (f"  {client} → {server} {report.transport}", ""),
    ]


def _facts(
    report: ConnectionReport, found: Diagnosis, clock: Clock, file: str
) -> Iterator[tuple[str, str]]:
    yield "ended", f"{found.ending.text} ({found.ending.confidence})"
    yield "cause", _cause(found.cause, clock)
    # Of a side that is silent at the end, nobody knows what was lost then.
    dark = {
        span.direction for span in report.quiet if span.kind == "silence" and span.to_ns is None
    }
    yield "loss", "; ".join(
        loss_line(way, part)
        + (" before the silence" if way in dark and part.is_seen else "")
        for way, part in enumerate(found.loss)
    )
    if found.around is not None:
        for when, both in (("before", found.around.before), ("during", found.around.inside)):
            known = [
                loss_line(way, one)
                for way, one in enumerate(both)
                if one.share is not None and one != found.loss[way]
            ]
            if known:
                # Of the silence, or of what was not answered, that the line above is about.
                yield f"{when} it", "; ".join(known)
    lag = found.lag
    path = "round-trip time " + ("unknown" if lag.path_ms is None else duration(lag.path_ms))
    if lag.p95_ms is not None and lag.p95_ms != lag.path_ms:
        path += f", 95% within {duration(lag.p95_ms)}"
    yield (
        "lag",
        "; ".join([path, *(_late(way, late) for way, late in enumerate(lag.added) if late.units)]),
    )
    name = shlex.quote(file)
    worst = [each for late in lag.added for each in late.worst if each.added_ms > 0]
    worst = sorted(worst, key=lambda each: -each.added_ms)[:_WORST]
    for each in worst:
        yield (
            "late",
            f"{each.space} {each.seq}, #{each.frame}: acknowledged {duration(each.added_ms)} late,"
            f" after {each.copies} copies",
        )
    for text in found.ruled_out:
        yield "ruled out", text
    if found.settles:
        yield "to settle", found.settles
    yield from (("see", f"netdissect {command}") for command in _commands(found, name, worst))


def _commands(found: Diagnosis, name: str, worst: Sequence[LateUnit]) -> Iterator[str]:
    """Yield the commands that show the deciding frame and the latest unit."""
    ending, cause = found.ending, found.cause
    frame = cause.from_frame if cause.what == "malformed" else ending.frame or cause.from_frame
    if frame is not None:
        yield f"show {name} {frame}"
    if worst:
        yield f"ladder {name} --around '#{worst[0].frame}'"


_TROUBLE = frozenset({"silence", "one-way", "loss", "no-answer", "slow-receiver", "malformed"})
"""`Cause.what` of what went wrong."""
_WHAT = {
    "silence": "silence of {}",
    "one-way": "no answer to what {} sent",
    "no-answer": "no answer",
    "slow-receiver": "receiver does not read",
    "malformed": "malformed data",
    "quality": "poor quality",
    "none": "none known",
}
"""`Cause.what` -> phrase."""


def _cause(cause: Cause, clock: Clock) -> str:
    head = _WHAT.get(cause.what, cause.what)
    if cause.what in ("silence", "one-way"):
        side = None if cause.direction is None else SIDES[cause.direction]
        head = head.format("both sides" if side is None else f"the {side}")
        if cause.from_ns is not None:
            until = "the end" if cause.to_ns is None else clock.show(cause.to_ns)
            head += f" from {clock.show(cause.from_ns)} to {until}"
    return f"{head} ({cause.confidence}): {cause.text}"


def loss_line(way: int, part: Loss) -> str:
    """Return the loss of a direction with its basis."""
    if part.share is None:
        return f"{arrow_of(Direction(way))} unknown"
    if not part.lost:
        word = {"bound": "retransmitted", "told": "reported lost"}.get(part.basis, "missing")
        return f"{arrow_of(Direction(way))} none of {part.sent} {word}"
    share = f"{part.lost}" if part.share < _LEAST_SHARE else percent(part.share)
    sent = f"{part.sent} sent reliably" if part.basis == "bound" else f"{part.sent}"
    return f"{arrow_of(Direction(way))} {part.limit()}{share} of {sent}, {LOSS_BASIS[part.basis]}"


def _late(way: int, late: AddedDelay) -> str:
    unit = "segment" if late.worst and late.worst[0].space == "tcp" else "message"
    # Either a copy or its acknowledgement may have been lost: late means late acknowledged.
    again = f"{arrow_of(Direction(way))} {counted(late.units, unit)} retransmitted, acknowledged"
    if late.units < _SPREAD:
        return f"{again} at most {duration(late.maximum)} late"
    return (
        f"{again} {duration(late.p50)} late (median), 95% within {duration(late.p95)}, at most"
        f" {duration(late.maximum)}; {late.over_limit or 'none'} above {duration(late.limit_ms)}"
    )
