"""What the commands that report on a capture are all asked: one value, made by `options.report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from netdissect.cli.existing import missing
from netdissect.cli.output import Look
from netdissect.cli.session import Choices, Match, Session

if TYPE_CHECKING:
    from netdissect.pipeline.reports import Reports
    from netdissect.render.units import Clock

__all__ = ["Asked"]


class Asked(NamedTuple):
    """The values of the shared operands and options."""

    file: str
    choices: Choices
    look: Look
    as_json: bool
    times: str
    """The way times are shown."""
    display_filter: str | None
    limit: int | None = None
    """Lines of output at most."""
    second: str | None = None
    """A capture of the other side."""
    connection: int | None = None

    def session(self, *, streams: bool = False) -> Session:
        """Return the capture, opened; `streams` as of `Session`."""
        return Session(self.file, self.choices, quiet=self.look.quiet, streams=streams)

    def match(self, session: Session) -> Match:
        """Return the filter of a session."""
        return Match.of(self.display_filter, session)

    def chosen(self, reports: Reports) -> Reports:
        """Return the report of the connection that was asked for; all of them without one.

        Raises:
            UsageError: there is no such connection.

        """
        if self.connection is None:
            return reports
        found = reports.of({self.connection})
        if not found:
            raise missing(self.connection, reports)
        return found

    def clock(self, first_ns: int | None = None) -> Clock:
        """Return what shows times."""
        from netdissect.render.units import Clock  # noqa: PLC0415

        return Clock(self.times, first_ns)
