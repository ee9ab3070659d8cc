"""The diagnosis of a connection as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from netdissect.export.jsonline import dump, figure, text
from netdissect.model.diagnosis import AddedDelay, Cause, Diagnosis, LateUnit, Loss
from netdissect.model.figures import digits
from netdissect.model.packets import Direction
from netdissect.model.reports import QuietSpan

_LABELS: Final = (Direction.C2S.label, Direction.S2C.label)


def label(direction: int | None) -> str | None:
    """Return the label of a direction."""
    return None if direction is None else _LABELS[direction]


def pair(first: str, second: str) -> str:
    """Return an object of two JSON values, one per direction."""
    return f'{{"c2s":{first},"s2c":{second}}}'


def rows(written: Iterable[str]) -> str:
    """Return a list of JSON values."""
    return f"[{','.join(written)}]"


def quiet(span: QuietSpan) -> str:
    """Return a span in which a side was silent, or was not answered."""
    return (
        f'{{"kind":{text(span.kind)},"direction":{text(label(span.direction))},'
        f'"from_ns":{span.from_ns},"to_ns":{figure(span.to_ns)},'
        f'"frames":[{figure(span.from_frame)},{figure(span.to_frame)}],'
        f'"basis":{text(span.basis)},"asked":{digits(span.unanswered)}}}'
    )


def diagnosis(found: Diagnosis) -> str:
    """Return the diagnosis of a connection."""
    before, between, after = parts(found)
    return f"{before}{cause(found.cause)}{between}{dump(found.ruled_out)}{after}"


def parts(found: Diagnosis) -> tuple[str, str, str]:
    """Return the diagnosis of a connection in three pieces: what comes before its cause, between
    the cause and what is ruled out, and after that. Other connections may change these two.
    """
    ending, lag, around = found.ending, found.lag, found.around
    spans = "null"
    if around is not None:
        spans = f'{{"before":{_losses(around.before)},"inside":{_losses(around.inside)}}}'
    return (
        f'{{"verdict":{text(found.verdict)},'
        f'"ended":{{"by":{text(ending.by)},"how":{text(ending.how)},'
        f'"reason":{dump(ending.reason)},"frame":{figure(ending.frame)},'
        f'"time_ns":{figure(ending.time_ns)},"confidence":{text(ending.confidence)}}},'
        '"cause":',
        f',"loss":{_losses(found.loss)},"around":{spans},'
        f'"lag":{{"path_ms":{figure(lag.path_ms)},"p95_ms":{figure(lag.p95_ms)},'
        f'"added":{pair(_late(lag.added[0]), _late(lag.added[1]))}}},'
        f'"badness":{digits(found.badness)},"ruled_out":',
        f',"second_capture":{text(found.settles)},'
        f'"names":{pair(text(found.names[0]), text(found.names[1]))}}}',
    )


def cause(found: Cause) -> str:
    """Return why a connection ended, or why it is bad."""
    return (
        f'{{"what":{text(found.what)},"direction":{text(label(found.direction))},'
        f'"from_ns":{figure(found.from_ns)},"to_ns":{figure(found.to_ns)},'
        f'"frames":[{figure(found.from_frame)},{figure(found.to_frame)}],'
        f'"confidence":{text(found.confidence)},"text":{text(found.text)},'
        f'"calm":{dump(found.calm)}}}'
    )


def _losses(parts: tuple[Loss, Loss]) -> str:
    return pair(_loss(parts[0]), _loss(parts[1]))


def _loss(part: Loss) -> str:
    return (
        f'{{"sent":{digits(part.sent)},"lost":{digits(part.lost)},"share":{figure(part.share)},'
        f'"basis":{text(part.basis)}}}'
    )


def _late(late: AddedDelay) -> str:
    return (
        f'{{"units":{digits(late.units)},"p50_ms":{figure(late.p50)},"p95_ms":{figure(late.p95)},'
        f'"max_ms":{figure(late.maximum)},"late":{digits(late.over_limit)},'
        f'"worst":{rows([_worst(each) for each in late.worst])}}}'
    )


def _worst(each: LateUnit) -> str:
    return (
        f'{{"space":{text(each.space)},"seq":{each.seq},"frame":{each.frame},'
        f'"added_ms":{figure(each.added_ms)},"copies":{digits(each.copies)}}}'
    )
