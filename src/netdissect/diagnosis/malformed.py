"""What malformed data has to do with the end of a connection: the sentences about it."""

from __future__ import annotations

from typing import Final

from netdissect.model.diagnosis import Ending
from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionReport, MalformedData, QuietSpan

_SOON_NS: Final = 1_000_000_000
"""What a side does within this time after malformed data, it may do because of them: a round trip,
and the time until its program reads them.
"""
_MS: Final = 1_000_000


def ended_by(report: ConnectionReport, ending: Ending) -> MalformedData | None:
    """Return the malformed data of a stream after which its receiver ended the connection at once;
    None if there were none.

    In a stream nothing after them can be read. A malformed datagram is one that its receiver drops.
    """
    by, end_ns = ending.by, ending.time_ns
    if report.transport != "tcp" or by not in SIDES or ending.how not in ("said", "reset"):
        return None
    data = report.malformed[1 - SIDES.index(by)]
    return data if data and end_ns and 0 <= end_ns - data.time_ns <= _SOON_NS else None


def ended_text(ending: Ending, data: MalformedData) -> str:
    """Return the cause of an ending after malformed data."""
    after_ms = ((ending.time_ns or 0) - data.time_ns) / _MS
    return (
        f"The {SIDES[data.direction]} sent #{data.frame}, which is malformed ({data.code}): the"
        f" {ending.by} closed the connection {after_ms:.1f} ms later."
    )


def silence_text(report: ConnectionReport, span: QuietSpan) -> str:
    """Return a further sentence about a silence that began at malformed data of the peer; "" if
    there were none.
    """
    data = report.malformed[1 - span.direction]
    if data is None or abs(span.from_ns - data.time_ns) > _SOON_NS:
        return ""
    return (
        f" The {SIDES[1 - span.direction]} had just sent #{data.frame}, which is malformed"
        f" ({data.code}): the program of the {SIDES[span.direction]} may have crashed or hung."
    )


def seen_text(report: ConnectionReport) -> str:
    """Return a further sentence about malformed data; "" if there were none."""
    return "".join(
        f" The {SIDES[data.direction]} sent malformed data, last in #{data.frame} ({data.code})."
        for data in report.malformed
        if data is not None
    )
