"""A display filter applied to the records of a session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from netdissect.model.annotations import Severity
from netdissect.model.records import DatagramRecord, Finding, MessageRecord
from netdissect.model.reports import ConnectionReport

if TYPE_CHECKING:
    from netdissect.cli.session import Session
    from netdissect.filters import Filter
    from netdissect.pipeline.reports import Reports

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
        from netdissect.cli.filter_names import filter_names  # noqa: PLC0415
        from netdissect.filters import compile_filter  # noqa: PLC0415

        found = cls(compile_filter(text, filter_names()))
        # Connection numbers are assigned in order of first frames, so conn.id is known at once.
        names = set(found.filter.names) - {"conn.id"}  # type: ignore[union-attr]
        needs_all = any(name.startswith(_WHOLE_FILE) for name in names)
        return found.look_ahead(session) if needs_all else found

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
