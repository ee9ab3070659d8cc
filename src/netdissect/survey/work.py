"""What a worker does: it turns one capture into rows of all tables.

A capture is read twice. The first pass yields connections, directions, verdicts and findings. The
second counts datagrams per interval and, with `--units`, writes a row per unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias

from netdissect._version import __version__
from netdissect.capture import open_capture
from netdissect.export import json
from netdissect.model.byconnection import ByConnection
from netdissect.model.errors import CaptureFileError, UsageError
from netdissect.model.files import pinned_files
from netdissect.model.reports import Anomaly, ConnectionEvent, ConnectionReport, UnitRecord
from netdissect.model.survey import Outcome
from netdissect.pipeline import Analysis, Intervals, Options, Pipeline, analyze, with_placements
from netdissect.pipeline.counting import OVER_NS, DatagramCounter, count_datagrams
from netdissect.pipeline.reports import Reports
from netdissect.survey.dataset import Dataset, Drafts, Staged
from netdissect.survey.rows import connection_items, unit_item
from netdissect.survey.sources import LocalCopy, Source, local_copy
from netdissect.survey.tables import day_of

MAX_OVER = 4096
"""Ended connections that are remembered before they are removed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with every capture."""

    dataset: str
    """Folder of the dataset."""
    options: Callable[[], Options]
    """Creates the pipeline's options. The worker calls it, as options cannot be pickled."""
    span_ns: int
    """Length of the intervals."""
    units: bool = False
    """Whether to write a row per unit."""


Partitions: TypeAlias = ByConnection[tuple[str | None, str]]
"""Connection -> (day, protocol): the partition of its rows."""


def survey_one(source: Source, plan: Plan) -> Outcome:
    """Add one capture to the dataset, unless it is there, and return the outcome.

    Raises:
        OSError: it cannot be read, or the dataset cannot be written; worth another attempt.

    """
    dataset = Dataset(plan.dataset)
    file = None
    try:
        with pinned_files(), local_copy(source) as file:
            if dataset.row_file(file.key).exists():
                outcome = Outcome(source.name, "skipped", file.key, source.octets)
            else:
                outcome = _surveyed(source, file, plan, dataset)
    except (CaptureFileError, UsageError) as error:
        path, key = (source.path, None) if file is None else (file.path, file.key)
        return failed(source, plan, key, str(error).replace(path, source.name))
    dataset.failure_file(source.name).unlink(missing_ok=True)
    return outcome


def survey_many(sources: Sequence[Source], plan: Plan) -> list[Outcome | None]:
    """Add several captures to the dataset; return None for those worth another attempt."""
    found: list[Outcome | None] = []
    for source in sources:
        try:
            found.append(survey_one(source, plan))
        except Exception:  # noqa: BLE001 - the next attempt reports it
            found.append(None)
    return found


def failed(source: Source, plan: Plan, key: str | None, text: str) -> Outcome:
    """Record the failure of a source in the dataset."""
    outcome = Outcome(source.name, "failed", key, source.octets, error=text)
    Dataset(plan.dataset).fail(outcome)
    return outcome


def _surveyed(source: Source, file: LocalCopy, plan: Plan, dataset: Dataset) -> Outcome:
    options = plan.options()
    found = analyze(file.path, options=options)
    with found.connections as reports, Staged(dataset, file.key) as staged:
        partitions = connection_rows(reports, staged)
        findings(found.anomalies, staged, partitions)
        found.anomalies.clear()
        staged.end_files()
        spans = Spans(plan.span_ns, found.info.first_time_ns, reports)
        counted = spans.counted(plan, partitions)
        # With `--units`, `Spans.tell` registers and removes connections itself.
        over = None if plan.units else spans.over
        options = replace(with_placements(options, found), on_report=over)
        pipeline = Pipeline(options, recorder=counted.recorder, observer=counted)
        units = unit_writer(spans, staged, partitions) if plan.units else None
        with open_capture(file.path) as reader:
            count_datagrams(reader, counted, pipeline, units)
            reader.must_reach(found.info.frames)
        return conclude(source, file, found, spans, staged, len(reports))


def conclude(
    source: Source,
    file: LocalCopy,
    found: Analysis,
    spans: Spans,
    staged: Staged,
    connections: int,
    others: Iterable[Drafts] = (),
) -> Outcome:
    """Write the intervals and the capture's own row, and commit all rows."""
    spans.write(found, staged)
    found.info.damage = found.info.damage or file.damage
    status = "done" if found.info.damage is None else "cut-short"
    item = _capture(source, found, staged, status, connections)
    staged.add("captures", {**item, "parts": file.parts})
    staged.commit(others)
    return Outcome(source.name, status, staged.key, source.octets, connections)


def connection_rows(reports: Reports, staged: Staged) -> Partitions:
    """Write the rows of all connections; return the partition of each."""
    partitions = Partitions()
    for report in reports:
        day = day_of(report.first_time_ns)
        partitions.put(report.connection, (day, report.protocol))
        for table, item in connection_items(report):
            row = {"capture": staged.key, **item}
            staged.add(table, row, day=day, protocol=report.protocol)
    return partitions


