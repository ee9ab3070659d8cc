"""What a user requests of a capture: a display filter, a connection, the form of the output."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Self

from netdissect.cli.output import Look
from netdissect.cli.session import Choices, Session
from netdissect.cli.spans import no_such_connection
from netdissect.model.annotations import Severity
from netdissect.model.records import DatagramRecord, Finding, MessageRecord, Reliability
from netdissect.model.reports import ConnectionEvent, ConnectionReport, UnitRecord

if TYPE_CHECKING:
    from netdissect.filters import Filter, Names
    from netdissect.pipeline.reports import Reports
    from netdissect.render.units import Clock

_ALIASES = {
    "frame.time": "frame.time_epoch",
    "connection": "conn.id",
    "connection.id": "conn.id",
    "conn": "conn.id",
}
"""Common misspelling -> field name."""


@cache
def filter_names() -> Names:
    """Return the names; the table is loaded once per process."""
    from netdissect import lookup  # noqa: PLC0415
    from netdissect.filters import Names  # noqa: PLC0415

    return Names(
        lookup.field_table(),
        {**_ALIASES, **lookup.field_aliases()},
        {
            "protocol": lookup.protocol_names,
            "dialect": lambda: [
                one.name for each in lookup.loaded_protocols() for one in each.dialects
            ],
            "anomaly": lookup.catalogue,
        },
    )


def compiled(text: str) -> Filter:
    """Compile a display filter.

    Raises:
        FilterError: it is invalid.

    """
    from netdissect.filters import compile_filter  # noqa: PLC0415

    return compile_filter(text, filter_names())


MAX_RECENT = 1024
"""Unpacked reports that a filter caches; the others are unpacked again on demand."""
MAX_LATE = 100_000
"""Maximum number of frames for which findings that are concluded later are remembered."""
_WHOLE_FILE = ("conn.", "anomaly")
"""Prefixes of the fields that need a first pass over the file."""
LATE_FIELDS = frozenset(
    {"dialect", "msg.acked_in", "msg.rtt", "msg.attempts", "msg.latency", "msg.added_ms"}
)
"""Fields of a record that are final only once its units are settled."""


@dataclass(slots=True)
class Match:
    """A compiled display filter with the final reports that its `conn.*` fields read."""

    filter: Filter | None = None
    reports: Reports | None = None
    late: dict[int, list[Finding]] = field(default_factory=dict)
    """Frame -> findings that were concluded later, if there was a first pass."""
    _recent: dict[int, ConnectionReport | None] = field(default_factory=dict, init=False)
    """Cache of unpacked reports by connection number."""

    @property
    def waits(self) -> bool:
        """Return whether the filter reads a field that is final only later."""
        return self.filter is not None and not LATE_FIELDS.isdisjoint(self.filter.names)

    @classmethod
    def compile(cls, text: str | None, session: Session) -> Match:
        """Compile a filter, and make a first pass over the file if its fields need one."""
        if text is None:
            return cls()
        wanted = compiled(text)
        # Connection numbers are assigned in order of first frames, so conn.id is known at once.
        needs_all = any(name.startswith(_WHOLE_FILE) for name in wanted.names if name != "conn.id")
        return cls(wanted).look_ahead(session) if needs_all else cls(wanted)

    def look_ahead(self, session: Session) -> Self:
        """Make a first pass over the file, if it can be read twice."""
        self.reports = session.first_look(on_late=self._take)
        return self

    def restrict(self, session: Session) -> None:
        """Let the session skip records that cannot match, as only this filter sees its records."""
        session.needs = None if self.filter is None else self.filter.needs

    def _take(self, code: str, severity: Severity, frame: int) -> None:
        found = self.late.get(frame)
        if found is not None or len(self.late) < MAX_LATE:
            finding = Finding(code, severity)
            found = self.late.setdefault(frame, [])
            if finding not in found:
                found.append(finding)

    def datagram(self, record: DatagramRecord, first_ns: int | None) -> bool:
        """Return whether a datagram matches; also adds its late findings to the record."""
        late = self.late.get(record.frame)
        if late is not None:
            record.findings = tuple(dict.fromkeys((*record.findings, *late)))
        if self.filter is None:
            return True
        # The time of the first frame is not known yet when the filter is compiled.
        self.filter.first_ns = first_ns or 0
        return self.filter.matches(record, self._report(record))

    def messages(self, record: DatagramRecord) -> list[MessageRecord]:
        """Return the messages of a matching datagram that match on their own; all of them if only
        several together match.
        """
        wanted, report = self.filter, self._report(record)
        if wanted is None:
            return record.messages
        alone = [item for item in record.messages if wanted.matches_message(record, item, report)]
        return [wanted.narrowed(record, item) for item in alone or record.messages]

    def _report(self, record: DatagramRecord) -> ConnectionReport | None:
        number, known = record.connection, self._recent
        if number is None or self.reports is None:
            return None
        if number not in known:
            known[number] = self.reports.by_number(number)
            if len(known) > MAX_RECENT:
                del known[next(iter(known))]
        return known[number]


MAX_KEPT_ITEMS = 100_000
"""Maximum number of units and events that are kept in memory; with more, captures are read again. A
datagram can hold hundreds of units.
"""
MAX_SELECTED = 1_000_000
"""Maximum number of units that a filter selects in a view of units."""


class Selection:
    """The part of a capture that matches a filter: its datagrams in a first reading, and the units
    and events that belong to them in a second one.
    """

    def __init__(self, session: Session, match: Match, *, units: bool = False) -> None:
        """Take a session that nothing has been read from; `units`: `items` is called, too."""
        if units and session.rereadable and session.first_pass is None:
            session.first_look()
        match.restrict(session)
        self.frames: set[int] = set()
        """Added frames; for a message of a TCP stream, every frame that carried part of it."""
        self._session, self._match, self._with_units = session, match, units
        self._units: defaultdict[tuple[int, int, str], set[int]] = defaultdict(set)
        """(connection, direction, space) -> numbers of added units."""
        self._room = MAX_SELECTED
        self._limits: Counter[str] = Counter()
        """Limit -> number of units and events beyond it."""
        self._kept: list[UnitRecord | ConnectionEvent] = []
        """All units and events of a capture that cannot be read again."""

    def datagrams(self) -> Iterator[DatagramRecord]:
        """Yield the datagrams that match."""
        session, match = self._session, self._match
        keeps = self._with_units and not session.rereadable
        for item in session.records_and_timeline(timeline=self._with_units):
            if isinstance(item, DatagramRecord):
                if match.datagram(item, session.first_ns):
                    yield item
            elif keeps:
                if len(self._kept) < MAX_KEPT_ITEMS:
                    self._kept.append(item)
                else:
                    self._limits["MAX_KEPT_ITEMS"] += 1

    @property
    def units(self) -> int:
        """Return how many units are selected so far."""
        return MAX_SELECTED - self._room

    def add(self, record: DatagramRecord) -> list[Reliability]:
        """Select the units and events of a datagram, and return what is known of these units."""
        self.frames |= {record.frame, *record.frames}
        messages = self._match.messages(record)
        facts = [each.reliability for each in messages if each.reliability is not None]
        if record.connection is not None:
            for fact in facts:
                numbers = self._units[record.connection, record.direction or 0, fact.space]
                if fact.seq not in numbers:
                    if self._room:
                        numbers.add(fact.seq)
                        self._room -= 1
                    else:
                        self._limits["MAX_SELECTED"] += 1
        return facts

    def items(self) -> Iterator[UnitRecord | ConnectionEvent]:
        """Yield the units and events of added datagrams, in time order; a unit also matches through
        its acknowledgement, which comes later.
        """
        session = self._session
        session.limits_hit = {**session.limits_hit, **self._limits}
        if session.rereadable:
            with session.reopen() as again:
                yield from filter(self._has, again.timeline())
        else:
            yield from filter(self._has, self._kept)

    def _has(self, item: UnitRecord | ConnectionEvent) -> bool:
        if isinstance(item, UnitRecord):
            return item.seq in self._units.get((item.connection, item.direction, item.space), ())
        return item.frame in self.frames


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
