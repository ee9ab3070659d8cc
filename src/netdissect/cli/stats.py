"""`netdissect stats`: rates, loss and round trips over time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from netdissect.cli import options
from netdissect.cli.output import make_screen, print_json
from netdissect.cli.session import Choices, Match, Session
from netdissect.cli.spans import SPAN
from netdissect.model.intervals import Interval
from netdissect.model.packets import Direction
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import ConnectionEvent, ConnectionReport, UnitRecord

if TYPE_CHECKING:
    from netdissect.pipeline import Intervals

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

    Goodput counts the octets of datagrams that carried more than copies already sent. Units, loss
    and round trips count in the span in which a unit was first sent. A figure that this capture
    cannot tell is a dash.
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

    table = Intervals(interval, partial=match.filter is not None)
    told: list[UnitRecord | ConnectionEvent] = []
    wanted: set[tuple[int, int, str, int]] = set()
    frames: set[int] | None = None if match.filter is None else set()
    for item in session.of(connection, session.both()):
        if isinstance(item, UnitRecord) or (
            isinstance(item, ConnectionEvent) and item.event == "gap"
        ):
            told.append(item)
        elif (
            isinstance(item, DatagramRecord)
            and item.direction is not None
            and match.datagram(item, session.first_ns)
        ):
            if frames is not None:
                frames |= {item.frame, *item.frames}
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
    if match.filter is not None:
        told = [item for item in told if isinstance(item, UnitRecord) and _key(item) in wanted]
    _settle(table, told, session.reports, frames)
    return table.rows()


def _key(unit: UnitRecord) -> tuple[int, int, str, int]:
    return unit.connection, unit.direction, unit.space, unit.seq


def _settle(
    table: Intervals,
    told: list[UnitRecord | ConnectionEvent],
    reports: Sequence[ConnectionReport],
    frames: set[int] | None,
) -> None:
    """Count gaps and units, now that it is known what was captured next to its receiver."""
    near = {
        (report.connection, way): report
        for report in reports
        for way, receiver in ((Direction.C2S, "server"), (Direction.S2C, "client"))
        if report.vantage == receiver
    }
    for item in sorted(told, key=_moment):
        arrived = (item.connection, item.direction) in near
        if isinstance(item, UnitRecord):
            table.unit(item, arrived=arrived, frames=frames)
        elif arrived:
            table.gap(item)
    for (number, way), report in near.items():
        for space in report.spaces:
            if space.direction == way and space.last_seq is not None:
                table.reach((number, way, space.space), space.last_seq, report.last_time_ns)


def _moment(item: UnitRecord | ConnectionEvent) -> tuple[int, int, bool]:
    """Return when a gap was noticed or a unit first seen; the gap before the unit behind it."""
    if isinstance(item, UnitRecord):
        return item.copies[0].time_ns, item.copies[0].frame, True
    return item.time_ns, item.frame or 0, False
