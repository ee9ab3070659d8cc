"""A session's capture joined with a second one, from the other side, for the views of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from netdissect.cli.session import Session
from netdissect.cli.spans import PART, Part, check_joined_start, no_such_connection
from netdissect.model.closing import Closing
from netdissect.model.errors import UsageError
from netdissect.model.reports import ConnectionEvent, UnitRecord

if TYPE_CHECKING:
    from netdissect.model.joined import Flight
    from netdissect.pipeline.reports import Reports

PAIR_SHARE: Final = 4
"""Bounds on units are divided by this: there are two captures, and what shows both holds records of
its own.
"""
NO_STDIN = "captures are read more than once: name files instead of `-`"


class CapturePair(Closing):
    """Two joined captures of one conversation; use as a context manager.

    Raises:
        UsageError: they do not belong together, one is standard input, or a filter is given.

    """

    def __init__(self, session: Session, second: str, display_filter: str | None = None) -> None:
        from netdissect.join import join  # noqa: PLC0415
        from netdissect.join.observed import Observed  # noqa: PLC0415

        if "-" in (session.file, second):
            raise click.UsageError(NO_STDIN)
        if display_filter is not None:
            raise UsageError("-Y works on one capture: leave out the filter or the second capture")
        self.session = session
        self.second = second
        self._choices = replace(session.choices, together=PAIR_SHARE)
        options = self._choices.options()
        self.joined = join(session.file, second, options=options)
        session.joined = self.joined.report.captures
        self.observed = Observed(self.joined, options.limits)
        # Taken from the context: neither capture alone has to reach the start of the part.
        self.part = click.get_current_context().meta.pop(PART, Part())
        check_joined_start([self.joined], self.part)
        self.window = self._window()
        """(from, to) of the requested span, ns on the first capture's clock; None = open."""

    def _window(self) -> tuple[int | None, int | None]:
        start, end, frames = self.part[:3]
        if not frames:
            first_ns = self.first_ns or 0
            return (
                None if start is None else first_ns + start,
                None if end is None else first_ns + end,
            )
        low, high = start or 0, end or 0
        near = (self.joined.fate(0, frame).common_ns for frame in range(low, high + 1))
        known = [moment for moment in near if moment]
        # If none of these frames is in both captures, the span is empty.
        return (min(known), max(known)) if known else (0, 0)

    def _wanted(self, connection: int | None, number: int, *moments: int) -> bool:
        """Return whether connection `number` and at least one of the moments are requested."""
        start, end = self.window
        return (
            connection in (None, number)
            and (not self.part.connections or number in self.part.connections)
            and any(
                (start is None or start <= moment) and (end is None or moment <= end)
                for moment in moments
            )
        )

    def close(self) -> None:
        """Close both captures."""
        self.joined.close()

    def _open(self, connection: int | None) -> tuple[Session, Session]:
        """Open both captures for what they show of a connection (None = of all requested)."""
        first = Session(self.session.file, self._choices, quiet=True)
        other = Session(self.second, self._choices, quiet=True)
        wanted = self.part.connections if connection is None else {connection}
        if wanted:
            for capture, session in enumerate((first, other)):
                session.only = self.observed.own_numbers(capture, wanted)
        return first, other

    @property
    def reports(self) -> Reports:
        """Return the requested connections that both captures have."""
        start, end = self.window
        every = self.observed.reports().of(set(self.observed.numbers()))
        return every.of(
            {
                report.connection
                for report in every
                if report.connection in (self.part.connections or {report.connection})
                and (start is None or start <= report.last_time_ns)
                and (end is None or report.first_time_ns <= end)
            }
        )

    @property
    def first_ns(self) -> int | None:
        """Return the time of the first capture's first frame."""
        return self.joined.report.captures[0].first_time_ns

    def check(self, connection: int | None) -> None:
        """Raise UsageError unless both captures have the connection."""
        if connection is not None and connection not in self.observed.numbers():
            raise no_such_connection(connection, self.joined.reports[0])

    def timeline(self, connection: int | None) -> Iterator[UnitRecord | ConnectionEvent]:
        """Yield the units and events of a connection (None = all) as seen in both captures."""
        self.check(connection)
        first, other = self._open(connection)
        with first, other:
            for item in self.observed.timeline((first.timeline(), other.timeline())):
                moments = (
                    [copy.time_ns for copy in item.copies]
                    if isinstance(item, UnitRecord)
                    else [item.time_ns]
                )
                if self._wanted(connection, item.connection, *moments):
                    yield item

    def flights(self, connection: int | None) -> Iterator[Flight]:
        """Yield the datagrams of a connection (None = all), each with its fate on the way.

        Raises:
            UsageError: they cannot be compared, because a proxy is between the captures.

        """
        self.check(connection)
        observed = self.observed
        asked = set(observed.numbers()) if connection is None else {connection}
        if asked and not asked & observed.compared:
            raise UsageError(
                f"the captures hold one stream of connection {min(asked)} in two TCP connections,"
                " whose segments cannot be compared: use one capture, or `join`"
            )
        first, other = self._open(connection)
        with first, other:
            for flight in observed.flights((first.records(), other.records())):
                if self._wanted(connection, flight.record.connection or 0, flight.moment_ns):
                    yield flight
