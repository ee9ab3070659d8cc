"""`netdissect timeline`: what happened to every reliable unit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import click

from netdissect.cli import options
from netdissect.cli.capture_pair import PAIR_SHARE, CapturePair
from netdissect.cli.output import one_view, print_json
from netdissect.cli.request import MAX_KEPT_ITEMS, Request, Selection
from netdissect.cli.session import Session
from netdissect.cli.spans import Whole
from netdissect.model.reports import ConnectionEvent, UnitRecord

if TYPE_CHECKING:
    from netdissect.pipeline.reports import Reports

MAX_SORTED = 10_000
"""Maximum number of units that are sorted otherwise than by time."""

_Item: TypeAlias = UnitRecord | ConnectionEvent
_Again: TypeAlias = Callable[[], Iterator[_Item]]
"""Reads a capture again, and yields its units and events."""
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
    type=Whole(1, MAX_SORTED),
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
    reading, _, _ = _readings(session, request)
    yield from reading


def _readings(session: Session, request: Request) -> tuple[Iterator[_Item], _Again, int]:
    """Return the units and events of one capture, what reads them again, and how many units a
    filter has selected.
    """
    match = request.match(session)
    if match.filter is None:

        def again() -> Iterator[_Item]:
            with session.reopen() as other:
                yield from other.of_connection(request.connection, other.timeline())

        return session.of_connection(request.connection, session.timeline()), again, 0
    selection = Selection(session, match, units=True)
    for record in selection.datagrams():
        selection.add(record)

    def selected() -> Iterator[_Item]:
        return session.of_connection(request.connection, selection.items())

    return selected(), selected, selection.units


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

    A capture with many of them is read once for the overview and once for the lines, so that
    nothing is kept in memory.
    """
    lanes: Iterable[_Item]
    lines: Iterable[_Item]
    if request.second is not None:
        with CapturePair(session, request.second, request.display_filter) as both:
            number = request.connection
            once = both.timeline(number)
            most = MAX_KEPT_ITEMS // PAIR_SHARE
            lanes, lines = _twice(session, once, lambda: both.timeline(number), most)
            reports = both.reports if number is None else both.reports.of({number})
            _show(request, reports, both.first_ns, lanes, shown.of(lines))
        return
    filtered = request.display_filter is not None
    ahead = session.first_look() if session.rereadable and not filtered else None
    once, again, units = _readings(session, request)
    if ahead is not None:
        units = _units_of(ahead)
    if units <= MAX_KEPT_ITEMS or not session.rereadable:
        lanes, lines = _twice(session, once, again, MAX_KEPT_ITEMS)
        reports = session.reports
    elif session.other_connections_later:
        for _ in once:
            pass
        lanes, lines, reports = again(), again(), session.reports
    else:
        lanes, lines = again(), once
        reports = session.reports if ahead is None else ahead
    _show(request, request.chosen(reports), session.first_ns, lanes, shown.of(lines))


def _units_of(reports: Reports) -> int:
    return sum(space.units for report in reports for space in report.spaces)


def _twice(
    session: Session, once: Iterator[_Item], again: _Again, most: int
) -> tuple[Iterable[_Item], Iterable[_Item]]:
    """Return the items for two passes over them: from memory if there are at most `most`."""
    kept = list(islice(once, most))
    more = sum(1 for _ in once)  # to the end, because the reports are known only then
    if more and session.rereadable:
        kept.clear()
        return again(), again()
    if more:
        session.limits_hit = {**session.limits_hit, "MAX_KEPT_ITEMS": more}
    return kept, kept


def _show(
    request: Request,
    reports: Reports,
    first_ns: int | None,
    lanes: Iterable[_Item],
    lines: Iterable[_Item],
) -> None:
    from netdissect.render.timeline import show_timeline  # noqa: PLC0415

    show_timeline(request.look.screen(), reports, lanes, lines, request.clock(first_ns))
