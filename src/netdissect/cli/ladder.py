"""`netdissect ladder`: a connection as a sequence diagram."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from netdissect.cli import options
from netdissect.cli.capture_pair import CapturePair
from netdissect.cli.output import one_view, print_json, refuse_input_as_output, write_file
from netdissect.cli.request import Match, Request
from netdissect.cli.session import Session
from netdissect.cli.spans import PART, Part
from netdissect.model.errors import UsageError
from netdissect.model.packets import Direction
from netdissect.model.records import DatagramRecord, MessageRecord
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.render.console import Screen

if TYPE_CHECKING:
    from netdissect.render.ladder import Row


@click.command("ladder")
@options.capture({"connection": options.COUNT}, second=True)
@options.narrowed
@options.count
@click.option(
    "--svg", type=click.Path(dir_okay=False), metavar="FILE", help="Write an SVG picture instead."
)
@options.flag("--mermaid", help="Print Mermaid text instead.")
@options.report
def command(request: Request, svg: str | None, mermaid: bool) -> int:
    """Draw a connection as a sequence diagram.

    Each row shows its time, below it the time since the previous row, and the label above its
    arrow. `»` marks a retransmission, `○` a duplicate, and half an arrow with `╳` a datagram that
    the receiver reports lost. Silence is drawn as a gap.

    With a capture from the other side as FILE2, arrows slope from the time a datagram was sent to
    the time it arrived, and half an arrow is a datagram that was lost.

    \b
    netdissect ladder game.pcap 1 --from 3s --to 5s
    netdissect ladder client.pcap server.pcap 1 --to 2s
    """
    one_view(("--json", request.as_json), ("--svg", svg is not None), ("--mermaid", mermaid))
    from netdissect.render import ladder  # noqa: PLC0415

    refuse_input_as_output(svg or "-", [request.file, request.second])
    with request.session() as session:
        screen = request.look.screen()
        if request.second is None:
            found = _drawing(session, request, screen)
        else:
            found = _flown(session, request.second, request, screen)
        if found is None:
            if not request.as_json:
                screen.text("No connection of a known protocol.")
            return session.status()
        clock = request.clock(session.first_ns or found.first_ns)
        if request.as_json:
            print_json(_object(found.number, row) for row in found.rows)
        elif svg is not None:
            from netdissect.plot.ladder import document  # noqa: PLC0415

            write_file(svg, document(found.rows, found.ends, clock))
        elif mermaid:
            click.echo(ladder.mermaid(found.rows, found.ends, clock), nl=False)
        else:
            columns = 100 if screen.wide else screen.width
            screen.lines(ladder.ladder_lines(found.rows, found.ends, clock, width=columns))
        return session.status()


MAX_ARROWS = 200_000
"""Datagrams that are drawn: the first ones."""


class _Drawing(NamedTuple):
    """A connection's rows, ready to be drawn."""

    number: int
    rows: list[Row]
    ends: tuple[str, str]
    first_ns: int | None


def _drawing(session: Session, request: Request, screen: Screen) -> _Drawing | None:
    """Return the drawing of a connection from one capture; None if it has no connection at all.

    Raises:
        UsageError: no datagram of the connection matches.

    """
    from netdissect.render import ladder  # noqa: PLC0415

    only = click.get_current_context().meta[PART].connections
    connection = request.connection or min(only, default=None)
    session.only = frozenset({connection or 1})
    found = _Found(session, request.match(session), connection)
    # Read to the end, even with --count: later frames show which of the datagrams were lost.
    arrows = _Arrows(found.records(), request.limit)
    if arrows.first is None or arrows.last is None:
        if not session.reports:
            return None
        raise _nothing(found.number, narrowed=found.match.filter is not None)
    span = arrows.first.time_ns, arrows.last.time_ns
    whole = found.match.filter is None and request.limit is None and not arrows.missing
    drawn = ladder.with_remarks(
        arrows.rows,
        found.events_between(*span, whole=whole),
        found.lost(arrows.last),
        found.segments(*span, whole=whole),
    )
    _tell_missing(session, arrows.missing)
    return _Drawing(found.number, drawn, found.ends(arrows.first, screen), session.first_ns)


def _flown(session: Session, second: str, request: Request, screen: Screen) -> _Drawing | None:
    """Return the drawing of a connection from two captures."""
    from netdissect.render import ladder  # noqa: PLC0415

    with CapturePair(session, second, request.display_filter) as both:
        numbers = both.observed.numbers()
        if not numbers and request.connection is None:
            return None
        usual = min(both.observed.compared, default=numbers[0])
        number = request.connection or min(both.part.connections, default=usual)
        first_ns = both.first_ns or 0
        flights = both.flights(number)
        wanted = islice(flights, request.limit)
        drawn = ladder.flight_rows(
            (flight, flight.record.messages) for flight in islice(wanted, MAX_ARROWS)
        )
        if not drawn:
            raise _nothing(number, narrowed=both.part != Part())
        _tell_missing(session, sum(1 for _ in wanted))
        for _ in flights:  # read to the end, even with --count
            pass
        report = both.reports.by_number(number)
        names = ("", "") if report is None else (report.client, report.server)
        return _Drawing(number, drawn, _titles(screen, *names), first_ns)


