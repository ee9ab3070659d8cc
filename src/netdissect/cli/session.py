"""One run of a command over one capture: options to the pipeline, progress, and how the run
ended.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from netdissect.cli.errors import EXIT
from netdissect.cli.existing import exist, missing
from netdissect.cli.spans import part_asked, within
from netdissect.model.annotations import Severity
from netdissect.model.records import DatagramRecord, Finding, MessageRecord
from netdissect.model.reports import (
    Anomaly,
    CaptureInfo,
    ConnectionEvent,
    ConnectionReport,
    UnitRecord,
)
from netdissect.render.safe import safe
from netdissect.system import lean, sandbox

if TYPE_CHECKING:
    from netdissect.filters import Filter
    from netdissect.pipeline import Analysis, Intervals, Options, Reading
    from netdissect.pipeline.early import Early
    from netdissect.pipeline.records import Records
    from netdissect.pipeline.reports import Reports
    from netdissect.pipeline.scenes import Scenes, Told
    from netdissect.pipeline.spans import Count

__all__ = ["Choices", "Match", "Session"]

_Item = TypeVar("_Item", bound=DatagramRecord | UnitRecord | ConnectionEvent)

LONG_OCTETS = 1024 * 1024
"""Bytes of a file of which the first records leave early."""
MAX_RECENT = 1024
"""Reports that a filter has at hand; more are made anew when they are asked for."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What decides how datagrams are understood."""

    decode_as: tuple[str, ...] = ()
    dialects: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    strict: bool = False
    byte_order: str | None = None
    """`little` or `big`."""
    inflate_limit: int | None = None
    inflate_ratio: int | None = None

    @property
    def reading(self) -> Reading | None:
        """Return what the user says about bytes; None where that is nothing."""
        from netdissect.pipeline import reading  # noqa: PLC0415

        return reading(self.byte_order, self.inflate_limit, self.inflate_ratio)

    def decoding(self) -> dict[str, Any]:
        """Return what whoever makes trees of datagrams is told."""
        from netdissect import lookup  # noqa: PLC0415

        reading = self.reading
        return {
            "schemas": lookup.load_schemas(self.schemas),
            "strict": self.strict,
            "bounds": None if reading is None else reading.bounds,
        }

    def options(self, **hooks: Any) -> Options:
        """Return the pipeline's options.

        Raises:
            UsageError: a rule, protocol, dialect or schema that does not exist.

        """
        from netdissect import lookup  # noqa: PLC0415
        from netdissect.cli.settings import limits  # noqa: PLC0415
        from netdissect.pipeline import Options, decode_as  # noqa: PLC0415

        lookup.load_schemas(self.schemas)  # a wrong one is refused by whoever makes no tree, too
        return Options(
            decode_as=tuple(decode_as(rule) for rule in self.decode_as),
            without=lookup.known_protocols(self.disabled),
            dialects=lookup.chosen_dialects(self.dialects),
            reading=self.reading,
            strict=self.strict,
            limits=limits(),
            **hooks,
        )


_LOST = {
    "MAX_REPORTS": "connections more than can be shown",
    "MAX_BRIEF": "connections of few datagrams are counted only",
    "MAX_ANOMALIES": "of the least severe findings are left out",
    "MAX_UNCOUNTED": "datagrams were counted before earlier ones of flows not yet recognised",
    "MAX_SORTED": "units come behind those that can be sorted",
    "MAX_HELD_RECORDS": "datagrams were shown before it was known what became of all their units",
}
"""Bound of the pipeline -> what is missing where it is hit."""

_CONFINED = frozenset({
    "anomalies", "connections", "diagnose", "diff", "export", "follow", "info", "ladder", "plot",
    "read", "report", "show", "stats", "timeline",
})  # fmt: skip
"""Commands that need neither a socket nor a program; those without a session confine themselves."""


