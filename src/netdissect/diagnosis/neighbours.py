"""What other connections of the same server show of one: whether its server, or the link of that,
was to blame.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from netdissect.diagnosis import words
from netdissect.diagnosis.measures import lost_hardly
from netdissect.model.diagnosis import Loss
from netdissect.model.reports import ConnectionReport

__all__ = ["Neighbours"]

MAX_NEIGHBOURS: Final = 64
"""Connections of one server that are remembered, the first ones."""


class _Neighbour(NamedTuple):
    """What is remembered of a connection."""

    number: int
    first_ns: int
    last_ns: int
    heard: tuple[bool, bool]
    """Whether (client, server) has sent anything."""
    silences: tuple[tuple[int, int, int | None], ...]
    """(direction, from, to) of each."""
    loss: tuple[Loss, Loss]


class Neighbours:
    """Connections by their server."""

    def __init__(self, reports: Iterable[ConnectionReport]) -> None:
        """Take all connections of a capture."""
        self._of: dict[str, list[_Neighbour]] = {}
        for report in reports:
            near = self._of.setdefault(report.server, [])
            if report.diagnosis is None or len(near) == MAX_NEIGHBOURS:
                continue
            first, second = report.datagrams
            spans = [span for span in report.quiet if span.kind == "silence"]
            near.append(_Neighbour(
                report.connection, report.first_time_ns, report.last_time_ns,
                (first > 0, second > 0),
                tuple((span.direction, span.from_ns, span.to_ns) for span in spans),
                report.diagnosis.loss,
            ))  # fmt: skip

    def told(self, report: ConnectionReport) -> ConnectionReport:
        """Return a report whose diagnosis says, too, what the others show of its cause."""
        found = report.diagnosis
        if found is None or found.cause.direction is None:
            return report
        cause, way = found.cause, found.cause.direction
        others = [
            other for other in self._of.get(report.server, ()) if other.number != report.connection
        ]
        if cause.what == "silence" and cause.confidence != "certain":
            start_ns, end_ns = cause.from_ns or 0, cause.to_ns or report.last_time_ns
            went_on = [other.number for other in others if _heard(other, way, start_ns, end_ns)]
            if not went_on:
                return report
            told = words.heard_meanwhile(way, went_on)
            if way and cause.confidence == "cannot tell":
                cause = replace(cause, text=words.dropped_or_broken(went_on))
        elif cause.what == "loss" and cause.confidence != "cannot tell":
            good = [other.number for other in others if _is_good(other, report, way)]
            if not good:
                return report
            told = words.lost_nothing(way, good)
        else:
            return report
        ruled_out = (*found.ruled_out, told)
        return replace(report, diagnosis=replace(found, cause=cause, ruled_out=ruled_out))


def _heard(other: _Neighbour, way: int, start_ns: int, end_ns: int) -> bool:
    """Return whether a side of another connection was heard all through a span."""
    if not other.heard[way] or other.first_ns > start_ns or other.last_ns < end_ns:
        return False
    return not any(
        side == way and from_ns < end_ns and (to_ns is None or to_ns > start_ns)
        for side, from_ns, to_ns in other.silences
    )


def _is_good(other: _Neighbour, report: ConnectionReport, way: int) -> bool:
    """Return whether another connection, most of the same time, lost next to nothing."""
    common_ns = min(other.last_ns, report.last_time_ns) - max(other.first_ns, report.first_time_ns)
    most = 2 * common_ns > report.last_time_ns - report.first_time_ns
    return most and lost_hardly(other.loss[way])
