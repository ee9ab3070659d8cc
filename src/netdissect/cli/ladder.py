"""`netdissect ladder`: a connection as a diagram of two lanes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from netdissect.cli import options
from netdissect.cli.capture_output import refuse_input_as_output
from netdissect.cli.capture_pair import CapturePair
from netdissect.cli.match import Match
from netdissect.cli.output import one_view, print_json, write_file
from netdissect.cli.request import Request
from netdissect.cli.session import Session
from netdissect.cli.spans import PART, Part
from netdissect.model.errors import UsageError
from netdissect.model.packets import Direction
from netdissect.model.records import DatagramRecord, MessageRecord
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.render.console import Screen

if TYPE_CHECKING:
    from netdissect.render.ladder import Row

__all__ = ["command"]


@click.command("ladder")
@options.capture({"connection": options.COUNT}, second=True)
@options.narrowed
@options.count
@click.option(
    "--svg", type=click.Path(dir_okay=False), metavar="FILE", help="Write an SVG picture instead."
)
@click.option("--mermaid", is_flag=True, help="Print Mermaid text instead.")
@options.report
def command(
    request: Request,
    svg: str | None,
    mermaid: bool,
) -> int:
    """Draw a connection as a diagram of two lanes.

    Each row has its time, with the time since the row before below it, and the label above its
    arrow. `»` is a resend, `○` a network copy, and half an arrow with `╳` a datagram that its
    receiver reports lost. Silence is a gap.

    With a capture of the other side as FILE2, arrows slope from when a datagram was sent to
    when it arrived, and half an arrow is a datagram that was lost.

    \b
    netdissect ladder game.pcap 1 --from 3s --to 5s
    netdissect ladder client.pcap server.pcap 1 --to 2s
    """
    one_view(("--json", request.as_json), ("--svg", svg is not None), ("--mermaid", mermaid))
    from netdissect.render import ladder  # noqa: PLC0415

    refuse_input_as_output(svg or "-", [request.file, request.second or "-"])
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
            for line in ladder.ladder_lines(found.rows, found.ends, clock, width=columns):
                screen.line(*line)
        return session.status()


@dataclass(frozen=True, slots=True)
class _Drawing:
    """What is drawn of one connection."""

    number: int
    rows: list[Row]
    ends: tuple[str, str]
    first_ns: int | None


def _drawing(session: Session, request: Request, screen: Screen) -> _Drawing | None:
    """Return what one capture has of a connection; None where it has no connection at all.

    Raises:
        UsageError: nothing of the connection is wanted.

    """
    from netdissect.render import ladder  # noqa: PLC0415

    only = click.get_current_context().meta[PART].connections
    connection = request.connection or min(only, default=None)
    session.only = frozenset({connection or 1})
    found = _Found(session, request.match(session), connection)
    # Read to the end, however few are drawn: later frames tell which of them were lost.
    records = list(found.records())[: request.limit]
    if not records:
        if not session.reports:
            return None
        raise _nothing(found.number, narrowed=found.match.filter is not None)
    drawn = ladder.rows(
        records,
        found.events_between(records),
        found.lost(records),
        found.segments(records, whole=found.match.filter is None and request.limit is None),
    )
    return _Drawing(found.number, drawn, found.ends(records, screen), session.first_ns)


def _flown(session: Session, second: str, request: Request, screen: Screen) -> _Drawing | None:
    """Return the same as two captures show it."""
    from netdissect.render import ladder  # noqa: PLC0415

    with CapturePair(session, second, request.display_filter) as both:
        numbers = both.observed.numbers()
        if not numbers and request.connection is None:
            return None
        number = request.connection or min(both.part.connections, default=numbers[0])
        first_ns = both.first_ns or 0
        flights = [(flight, flight.record.messages) for flight in both.flights(number)]
        flights = flights[: request.limit]
        if not flights:
            raise _nothing(number, narrowed=both.part != Part())
        report = both.reports.by_number(number)
        names = ("", "") if report is None else (report.client, report.server)
        ends = f"client {screen.name(names[0])}", f"server {screen.name(names[1])}"
        return _Drawing(number, ladder.flight_rows(flights), ends, first_ns)


def _nothing(number: int, *, narrowed: bool) -> UsageError:
    """Return what to say where nothing of a connection is wanted."""
    why = " in this span, or that matches" if narrowed else ""
    return UsageError(f"connection {number} has no datagram to draw{why}")


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
        **_ends(row),
    }


_STREAM = "tcp"
"""Space of the bytes of a TCP stream."""


def _ends(row: Row) -> dict[str, Any]:
    """Return the added keys of an arrow of two captures."""
    if row.names is None:
        return {}
    return {"arrived_ns": row.arrived_ns, "frames": list(row.names)}


class _Found:
    """The datagrams, events and proven losses of one connection, from one pass."""

    def __init__(self, session: Session, match: Match, wanted: int | None) -> None:
        self.session = session
        self.match = match
        self.wanted = wanted
        self.number = wanted or 1
        self.events: list[ConnectionEvent] = []
        self._told_lost: list[tuple[int, int]] = []
        self._segments: list[UnitRecord] = []
        """Bytes of a TCP stream that were seen more than once."""

    def records(self) -> Iterator[tuple[DatagramRecord, list[MessageRecord]]]:
        """Yield the datagrams that match, with the messages that do."""
        for item in self.session.of_connection(self.wanted, self.session.records_and_timeline()):
            if item.connection != self.number:
                continue
            if isinstance(item, ConnectionEvent):
                # Their own datagrams are arrows already.
                if item.event not in {"probe", "ack"}:
                    self.events.append(item)
            elif isinstance(item, UnitRecord):
                if item.space == _STREAM and any(copy.kind != "original" for copy in item.copies):
                    self._segments.append(item)
                if item.extra.get("reported") == "lost":
                    self._told_lost += [(item.direction, copy.frame) for copy in item.copies]
            elif self.match.datagram(item, self.session.first_ns):
                yield item, self.match.messages(item)

    def events_between(
        self, records: list[tuple[DatagramRecord, list[MessageRecord]]]
    ) -> list[ConnectionEvent]:
        """Return the events in the span of the datagrams drawn, and those that follow the last
        one.
        """
        first, last = records[0][0].time_ns, records[-1][0].time_ns
        return [
            event
            for event in self.events
            if first <= event.time_ns <= last or event.event == "timeout"
        ]

    def lost(self, records: list[tuple[DatagramRecord, list[MessageRecord]]]) -> frozenset[int]:
        """Return the frames whose receiver has said that they never came. Next to that receiver the
        capture shows that they came after all, too late to be taken.
        """
        facts = records[-1][0].facts
        near = {"client": Direction.S2C, "server": Direction.C2S}.get(
            facts.vantage if facts else ""
        )
        return frozenset(frame for way, frame in self._told_lost if way != near)

    def segments(
        self, records: list[tuple[DatagramRecord, list[MessageRecord]]], *, whole: bool
    ) -> list[UnitRecord]:
        """Return the repeated bytes: all, or those in the span of the datagrams drawn; none where
        a filter asks for messages.
        """
        if self.match.filter is not None:
            return []
        if whole:
            return self._segments
        first, last = records[0][0].time_ns, records[-1][0].time_ns
        kept = [
            (unit, [copy for copy in unit.copies if first <= copy.time_ns <= last])
            for unit in self._segments
        ]
        return [replace(unit, copies=copies) for unit, copies in kept]

    def ends(
        self, records: list[tuple[DatagramRecord, list[MessageRecord]]], screen: Screen
    ) -> tuple[str, str]:
        """Return the names of the lanes."""
        first = records[0][0]
        ends = (first.src, first.dst) if first.direction == 0 else (first.dst, first.src)
        return f"client {screen.name(ends[0])}", f"server {screen.name(ends[1])}"
