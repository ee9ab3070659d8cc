"""What a worker does: one capture becomes rows of all tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from netdissect._version import __version__
from netdissect.export import json
from netdissect.model.errors import CaptureFileError, UsageError
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.model.survey import Outcome
from netdissect.pipeline import Analysis, Intervals, Options, Pipeline, analyze
from netdissect.pipeline.spans import Counted, tell
from netdissect.survey.dataset import Dataset, Staged
from netdissect.survey.rows import connection_items, unit_item
from netdissect.survey.sources import Source, held
from netdissect.survey.tables import day_of

__all__ = ["Plan", "survey_one"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done with every capture."""

    dataset: str
    """Folder of the dataset."""
    options: Callable[[], Options]
    """Makes the pipeline's options; called by the worker, as options hold what cannot be sent."""
    span_ns: int
    """Length of a span of `intervals`."""
    units: bool = False
    """Whether units get rows of their own."""


_Place = tuple[str | None, str]
"""(day, protocol) of a connection."""


def survey_one(source: Source, plan: Plan) -> Outcome:
    """Put one capture into the dataset, unless it is there, and return what became of it.

    Raises:
        OSError: it cannot be read, or the dataset not written; worth another attempt.

    """
    dataset = Dataset(plan.dataset)
    path, key = source.path, None
    try:
        with held(source) as (path, key):
            if dataset.row_file(key).exists():
                outcome = Outcome(source.name, "skipped", key, source.octets)
            else:
                outcome = _surveyed(source, path, key, plan, dataset)
    except (CaptureFileError, UsageError) as error:
        text = str(error).replace(path, source.name)
        outcome = Outcome(source.name, "failed", key, source.octets, error=text)
        dataset.fail(outcome)
    else:
        dataset.failure_file(source.name).unlink(missing_ok=True)
    return outcome


def _surveyed(source: Source, path: str, key: str, plan: Plan, dataset: Dataset) -> Outcome:
    options = plan.options()
    found = analyze(path, options=options)
    status = "done" if found.info.truncated_at is None else "cut-short"
    with found.connections as reports, Staged(dataset, key) as staged:
        places: dict[int, _Place] = {}
        for report in reports:
            day = day_of(report.first_time_ns)
            places[report.connection] = day, report.protocol
            for table, item in connection_items(report):
                staged.add(table, {"capture": key, **item}, day=day, protocol=report.protocol)
        near = {report.connection: report.near for report in reports}
        _findings(found, staged, places, key)
        known = replace(options, near=near, begins=found.begins)
        _in_time(path, known, plan, found, staged, places)
        staged.add("captures", _capture(source, key, found, staged, status))
        staged.commit()
        return Outcome(source.name, status, key, source.octets, len(reports))


def _findings(found: Analysis, staged: Staged, places: dict[int, _Place], key: str) -> None:
    for anomaly in found.anomalies:
        day, protocol = places.get(anomaly.connection or 0, (day_of(anomaly.time_ns), None))
        item = {"capture": key, **json.anomaly(anomaly)}
        staged.add("findings", item, day=day, protocol=protocol)


def _capture(
    source: Source, key: str, found: Analysis, staged: Staged, status: str
) -> dict[str, object]:
    limits = dict(found.limits_hit)
    if staged.beyond_days:
        limits["MAX_DAYS"] = staged.beyond_days
    counts = {
        name: (count["datagrams"], count["connections"]) for name, count in found.protocols.items()
    }
    return {
        **json.capture_info(found.info, counts, found.other_datagrams, asdict(found.flow)),
        "capture": key,
        "path": source.name,
        "status": status,
        "version": __version__,
        "file_bytes": source.octets or None,
        "connections": len(found.connections),
        "datagrams": sum(datagrams for datagrams, _ in counts.values()),
        "limits_hit": limits,
    }


class _Tables:
    """The spans of each protocol of a capture."""

    def __init__(self, span_ns: int, found: Analysis) -> None:
        self.tables: dict[str, Intervals] = {}
        self._span_ns = span_ns
        self._found = found

    def table(self, protocol: str) -> Intervals:
        """Return the spans of a protocol; all of them begin at whole multiples of their length, so
        that those of several captures fit each other.
        """
        if protocol not in self.tables:
            table = self.tables[protocol] = Intervals(self._span_ns)
            first_ns = self._found.info.first_time_ns or 0
            table.start_ns = first_ns - first_ns % self._span_ns
            table.place(each for each in self._found.connections if each.protocol == protocol)
        return self.tables[protocol]

    def count(
        self,
        _number: int,
        protocol: str,
        direction: int,
        time_ns: int,
        octets: int,
        kinds: Sequence[str | None],
    ) -> None:
        """Count a datagram."""
        self.table(protocol).datagram(direction, time_ns, octets, kinds)


def _in_time(
    path: str,
    options: Options,
    plan: Plan,
    found: Analysis,
    staged: Staged,
    places: dict[int, _Place],
) -> None:
    """Read the capture once more, for what is told in order of time: units and intervals."""
    spans = _Tables(plan.span_ns, found)

    def told(item: UnitRecord | ConnectionEvent) -> None:
        day, protocol = places.get(item.connection, (None, None))
        if protocol is None:
            return
        if isinstance(item, UnitRecord):
            if plan.units:
                row = {"capture": staged.key, **unit_item(item)}
                staged.add("units", row, day=day, protocol=protocol)
        elif item.event != "gap":
            return
        spans.table(protocol).tell(item)

    counted = Counted(spans.count)
    pipeline = Pipeline(options, recorder=counted.recorder, observer=counted)
    tell(path, counted, pipeline, told)
    _intervals(spans, found, staged)


def _intervals(spans: _Tables, found: Analysis, staged: Staged) -> None:
    for protocol, table in sorted(spans.tables.items()):
        if table.overflowed:
            found.limits_hit["MAX_INTERVALS"] = found.limits_hit.get("MAX_INTERVALS", 0) + 1
        for row in table.rows():
            if row.datagrams or row.copies or row.units or row.lost:
                told = {"capture": staged.key, **json.interval(row)}
                staged.add("intervals", told, day=day_of(row.start_ns), protocol=protocol)
