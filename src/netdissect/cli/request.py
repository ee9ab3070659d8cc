"""The request that commands reporting on a capture get as one value from `options.report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from netdissect.cli.connection_numbers import no_such_connection
from netdissect.cli.match import Match
from netdissect.cli.output import Look
from netdissect.cli.session import Choices, Session

if TYPE_CHECKING:
    from netdissect.pipeline.reports import Reports
    from netdissect.render.units import Clock


class Request(NamedTuple):
    """The values of the operands and options that these commands share."""

    file: str
    choices: Choices
    look: Look
    as_json: bool
    times: str
    """Time format: a letter of `-t`."""
    display_filter: str | None
    limit: int | None = None
    """Maximum number of output lines; None = all."""
    second: str | None = None
    """A capture from the other side."""
    connection: int | None = None

    def session(self, *, streams: bool = False) -> Session:
        """Open the capture; `streams` as for `Session`."""
        return Session(self.file, self.choices, quiet=self.look.quiet, streams=streams)

    def match(self, session: Session) -> Match:
        """Compile the display filter for a session."""
        return Match.compile(self.display_filter, session)

    def chosen(self, reports: Reports) -> Reports:
        """Return the report of the requested connection, or all reports if none was requested.

        Raises:
            UsageError: there is no such connection.

        """
        if self.connection is None:
            return reports
        found = reports.of({self.connection})
        if not found:
            raise no_such_connection(self.connection, reports)
        return found

    def clock(self, first_ns: int | None = None) -> Clock:
        """Return the clock that formats times as requested."""
        from netdissect.render.units import Clock  # noqa: PLC0415

        return Clock(self.times, first_ns)