class Session:
    """An open capture; use as a context manager, then ask for `status`."""

    keeps_anomalies = False
    """Whether `both` fills `anomalies`."""
    keeps_reports = True
    """Whether `both` fills `reports`."""

    def __init__(
        self,
        file: str,
        choices: Choices | None = None,
        *,
        quiet: bool = False,
        streams: bool = False,
        reader: Any = None,
    ) -> None:
        """Open the capture.

        Args:
            file: path, or `-`.
            choices: how datagrams are understood.
            quiet: no progress and no note on a cut-short file.
            streams: the command prints while it reads, so progress would tear its lines apart
                where they do not go into a file.
            reader: the capture where it is open already; None = open `file`.

        """
        from netdissect.cli.progress import Progress, to_file  # noqa: PLC0415
        from netdissect.pipeline import open_capture  # noqa: PLC0415
        from netdissect.pipeline.reports import Reports  # noqa: PLC0415

        self.file = file
        self.choices = choices or Choices()
        self.quiet = quiet
        self.progress = Progress(enabled=not quiet and (not streams or to_file()))
        self.own = reader is None
        """Whether the capture was opened here, by its name."""
        self.reader = self.progress.watch(open_capture(file) if reader is None else reader)
        self.reports = Reports()
        self.anomalies: list[Anomaly] = []
        self.limits_hit: dict[str, int] = {}
        self.needs: frozenset[str | None] | None = None
        """What the filter needs that is the only one to see the records: see `Filter.needs`."""
        self.only: frozenset[int] | None = None
        """Connections whose datagrams and units are wanted; None = all. Others may come as well."""
        self.others = True
        """Whether records of datagrams of no known protocol are wanted."""
        self._early_ns: int | None = None
        """Time of the first frame, while records leave early."""
        self._looked: Analysis | None = None
        """What a first look at the whole file has shown."""
        self.hold = True
        """Whether records wait until it is settled what became of their units; those of a file
        always do. Otherwise they are those that a file would give, but for what comes later.
        """

    def again(self, *, quiet: bool = False) -> Session:
        """Open the same file once more; `quiet` also where this one is not."""
        session = Session(self.file, self.choices, quiet=quiet or self.quiet)
        session.only, session._looked = self.only, self._looked
        return session

    @property
    def live(self) -> bool:
        """Return True where the capture arrives on standard input."""
        return self.file == "-"

    @property
    def at_once(self) -> bool:
        """Return True where a record is shown without waiting for what becomes of its units."""
        return self.live and not self.hold

    def __enter__(self) -> Self:
        context = click.get_current_context(silent=True)
        if context is not None and context.info_name in _CONFINED:
            sandbox.confine()
            lean.lean()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        self.progress.clear()
        self.reader.close()
        return None

    @property
    def first_ns(self) -> int | None:
        """Return the time of the first frame; None before it is read."""
        info: CaptureInfo = self.reader.info
        if info.first_time_ns is None and self._early_ns is not None:
            return self._early_ns
        if info.first_time_ns is None and self._looked is not None:
            return self._looked.info.first_time_ns
        return info.first_time_ns

    def status(self) -> int:
        """Say on standard error what is missing: of the output, and where the file is cut short.
        Return the exit status so far.
        """
        self.progress.clear()
        for limit, what in _LOST.items() if not self.quiet else ():
            if limit in self.limits_hit:
                print(f"netdissect: {self.limits_hit[limit]:,} {what} ({limit})", file=sys.stderr)  # noqa: T201 - as below
        info = self.reader.info
        if info.truncated_at is None:
            within(info)
            return EXIT.DONE
        if not self.quiet:
            reason = f": {info.damage}" if info.damage else ""
            print(  # noqa: T201 - the message of the contract
                f"netdissect: {safe(info.path)} is cut short at offset {info.truncated_at}"
                f"{safe(reason)}; everything before it was read",
                file=sys.stderr,
            )
        return EXIT.CUT_SHORT

    # -- what commands ask for ---------------------------------------------------------------------

    def analysis(
        self, processes: int | None = 1, *, anomalies: bool = False, **hooks: Any
    ) -> Analysis:
        """Return everything that the capture holds; `processes` None = as many as pay."""
        from netdissect.pipeline import analyze, processes_for  # noqa: PLC0415

        processes = processes_for(self.file) if processes is None else processes
        options = self.choices.options(**hooks)
        found = analyze(self.reader, options=options, processes=processes, anomalies=anomalies)
        self.anomalies = found.anomalies
        self.collect(found.connections, found.limits_hit)
        return found

    def timeline(self) -> Iterator[UnitRecord | ConnectionEvent]:
        """Yield the timeline; afterwards `reports` is filled."""
        from netdissect.pipeline import Pipeline, Recorder, iter_timeline  # noqa: PLC0415

        recorder = Recorder()
        pipeline = Pipeline(self.ahead(self.choices.options()), recorder=recorder)
        yield from iter_timeline(self.reader, pipeline=pipeline)
        self.collect(pipeline.reports, pipeline.limits_hit)

    def records(self, *, early: bool = False) -> Iterator[DatagramRecord]:
        """Yield a record per datagram, in order of frames; with `early` the first ones before the
        whole file was looked at, in which only the vantage may be told otherwise.
        """
        skip = (0, 0)
        if early and self._is_long():
            for found in self._early():
                self._early_ns, skip = found.first_ns, found.skip
                if found.record is not None:
                    yield found.record
            # These lines are read while the whole file is looked at.
            sys.stdout.flush()
        for item in self.both(timeline=False, skip=skip):
            if isinstance(item, DatagramRecord):
                yield item

    def _is_long(self) -> bool:
        """Return whether somebody would wait while the whole file is looked at."""
        if self.live or not self.own or self._looked is not None or self.choices.strict:
            return False
        file = Path(self.file)
        return file.is_file() and file.stat().st_size >= LONG_OCTETS

    def _early(self) -> list[Early]:
        """Return what leaves early."""
        from netdissect.pipeline.early import early_records  # noqa: PLC0415

        def make() -> Records:
            records = self.observer()
            records.needs = self.needs
            return records

        return early_records(self.file, make, self.choices.options(others=self.others))

    def observer(self) -> Records:
        """Return what makes records of the datagrams that a pipeline takes."""
        from netdissect.pipeline.records import Records  # noqa: PLC0415

        return Records(live=self.at_once, lazy=True, **self.choices.decoding())

    def scenes(self, told: Told, *, remember: bool) -> Scenes:
        """Return what tells of every datagram that a pipeline takes, and remembers the last."""
        from netdissect.pipeline.scenes import Scenes  # noqa: PLC0415

        return Scenes(told, remember=remember, **self.choices.decoding())

    def both(
        self, *, timeline: bool = True, skip: tuple[int, int] = (0, 0)
    ) -> Iterator[DatagramRecord | UnitRecord | ConnectionEvent]:
        """Yield records, and the timeline, in one pass; afterwards `reports` and `anomalies` are
        filled, where they are kept. `skip` as of `Records`.
        """
        from netdissect.pipeline import Pipeline  # noqa: PLC0415
        from netdissect.pipeline.anomalies import Anomalies  # noqa: PLC0415
        from netdissect.pipeline.iterate import iter_both  # noqa: PLC0415

        records = self.observer()
        records.needs, records.skip = self.needs, skip
        found = Anomalies()
        options = self.choices.options(
            on_anomaly=found.take if self.keeps_anomalies else None,
            on_report=None if self.keeps_reports else self.forget,
            others=self.others,
        )
        options = self.ahead(options).narrowed(None if timeline else self.needs)
        pipeline = Pipeline(options, recorder=records.recorder, observer=records)
        yield from iter_both(self.reader, records, pipeline, timeline=timeline)
        self.collect(pipeline.reports, pipeline.limits_hit)
        self.anomalies = found.listed()
        found.settle(self.limits_hit)

    def count(
        self,
        count: Count,
        ended: Callable[[ConnectionReport], None],
        sums: Intervals,
    ) -> None:
        """Have every datagram counted, units summed up, and each report told as soon as its
        connection is over; afterwards `reports` is filled.
        """
        from netdissect.pipeline import Pipeline  # noqa: PLC0415
        from netdissect.pipeline.reports import Reports  # noqa: PLC0415
        from netdissect.pipeline.spans import Counted, tell  # noqa: PLC0415
        reports = Reports()

        def over(report: ConnectionReport) -> None:
            ended(report)
            reports.append(report)

        counted = Counted(count, sums=lambda _: sums)
        options = self.choices.options(on_report=over)
        if self.only is not None:
            options = self.ahead(options)
        pipeline = Pipeline(options, recorder=counted.recorder, observer=counted)
        tell(self.reader, counted, pipeline)
        self.collect(reports, pipeline.limits_hit)

    def look(self, **hooks: Any) -> Reports | None:
        """Look at the whole file, and return its reports; None where it cannot be read twice. What
        is asked for afterwards rests on it.
        """
        from netdissect.pipeline import first_look  # noqa: PLC0415

        if self.live or not self.own:
            return None
        with self._looking() as watch:
            options = self.choices.options(**hooks)
            self._looked = first_look(self.file, options, processes=None, watch=watch)
        return None if self._looked is None else self._looked.connections

    @contextmanager
    def _looking(self) -> Iterator[Callable[[Any], Any]]:
        """Show how far a first look is, but where a pager has the screen and lines already."""
        from netdissect.cli.progress import Progress  # noqa: PLC0415

        paged = hasattr(sys.stderr, "terminal") and self._early_ns is not None
        progress = Progress(enabled=not self.quiet and not paged)
        yield progress.watch
        progress.clear()
        self.progress.renew()

    def ends(self, wanted: Collection[int] | None) -> set[frozenset[str]] | None:
        """Return the endpoints of connections, where a first look has shown that there are others;
        None where all packets are wanted.
        """
        looked = self._looked
        if looked is None or wanted is None or len(looked.connections) <= len(wanted):
            return None
        reports = looked.connections.of(set(wanted))
        return {frozenset((report.client, report.server)) for report in reports}

    @property
    def other_datagrams(self) -> int:
        """Return how many datagrams of no known protocol a first look has shown."""
        return 0 if self._looked is None else self._looked.other_datagrams

    def settle(self, wanted: Collection[int]) -> bool:
        """Take the reports of the first look instead of those of wanted connections alone; return
        whether these were the same.
        """
        looked, mine = self._looked, self.reports
        if looked is None:
            return True
        self.reports, self.limits_hit = looked.connections, looked.limits_hit
        both = ((mine.by_number(each), self.reports.by_number(each)) for each in wanted)
        return all(
            one is not None
            and other is not None
            and (one.first_frame, one.datagrams) == (other.first_frame, other.datagrams)
            for one, other in both
        )

    def ahead(self, options: Options, most: int | None = None) -> Options:
        """Return the options with what a first look at the whole file has shown, where it can be
        looked at twice and has at most so many bytes.
        """
        from netdissect.pipeline import informed, look_ahead  # noqa: PLC0415

        if self.live or not self.own:
            return options
        if self._looked is not None:
            options = informed(options, self._looked)
        elif most is None:
            with self._looking() as watch:
                options = look_ahead(self.file, options, processes=None, watch=watch)
        else:
            options = look_ahead(self.file, options, most=most)
        # Without a look ahead the numbers are others than those that were asked for.
        return options if options.begins is None else replace(options, only=self.only)

    def of(self, number: int | None, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items of one connection, of all for None.

        Raises:
            UsageError: all items were read and there is no such connection.

        """
        for item in items:
            if number is None or item.connection == number:
                yield item
        if number is not None and self.reports.by_number(number) is None:
            raise missing(number, self.reports)

    @staticmethod
    def forget(finding: object) -> None:
        """Keep nothing."""

    def collect(self, reports: Reports, limits_hit: dict[str, int]) -> None:
        """Take what was found; what is printed now must not follow a progress line."""
        self.progress.clear()
        info = self.reader.info
        within(info)
        self.reports, self.limits_hit = reports, limits_hit
        # Nobody knows what else a capture held that is cut short, or what was not kept.
        if info.truncated_at is None and self.own and "MAX_REPORTS" not in limits_hit:
            exist(part_asked().connections, reports)


MAX_LATE = 100_000
"""Frames of which is remembered what was concluded later."""
_ASK_ALL = ("conn.", "anomaly")
LATE_FIELDS = frozenset(
    {"dialect", "msg.acked_in", "msg.rtt", "msg.attempts", "msg.latency", "msg.added_ms"}
)
"""What of a record is known for good only when its units are settled."""


@dataclass(slots=True)
class Match:
    """A display filter, and the final reports that its `conn.*` fields read."""

    filter: Filter | None = None
    reports: Reports | None = None
    late: dict[int, list[Finding]] = field(default_factory=dict)
    """Frame -> what was concluded of it only later, where the file can be read ahead."""
    _recent: dict[int, ConnectionReport | None] = field(default_factory=dict, init=False)
    """Reports asked for last, by number of the connection."""

    @property
    def waits(self) -> bool:
        """Return whether the filter asks for something that is known only later."""
        return self.filter is not None and not LATE_FIELDS.isdisjoint(self.filter.names)

    @classmethod
    def of(cls, text: str | None, session: Session) -> Match:
        """Compile a filter; where it asks how connections end, or what is found on a datagram, and
        the file can be read twice, find out.
        """
        if text is None:
            return cls()
        from netdissect.cli.naming import names  # noqa: PLC0415
        from netdissect.filters import compile_filter  # noqa: PLC0415

        found = cls(compile_filter(text, names()))
        # Numbers are given in the order of first frames, and known at once.
        asks = any(name.startswith(_ASK_ALL) and name != "conn.id" for name in found.filter.names)  # type: ignore[union-attr]
        return found.ahead(session) if asks else found

    def ahead(self, session: Session) -> Self:
        """Read the whole file first, where it can be read twice."""
        self.reports = session.look(on_late=self._take)
        return self

    def alone(self, session: Session) -> None:
        """Have a session make no records of datagrams that cannot match: nobody else sees them."""
        session.needs = None if self.filter is None else self.filter.needs

    def _take(self, code: str, severity: Severity, frame: int) -> None:
        found = self.late.get(frame)
        if found is not None or len(self.late) < MAX_LATE:
            finding = Finding(code, severity)
            found = self.late.setdefault(frame, [])
            if finding not in found:
                found.append(finding)

    def datagram(self, record: DatagramRecord, first_ns: int | None) -> bool:
        """Return whether a datagram matches."""
        late = self.late.get(record.frame)
        if late is not None:
            record.findings = tuple(dict.fromkeys((*record.findings, *late)))
        if self.filter is None:
            return True
        # Known only since the first frame was read, long after the filter was compiled.
        self.filter.first_ns = first_ns or 0
        return self.filter.matches(record, self._report(record))

    def messages(self, record: DatagramRecord) -> list[MessageRecord]:
        """Return the messages of a matching datagram that match on their own; all where it takes
        several.
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
