"""A second capture beside a session's: what views show of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from netdissect.cli.session import Session, missing
from netdissect.model.closing import Closing
from netdissect.model.errors import UsageError
from netdissect.model.reports import ConnectionEvent, UnitRecord

if TYPE_CHECKING:
    from netdissect.model.joined import Flight
    from netdissect.pipeline.reports import Reports

__all__ = ["TwoSides"]


class TwoSides(Closing):
    """Two captures, joined; use as a context manager.

    Raises:
        UsageError: they do not belong together, one is standard input, or a filter is given.

    """

    def __init__(self, session: Session, second: str, display_filter: str | None = None) -> None:
        from netdissect.join import join  # noqa: PLC0415
        from netdissect.join.observed import Observed  # noqa: PLC0415

        if "-" in (session.file, second):
            raise click.UsageError("captures are read more than once: name files, not `-`")
        if display_filter is not None:
            raise UsageError("-Y is for one capture: leave the second one or the filter out")
        self.session = session
        self.second = second
        self.joined = join(session.file, second, options=session.choices.options())
        self.observed = Observed(self.joined)

    def close(self) -> None:
        """Let go of both."""
        self.joined.close()

    def _open(self) -> tuple[Session, Session]:
        choices = self.session.choices
        return (
            Session(self.session.file, choices, quiet=True),
            Session(self.second, choices, quiet=True),
        )

    @property
    def reports(self) -> Reports:
        """Return the connections of the first capture that both have."""
        return self.joined.reports[0].of(set(self.observed.numbers()))

    @property
    def first_ns(self) -> int | None:
        """Return the time of the first capture's first frame."""
        return self.joined.report.captures[0].first_time_ns

    def check(self, connection: int | None) -> None:
        """Refuse a connection that both captures do not have."""
        if connection is not None and connection not in self.observed.numbers():
            raise missing(connection, self.joined.reports[0])

    def timeline(self, connection: int | None) -> Iterator[UnitRecord | ConnectionEvent]:
        """Yield units and events of a connection, or of all, as both captures show them."""
        self.check(connection)
        first, other = self._open()
        with first, other:
            for item in self.observed.timeline((first.timeline(), other.timeline())):
                if connection in (None, item.connection):
                    yield item

    def flights(self, connection: int | None) -> Iterator[Flight]:
        """Yield the datagrams of a connection, or of all, from sender to receiver."""
        self.check(connection)
        first, other = self._open()
        with first, other:
            for flight in self.observed.flights((first.records(), other.records())):
                if connection in (None, flight.record.connection):
                    yield flight
