"""`netdissect timeline`: what happened to every reliable unit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeAlias

import click

from netdissect.cli import options
from netdissect.cli.output import make_screen, print_json
from netdissect.cli.session import Choices, Match, Session, select
from netdissect.model.errors import UsageError
from netdissect.model.reports import ConnectionEvent, UnitRecord

__all__ = ["command"]

_Item: TypeAlias = UnitRecord | ConnectionEvent
_ONLY = {
    "resent": lambda item: isinstance(item, UnitRecord) and len(item.copies) > 1,
    "lost": lambda item: isinstance(item, UnitRecord) and item.outcome in {"unacked", "given_up"},
    "units": lambda item: isinstance(item, UnitRecord),
    "events": lambda item: isinstance(item, ConnectionEvent),
}


@click.command("timeline")
@options.capture({"connection": click.IntRange(min=1)})
@options.display_filter
@options.count
@click.option("--only", type=click.Choice(list(_ONLY)), help="Only units sent again, never acknowledged ...")
@click.option("--probes", is_flag=True, help="Pings and heartbeats too; --json has them always.")
@options.json_output
@options.time_style
@options.analysis
@options.screen
def command(
    file: str,
    connection: int | None,
    display_filter: str | None,
    limit: int | None,
    only: str | None,
    probes: bool,
    as_json: bool,
    times: str,
    choices: Choices,
    color: str,
    width: int | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Show what happened to every reliable unit, in time.

    First two lanes that show a whole connection at a glance. Then a line per unit: when it was sent, how
    often, when it was acknowledged and how long that took; below it each resend, when its sender's timer
    was due and how much later it came. Between them what happened to the connection: states, timeouts.

    \b
    netdissect timeline game.pcap 1 --only resent
    """
    del verbose
    with Session(file, choices, quiet=quiet, streams=as_json) as session:
        items = _items(session, display_filter)
        if connection is not None:
            items = (item for item in items if item.connection == connection)
        if only is not None:
            items = filter(_ONLY[only], items)
        if as_json:
            from netdissect.export import json  # noqa: PLC0415

            rows = (json.unit(item) if isinstance(item, UnitRecord) else json.event(item) for item in items)
            print_json(islice(rows, limit), flush=session.live)
        else:
            _print(session, list(items), (connection, limit, probes, times), make_screen(color, width))
        return session.status()


def _items(session: Session, display_filter: str | None) -> Iterator[_Item]:
    match = Match.of(display_filter, session)
    if match.filter is None:
        yield from session.timeline()
    else:
        yield from select(session, match).items


def _print(
    session: Session, items: list[_Item], wanted: tuple[int | None, int | None, bool, str], screen: object
) -> None:
    """Print the overview of each connection, then its units and events."""
    from netdissect.render.timeline import show_timeline  # noqa: PLC0415
    from netdissect.render.units import Clock  # noqa: PLC0415

    connection, limit, probes, times = wanted
    reports = [report for report in session.reports if connection in {None, report.connection}]
    if connection is not None and not reports:
        raise UsageError(f"there is no connection {connection}")
    clock = Clock(times, session.first_ns)
    shown: Iterable[_Item] = items
    if not probes:
        shown = [item for item in items if isinstance(item, UnitRecord) or item.event != "probe"]
    show_timeline(screen, reports, items, list(islice(shown, limit)), clock)  # type: ignore[arg-type]
