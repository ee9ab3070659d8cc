"""`netdissect stats`: rates, loss and round-trip times per interval."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from netdissect.cli import options
from netdissect.cli.capture_pair import CapturePair
from netdissect.cli.output import one_view, print_json
from netdissect.cli.request import Match, Request, Selection
from netdissect.cli.session import Session
from netdissect.cli.spans import LENGTH
from netdissect.model.intervals import Interval
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import ConnectionReport, UnitRecord

if TYPE_CHECKING:
    from netdissect.pipeline import Intervals


@click.command("stats")
@options.capture({"connection": options.COUNT}, second=True)
@options.narrowed
@click.option(
    "--interval", type=LENGTH, default="1s", metavar="TIME", help="Length of an interval."
    "  [default: 1s]",
)
@click.option(
    "-T", "table", type=click.Choice(["csv", "tsv"]), help="Print a table for other programs."
)
@options.report
def command(request: Request, interval: int, table: str | None) -> int:
    """Show rates, loss and round-trip times per interval and direction.

    Goodput excludes datagrams that only carried further copies. Units, loss and round-trip times
    count in the interval in which the unit was first sent. A dash means that the capture does not
    show the figure. With a capture from the other side as FILE2, loss is what did not arrive
    there, and the one-way delay is shown as well.

    \b
    netdissect stats game.pcap 1 --interval 500ms
    netdissect -z io,stat,1 game.pcap
    """
    one_view(("--json", request.as_json), ("-T", table))
    with request.session() as session:
        session.only = None if request.connection is None else frozenset({request.connection})
        if request.second is None:
            rows = _rows(session, request.match(session), request.connection, interval)
        else:
            rows = _observed(session, request.second, request, interval)
        if request.as_json or table:
            from netdissect.export import json  # noqa: PLC0415

            found = map(json.interval, rows)
            if table:
                from netdissect.export.table import write_columns  # noqa: PLC0415

                write_columns(sys.stdout, json.INTERVAL, found, table)
            else:
                print_json(found)
        else:
            from netdissect.render.stats import show_stats  # noqa: PLC0415

            screen = request.look.screen()
            show_stats(
                screen,
                rows,
                request.clock(session.first_ns),
                sparks=screen.terminal or request.look.width is not None,
            )
        return session.status()


def _rows(session: Session, match: Match, connection: int | None, interval: int) -> list[Interval]:
    """Return the intervals of one capture."""
    from netdissect.pipeline import Intervals  # noqa: PLC0415

    table = Intervals(interval, partial=match.filter is not None)
    if match.filter is not None:
        _matching(session, match, connection, table)
        return table.rows()

    def count(
        number: int, _protocol: str, direction: int, time_ns: int, octets: int,
        repeated: bool,
    ) -> None:  # fmt: skip
        if number == connection:
            table.datagram(direction, time_ns, octets, repeated=repeated)

    def ended(report: ConnectionReport) -> None:
        if connection is not None and report.connection != connection:
            table.leave_out(report.connection)
        table.place((report,))

    session.count(table.count if connection is None else count, ended, table)
    list(session.of_connection(connection, ()))  # raises if there is no such connection
    return table.rows()


def _observed(session: Session, second: str, request: Request, interval: int) -> list[Interval]:
    """Return the intervals of two joined captures, with the times of each sender's capture."""
    from netdissect.pipeline import Intervals  # noqa: PLC0415

    with CapturePair(session, second, request.display_filter) as both:
        table = Intervals(interval)
        for flight in both.flights(request.connection):
            # No endpoint sent a duplicate made by the network.
            if flight.sent_ns is not None and not flight.copy:
                record = flight.record.with_time(flight.sent_ns)
                _datagram(table, record, record.kinds or ())
        for item in both.timeline(request.connection):
            if isinstance(item, UnitRecord):
                table.tell(item)
        rows = table.rows()
        both.observed.spans(rows, request.connection, both.window)
        return rows


def _matching(session: Session, match: Match, connection: int | None, table: Intervals) -> None:
    """Count the datagrams that match, and the units on them."""
    selection = Selection(session, match, units=True)
    for record in session.of_connection(connection, selection.datagrams()):
        _datagram(table, record, [fact.kind for fact in selection.add(record)])
    table.place(session.reports)
    for unit in selection.items():
        if isinstance(unit, UnitRecord):
            table.tell(unit, selection.frames)


def _datagram(table: Intervals, record: DatagramRecord, kinds: Sequence[str | None]) -> None:
    if record.direction is not None:
        repeated = bool(kinds) and "original" not in kinds
        table.datagram(record.direction, record.time_ns, record.length, repeated=repeated)
