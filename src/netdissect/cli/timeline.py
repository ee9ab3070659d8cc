"""`netdissect timeline`: what happened to every reliable unit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import TypeAlias

import click

from netdissect.cli import options
from netdissect.cli.capture_pair import CapturePair
from netdissect.cli.output import one_view, print_json
from netdissect.cli.request import Request, select
from netdissect.cli.session import Session
from netdissect.model.reports import ConnectionEvent, UnitRecord

MAX_KEPT_OCTETS = 16_000_000
"""Size in bytes up to which a capture is read once and its units are kept in memory."""

MAX_SORTED = 10_000
"""Maximum number of units that are sorted otherwise than by time."""

_Item: TypeAlias = UnitRecord | ConnectionEvent
_ONLY: dict[str, Callable[[_Item], bool]] = {
    "resent": lambda item: isinstance(item, UnitRecord) and len(item.copies) > 1,
    "lost": lambda item: isinstance(item, UnitRecord) and item.outcome in {"unacked", "given_up"},
    "units": lambda item: isinstance(item, UnitRecord),
    "events": lambda item: isinstance(item, ConnectionEvent),
}


def _latency(unit: UnitRecord) -> float:
    """Return the time from a unit's first copy to its acknowledgement, ns; 0 = unacknowledged."""
    return 0.0 if unit.acked_time_ns is None else unit.acked_time_ns - unit.copies[0].time_ns


_SORTS: dict[str, Callable[[UnitRecord], float]] = {
    "latency": _latency,
    "copies": lambda unit: len(unit.copies),
}


@click.command("timeline")
@options.capture({"connection": options.COUNT}, second=True)
@options.narrowed
@options.count
@click.option(
    "--only",
    type=click.Choice(list(_ONLY)),
    help="Only units that were retransmitted, or never acknowledged; or only units, or events.",
)
@click.option("--sort", type=click.Choice(list(_SORTS)), help="Sort units by this, worst first.")
@click.option(
    "--slowest",
    type=click.IntRange(1, MAX_SORTED),
    metavar="N",
    help="Show the N units that took longest to be acknowledged.",
)
@options.flag("--probes", help="Also show pings and heartbeats, as --json always does.")
@options.report
def command(
    request: Request, only: str | None, sort: str | None, slowest: int | None, probes: bool
) -> int:
    """Show what happened to every reliable unit, in time order.

    An overview of two lanes shows the whole connection. A line per unit follows: when and how
    often it was sent, when it was acknowledged, and how long that took. Below it are its
    retransmissions, each with the time at which the sender's timer was due and how late it came.
    Events of the connection, such as state changes and timeouts, are in between.

    With a capture from the other side as FILE2, units are shown as they were sent, with the fate
    of each copy on the way.

    \b
    netdissect timeline game.pcap 1 --only resent
    netdissect timeline game.pcap --slowest 20 --from 1m --to 2m
    netdissect timeline client.pcap server.pcap 1
    """
    one_view(("--slowest", slowest), ("--sort", sort))
    limit = request.limit
    if slowest is not None:
        sort, limit = "latency", min(slowest, limit or slowest)
    shown = _Shown(limit, only, probes=probes, sort=sort)
    with request.session(streams=request.as_json) as session:
        session.only = None if request.connection is None else frozenset({request.connection})
        if request.as_json:
            from netdissect.export import json  # noqa: PLC0415

            items = _items(session, request)
            items = shown.ordered(filter(_ONLY[only], items) if only else items)
            rows = (
                json.unit(one) if isinstance(one, UnitRecord) else json.event(one) for one in items
            )
            print_json(islice(rows, limit), flush=session.live)
        else:
            _print(session, request, shown)
        session.limits_hit = {**session.limits_hit, **shown.hit()}
        return session.status()


def _items(session: Session, request: Request) -> Iterator[_Item]:
    """Yield units and events, from one capture or from two joined ones."""
    if request.second is not None:
        with CapturePair(session, request.second, request.display_filter) as both:
            yield from both.timeline(request.connection)
        return
    match = request.match(session)
    if match.filter is None:
        yield from session.of_connection(request.connection, session.timeline())
    else:
        yield from session.of_connection(request.connection, select(session, match).items)


@dataclass(slots=True)
class _Shown:
    """Selects and sorts the units and events that get a line; the overview shows all of them."""

    limit: int | None
    only: str | None
    probes: bool
    sort: str | None
    units: int = 0
    """Number of units sorted."""

    def ordered(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items in time order, or at most `MAX_SORTED` units, worst first."""
        if self.sort is None:
            return iter(items)
        most = self.limit or MAX_SORTED
        return iter(nlargest(most, self._counted(items), key=_SORTS[self.sort]))

    def _counted(self, items: Iterable[_Item]) -> Iterator[UnitRecord]:
        for item in items:
            if isinstance(item, UnitRecord) and item.copies:
                self.units += 1
                yield item

    def hit(self) -> dict[str, int]:
        """Return {limit: number of units left out} if there were too many units to sort."""
        # With --count, the user has got as many as requested.
        more = self.units - MAX_SORTED if self.limit is None else 0
        return {"MAX_SORTED": more} if more > 0 else {}

    def of(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the selected items."""
        wanted = (item for item in items if self.only is None or _ONLY[self.only](item))
        if not self.probes:
            wanted = (
                item for item in wanted if isinstance(item, UnitRecord) or item.event != "probe"
            )
        return islice(self.ordered(wanted), self.limit)


def _print(session: Session, request: Request, shown: _Shown) -> None:
    """Print the overview of each connection, then its units and events.

    A large file is read three times (connections, overview, lines), so that nothing is kept in
    memory.
    """
    from netdissect.render.timeline import show_timeline  # noqa: PLC0415

    items: Iterable[_Item]
    lanes: Iterable[_Item]
    if request.second is not None:
        with CapturePair(session, request.second, request.display_filter) as both:
            lanes = items = list(both.timeline(request.connection))
            reports, first_ns = both.reports, both.first_ns
        if request.connection is not None:
            reports = reports.of({request.connection})
    else:
        size = session.reader.progress()[1] or 0
        large = request.display_filter is None and size > MAX_KEPT_OCTETS
        items = _items(session, request)
        ahead = session.first_look() if large else None
        if ahead is None:
            lanes = items = list(items)
        else:
            lanes = _read_again(session, request.connection)
        reports = request.chosen(session.reports if ahead is None else ahead)
        first_ns = session.first_ns
    screen, clock = request.look.screen(), request.clock(first_ns)
    show_timeline(screen, reports, lanes, shown.of(items), clock)


def _read_again(session: Session, connection: int | None) -> Iterator[_Item]:
    with session.reopen() as ahead:
        yield from ahead.of_connection(connection, ahead.timeline())
