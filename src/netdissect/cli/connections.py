"""`netdissect connections`: who talked to whom, and how it went."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from netdissect.cli import options
from netdissect.cli.output import Look, print_lines
from netdissect.cli.request import Match, Request
from netdissect.cli.session import Session
from netdissect.cli.spans import Whole

if TYPE_CHECKING:
    from netdissect.model.diagnosis import AddedDelay, Loss
    from netdissect.model.reports import ConnectionReport
    from netdissect.pipeline.reports import Lines, Reports

# Negative values put the largest first.
_SORTS: dict[str, Callable[[ConnectionReport], float]] = {
    "frame": lambda report: report.first_frame,
    "datagrams": lambda report: -sum(report.datagrams),
    "octets": lambda report: -sum(report.octets),
    "resent": lambda report: -sum(space.retransmissions for space in report.spaces),
    "duration": lambda report: report.first_time_ns - report.last_time_ns,
    "worst": lambda report: -(report.diagnosis.badness if report.diagnosis else 0),
    "loss": lambda report: -max((part.share or 0.0 for part in _loss(report)), default=0.0),
    "lag": lambda report: -max((late.p95 or 0.0 for late in _added(report)), default=0.0),
}


def _loss(report: ConnectionReport) -> tuple[Loss, ...]:
    return () if report.diagnosis is None else report.diagnosis.loss


def _added(report: ConnectionReport) -> tuple[AddedDelay, ...]:
    return () if report.diagnosis is None else report.diagnosis.lag.added


@click.command("connections")
@options.capture({"connection": options.COUNT})
@options.narrowed
@options.count
@click.option(
    "--sort",
    type=click.Choice(list(_SORTS)),
    default="frame",
    help="Sort by this, largest first; by default in order of first frames.",
)
@options.flag("--all", "everything", help="With CONNECTION, also show rows that are all 0.")
@options.flag("--explain", help="Say why each connection was recognised as its protocol.")
@click.option(
    "--processes",
    type=Whole(1, 64),
    metavar="N",
    help="Number of processes that share a large file; by default as many as are worth it.",
)
@options.report
def command(
    request: Request, sort: str, everything: bool, explain: bool, processes: int | None
) -> int:
    """Show the connections of a capture, or one of them in full.

    They are shown as a table on wide screens, and as a few lines each on narrow ones. With the
    number of a CONNECTION, everything about it is shown: messages by type, sequence spaces,
    probes, timers.

    \b
    netdissect connections game.pcap --sort datagrams -c 10
    netdissect connections game.pcap -Y 'conn.state == timed_out' --json
    """
    with request.session() as session:
        lines = _lines() if request.as_json else None
        # Sorting needs the reports, not only their JSON lines.
        kept = lines if sort == "frame" else None
        reports = reports_of(session, request.display_filter, processes, kept)
        if sort != "frame":
            reports = reports.ordered(_SORTS[sort])
        reports = request.chosen(reports)[: request.limit]
        clock = request.clock(session.first_ns)
        if lines is not None:
            print_lines(reports.lines(lines))
        else:
            from netdissect.render.connections import show_connection, show_connections  # noqa: PLC0415

            screen = request.look.screen()
            if request.connection is None:
                show_connections(screen, reports, clock, explain=explain)
            else:
                show_connection(screen, reports[0], clock, explain=explain, everything=everything)
        return session.status()


def print_connections(session: Session, display_filter: str | None, look: Look) -> None:
    """Print all connections, as the command does without options."""
    from netdissect.render.connections import show_connections  # noqa: PLC0415
    from netdissect.render.units import Clock  # noqa: PLC0415

    reports = reports_of(session, display_filter, None)
    clock = Clock("r", session.first_ns)
    show_connections(look.screen(), reports, clock, explain=False)


def _lines() -> Lines:
    from netdissect.export import json  # noqa: PLC0415
    from netdissect.pipeline.reports import Lines  # noqa: PLC0415

    return Lines(json.connection_line, json.line_parts, json.diagnosed_line, json.renumbered)


def reports_of(
    session: Session, display_filter: str | None, processes: int | None, lines: Lines | None = None
) -> Reports:
    """Return the reports of the connections with a datagram that matches a filter.

    Args:
        session: the capture.
        display_filter: None = all connections.
        processes: number of processes; None = as many as are worth it.
        lines: as in the pipeline's options, if only the JSON lines of the reports are needed.

    """
    match = Match.compile(display_filter, session)
    if match.filter is None:
        # Processes cannot share standard input.
        count = 1 if session.live else processes
        return session.analysis(count, lines=lines).connections
    wanted = {
        record.connection
        for record in session.records()
        if match.datagram(record, session.first_ns)
    }
    return session.reports.of(wanted)