def findings(anomalies: Iterable[Anomaly], staged: Staged, partitions: Partitions) -> None:
    """Write findings."""
    for anomaly in anomalies:
        default = day_of(anomaly.time_ns), None
        day, protocol = partitions.get(anomaly.connection or 0, default)
        item = {"capture": staged.key, **json.anomaly(anomaly)}
        staged.add("findings", item, day=day, protocol=protocol)


def unit_writer(
    spans: Spans, staged: Staged, partitions: Partitions
) -> Callable[[UnitRecord | ConnectionEvent], None]:
    """Return the consumer of units and events for the second pass over a capture."""

    def write(item: UnitRecord | ConnectionEvent) -> None:
        place = partitions.get(item.connection or 0)
        if place is None:
            return
        day, protocol = place
        if isinstance(item, UnitRecord):
            row = {"capture": staged.key, **unit_item(item)}
            staged.add("units", row, day=day, protocol=protocol)
        elif item.event != "gap":
            return
        spans.tell(item, protocol)

    return write


def _capture(
    source: Source, found: Analysis, staged: Staged, status: str, connections: int
) -> dict[str, object]:
    limits = dict(found.limits_hit)
    if staged.beyond_days:
        limits["MAX_DAYS"] = staged.beyond_days
    counts = {
        name: (count["datagrams"], count["connections"]) for name, count in found.protocols.items()
    }
    return {
        **json.capture_info(found.info, counts, found.other_datagrams, asdict(found.flow)),
        "capture": staged.key,
        "path": source.name,
        "status": status,
        "version": __version__,
        "file_bytes": source.octets or None,
        "connections": connections,
        "datagrams": sum(datagrams for datagrams, _ in counts.values()),
        "limits_hit": limits,
    }


class Spans:
    """The intervals of a capture, per protocol."""

    def __init__(self, span_ns: int, first_ns: int | None, reports: Reports) -> None:
        """Prepare intervals of a length, from the time of the first frame."""
        self.tables: dict[str, Intervals] = {}
        self._span_ns = span_ns
        self._first_ns = first_ns or 0
        self._reports = reports
        self._placed: dict[str, dict[int, int]] = {}
        """Protocol -> connection -> time from which on nothing of it counts."""
        self._tidied: dict[str, int] = {}
        """Protocol -> size of its entry in `_placed` after the last removal."""

    def table(self, protocol: str) -> Intervals:
        """Return the intervals of a protocol.

        They begin at whole multiples of their length, so that those of several captures coincide.
        """
        if protocol not in self.tables:
            table = self.tables[protocol] = Intervals(self._span_ns)
            table.start_ns = self._first_ns - self._first_ns % self._span_ns
        return self.tables[protocol]

    def tell(self, item: UnitRecord | ConnectionEvent, protocol: str) -> None:
        """Count a unit or an event.

        The vantage of its connection is registered first, and removed some time after its end, so
        that memory does not grow with the number of connections.
        """
        table, number = self.table(protocol), item.connection
        placed = self._placed.setdefault(protocol, {})
        if number in placed:
            table.tell(item)
            return
        report = self._reports.by_number(number)
        if report is not None:
            table.place([report], over=False)
            placed[number] = report.last_time_ns + OVER_NS
        table.tell(item)
        # Removal looks at every connection, so many new ones share its cost.
        if report is not None and len(placed) >= self._tidied.get(protocol, 0) + MAX_OVER:
            self._tidy(protocol, report.first_time_ns)

    def over(self, ended: ConnectionReport) -> None:
        """Add the sums of an ended connection."""
        report = self._reports.by_number(ended.connection)
        if report is None:
            return
        table = self.table(report.protocol)
        table.place([report])
        table.forget(report)

    def _tidy(self, protocol: str, now_ns: int) -> None:
        placed = self._placed[protocol]
        for number in [each for each, over_ns in placed.items() if over_ns < now_ns]:
            del placed[number]
            report = self._reports.by_number(number)
            if report is not None:
                self.table(protocol).forget(report)
        self._tidied[protocol] = len(placed)

    def counted(self, plan: Plan, partitions: Partitions) -> DatagramCounter:
        """Return the observer for the second pass. The first interval is known, so the order of
        datagrams does not matter; units are only summed up unless they get rows.
        """

        def sums(number: int) -> Intervals | None:
            place = partitions.get(number)
            return None if place is None or place[1] is None else self.table(place[1])

        return DatagramCounter(self.count, ordered=False, sums=None if plan.units else sums)

    def count(
        self,
        _number: int,
        protocol: str,
        direction: int,
        time_ns: int,
        octets: int,
        repeated: bool,  # noqa: FBT001 - as in `Count`
    ) -> None:
        """Count a datagram."""
        self.table(protocol).datagram(direction, time_ns, octets, repeated=repeated)

    def write(self, found: Analysis, staged: Staged) -> None:
        """Write a row for every interval that is not empty."""
        for protocol, table in sorted(self.tables.items()):
            rows = table.rows()
            for limit, hits in (("MAX_INTERVALS", table.overflowed), ("MAX_WAITING", table.early)):
                if hits:
                    found.limits_hit[limit] = found.limits_hit.get(limit, 0) + hits
            for row in rows:
                if row.datagrams or row.copies or row.units or row.lost:
                    item = {"capture": staged.key, **json.interval(row)}
                    day = day_of(row.start_ns)
                    staged.add("intervals", item, day=day, protocol=protocol)
