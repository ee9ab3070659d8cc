"""`netdissect stats`: rates, loss and round trips over time."""

from __future__ import annotations

import sys

import click

from netdissect.cli import options
from netdissect.cli.output import make_screen, print_json
from netdissect.cli.session import Choices, Match, Session
from netdissect.cli.spans import SPAN
from netdissect.model.intervals import Interval
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import UnitRecord

__all__ = ["command"]


@click.command("stats")
@options.capture({"connection": click.IntRange(min=1)})
@options.display_filter
@click.option(
    "--interval", type=SPAN, default="1s", metavar="TIME", help="Length of a span: 1s, 100ms ..."
)
@click.option("-T", "table", type=click.Choice(["csv", "tsv"]), help="Columns for other programs.")
@options.json_output
@options.time_style
@options.analysis
@options.screen
def command(
    file: str,
    connection: int | None,
    display_filter: str | None,
    interval: int,
    table: str | None,
    as_json: bool,
    times: str,
    choices: Choices,
    color: str,
    width: int | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Show rates, loss and round trips per interval and direction.

    Goodput counts the octets of datagrams that carried more than copies already sent. Loss and
    round trips count in the span in which a unit was first sent.
    """
    del verbose
    if interval <= 0:
        raise click.BadParameter("a span is longer than nothing", param_hint="--interval")
    with Session(file, choices, quiet=quiet) as session:
        rows = _rows(session, Match.of(display_filter, session), connection, interval)
        if as_json:
            from netdissect.export import json  # noqa: PLC0415

            print_json(json.interval(row) for row in rows)
        elif table:
            from netdissect.export.table import write_rows  # noqa: PLC0415
            from netdissect.render.stats import COLUMNS, row_values  # noqa: PLC0415

            cells = (
                [() if value is None else (value,) for value in row_values(row)] for row in rows
            )
            write_rows(sys.stdout, COLUMNS, cells, kind=table)
        else:
            from netdissect.render.stats import show_stats  # noqa: PLC0415
            from netdissect.render.units import Clock  # noqa: PLC0415

            screen = make_screen(color, width)
            show_stats(
                screen,
                rows,
                Clock(times, session.first_ns),
                sparks=screen.terminal or width is not None,
            )
        return session.status()


def _rows(session: Session, match: Match, connection: int | None, interval: int) -> list[Interval]:
    from netdissect.pipeline import Intervals  # noqa: PLC0415

    table = Intervals(interval)
    units: list[UnitRecord] = []
    wanted: set[tuple[int, int, str, int]] = set()
    for item in session.both():
        if connection is not None and item.connection != connection:
            continue
        if isinstance(item, UnitRecord):
            units.append(item)
        elif (
            isinstance(item, DatagramRecord)
            and item.direction is not None
            and match.datagram(item, session.first_ns)
        ):
            facts = [
                message.reliability
                for message in match.messages(item)
                if message.reliability is not None
            ]
            table.datagram(
                item.direction, item.time_ns, item.length, [str(fact.kind) for fact in facts]
            )
            wanted |= {
                (item.connection or 0, item.direction, fact.space, fact.seq) for fact in facts
            }
    for unit in units:
        if (
            match.filter is None
            or (unit.connection, unit.direction, unit.space, unit.seq) in wanted
        ):
            table.unit(unit)
    return table.rows()