def _tell_missing(session: Session, missing: int) -> None:
    """Note how many datagrams are not drawn because of MAX_ARROWS."""
    if missing:
        session.limits_hit = {**session.limits_hit, "MAX_ARROWS": missing}


def _titles(screen: Screen, client: str, server: str) -> tuple[str, str]:
    """Return the titles of the two lanes."""
    return f"client {screen.name(client)}", f"server {screen.name(server)}"


def _nothing(number: int, *, narrowed: bool) -> UsageError:
    """Return the error for a connection of which nothing is to be drawn."""
    if narrowed:
        where = "matches the filter or lies in the span"
        return UsageError(f"no datagram of connection {number} {where}")
    return UsageError(
        f"nothing of connection {number} can be drawn, as the capture has no whole message of it;"
        f" `timeline FILE {number}` shows what else is known"
    )


def _object(connection: int, row: Row) -> dict[str, Any]:
    """Return the JSON object of an arrow or a remark."""
    return {
        "schema": 1,
        "connection": connection,
        "time_ns": row.time_ns,
        "frame": row.frame,
        "direction": None if row.direction is None else Direction(row.direction).label,
        "mark": row.mark or None,
        "label": row.label,
        # Only an arrow from two captures has these.
        **({"arrived_ns": row.arrived_ns, "frames": list(row.names)} if row.names else {}),
    }


_Arrow: TypeAlias = tuple[DatagramRecord, list[MessageRecord]]
"""A datagram, and those of its messages that match."""
_STREAM = "tcp"
"""The space of the bytes of a TCP stream."""


class _Arrows:
    """The rows of the first datagrams. The datagrams themselves would take a thousand times as
    much.
    """

    def __init__(self, records: Iterator[_Arrow], limit: int | None) -> None:
        from netdissect.render import ladder  # noqa: PLC0415

        self.rows: list[Row] = []
        self.first: DatagramRecord | None = None
        self.last: DatagramRecord | None = None
        self.missing = 0
        """Rows that are missing because of MAX_ARROWS."""
        for number, (record, messages) in enumerate(records):
            if limit is not None and number >= limit:
                continue
            if len(self.rows) >= MAX_ARROWS:
                self.missing += 1
                continue
            self.first, self.last = self.first or record, record
            if record.direction is not None:
                self.rows.append(ladder.arrow(record, messages))


class _Found:
    """The datagrams, events and reported losses of one connection, from one pass."""

    def __init__(self, session: Session, match: Match, wanted: int | None) -> None:
        self.session = session
        self.match = match
        self.wanted = wanted
        self.number = wanted or 1
        self.events: list[ConnectionEvent] = []
        self._reported_lost: list[tuple[int, int]] = []
        """(direction, frame) of copies that their receiver reports lost."""
        self._segments: list[UnitRecord] = []
        """Bytes of a TCP stream that were captured more than once."""

    def records(self) -> Iterator[_Arrow]:
        """Yield the matching datagrams with their matching messages."""
        for item in self.session.of_connection(self.wanted, self.session.records_and_timeline()):
            if item.connection != self.number:
                continue
            if isinstance(item, ConnectionEvent):
                # The datagrams of probes and acknowledgements are drawn as arrows.
                if item.event not in {"probe", "ack"}:
                    self.events.append(item)
            elif isinstance(item, UnitRecord):
                self._keep_unit(item)
            elif self.match.datagram(item, self.session.first_ns):
                yield item, self.match.messages(item)

    def _keep_unit(self, unit: UnitRecord) -> None:
        if unit.space == _STREAM and any(copy.kind != "original" for copy in unit.copies):
            self._segments.append(unit)
        if unit.extra.get("reported") == "lost":
            self._reported_lost += [(unit.direction, copy.frame) for copy in unit.copies]

    def events_between(
        self, first_ns: int, last_ns: int, *, whole: bool
    ) -> list[ConnectionEvent]:
        """Return the events in a span, and all timeouts; all events if `whole`: a FIN or RST, which
        ends the connection, carries no message.
        """
        return [
            one for one in self.events
            if whole or one.event == "timeout" or first_ns <= one.time_ns <= last_ns
        ]  # fmt: skip

    def lost(self, last: DatagramRecord) -> frozenset[int]:
        """Return the frames that their receiver reports lost.

        In a capture next to that receiver, such a frame did arrive, but too late to be used: it is
        not drawn as lost.
        """
        vantage = last.facts.vantage if last.facts else ""
        near = {"client": Direction.S2C, "server": Direction.C2S}.get(vantage)
        return frozenset(frame for way, frame in self._reported_lost if way != near)

    def segments(self, first_ns: int, last_ns: int, *, whole: bool) -> list[UnitRecord]:
        """Return the repeated bytes: all of them if `whole`, otherwise those in a span; none if
        there is a filter, which selects messages.
        """
        if self.match.filter is not None:
            return []
        if whole:
            return self._segments
        return [
            replace(unit, copies=[one for one in unit.copies if first_ns <= one.time_ns <= last_ns])
            for unit in self._segments
        ]

    def ends(self, first: DatagramRecord, screen: Screen) -> tuple[str, str]:
        """Return the titles of the two lanes."""
        ends = (first.src, first.dst) if first.direction == 0 else (first.dst, first.src)
        return _titles(screen, *ends)
