"""`netdissect timeline`: what happened to every reliable unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

import click

from netdissect.cli import options
from netdissect.cli.output import make_screen, print_json
from netdissect.cli.session import Choices, Match, Session, select
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.render.console import Screen

__all__ = ["command"]

_Item: TypeAlias = UnitRecord | ConnectionEvent
_ONLY: dict[str, Callable[[_Item], bool]] = {
    "resent": lambda item: isinstance(item, UnitRecord) and len(item.copies) > 1,
    "lost": lambda item: isinstance(item, UnitRecord) and item.outcome in {"unacked", "given_up"},
    "units": lambda item: isinstance(item, UnitRecord),
    "events": lambda item: isinstance(item, ConnectionEvent),
}


@click.command("timeline")
@options.capture({"connection": click.IntRange(min=1)})
@options.display_filter
@options.count
@click.option(
    "--only", type=click.Choice(list(_ONLY)), help="Only units sent again, never acknowledged ..."
)
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

    First two lanes that show a whole connection at a glance. Then a line per unit: when it was
    sent, how often, when it was acknowledged and how long that took; below it each resend, when its
    sender's timer was due and how much later it came. Between them what happened to the connection:
    states, timeouts.

    \b
    netdissect timeline game.pcap 1 --only resent
    """
    del verbose
    with Session(file, choices, quiet=quiet, streams=as_json) as session:
        items = session.of(connection, _items(session, display_filter))
        if as_json:
            from netdissect.export import json  # noqa: PLC0415

            items = filter(_ONLY[only], items) if only else items
            rows = (
                json.unit(item) if isinstance(item, UnitRecord) else json.event(item)
                for item in items
            )
            print_json(islice(rows, limit), flush=session.live)
        else:
            shown = _Shown(connection, limit, only, probes=probes)
            _print(session, list(items), shown, times, make_screen(color, width))
        return session.status()


def _items(session: Session, display_filter: str | None) -> Iterator[_Item]:
    match = Match.of(display_filter, session)
    if match.filter is None:
        yield from session.timeline()
    else:
        yield from select(session, match).items


@dataclass(frozen=True, slots=True)
class _Shown:
    """What is to have a line of its own; the lanes show everything."""

    connection: int | None
    limit: int | None
    only: str | None
    probes: bool

    def of(self, items: list[_Item]) -> list[_Item]:
        """Return the items that are wanted."""
        wanted = (item for item in items if self.only is None or _ONLY[self.only](item))
        if not self.probes:
            wanted = (
                item for item in wanted if isinstance(item, UnitRecord) or item.event != "probe"
            )
        return list(islice(wanted, self.limit))


def _print(session: Session, items: list[_Item], shown: _Shown, times: str, screen: Screen) -> None:
    """Print the overview of each connection, then its units and events."""
    from netdissect.render.timeline import show_timeline  # noqa: PLC0415
    from netdissect.render.units import Clock  # noqa: PLC0415

    reports = [
        report for report in session.reports if shown.connection in {None, report.connection}
    ]
    show_timeline(screen, reports, items, shown.of(items), Clock(times, session.first_ns))
