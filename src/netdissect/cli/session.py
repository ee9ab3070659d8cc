"""One pass of a command over one capture: pipeline options, progress, results, exit status."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import click

from netdissect.cli.errors import EXIT
from netdissect.cli.output import cut_short
from netdissect.cli.spans import check_connections, check_start, no_such_connection, requested_part
from netdissect.model.closing import Closing
from netdissect.model.records import DatagramRecord
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
    from netdissect.pipeline import Analysis, Intervals, Options, Reading
    from netdissect.pipeline.counting import Count
    from netdissect.pipeline.early import EarlyRecord
    from netdissect.pipeline.records import Records
    from netdissect.pipeline.reports import Reports
    from netdissect.pipeline.scenes import Scenes, Told

_Item = TypeVar("_Item", bound=DatagramRecord | UnitRecord | ConnectionEvent)

LONG_OCTETS = 1024 * 1024
"""Size in bytes from which a file's first records are shown before the first pass over it."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The options that decide how datagrams are decoded."""

    decode_as: tuple[str, ...] = ()
    dialects: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    strict: bool = False
    byte_order: str | None = None
    """`little` or `big`."""
    inflate_limit: int | None = None
    inflate_ratio: int | None = None
    together: int = 1
    """As `Options.together`."""

    @property
    def reading(self) -> Reading | None:
        """Return the byte order and inflate limits given by the user; None = none given."""
        from netdissect.pipeline import reading  # noqa: PLC0415

        return reading(self.byte_order, self.inflate_limit, self.inflate_ratio)

    def decoding(self) -> dict[str, Any]:
        """Return the keyword arguments for code that decodes datagrams into field trees."""
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
            UsageError: a rule, protocol, dialect or schema does not exist.

        """
        from netdissect import lookup  # noqa: PLC0415
        from netdissect.cli.settings import limits  # noqa: PLC0415
        from netdissect.pipeline import Options, decode_as  # noqa: PLC0415

        lookup.load_schemas(self.schemas)  # refuse a bad schema even if no tree is ever made
        return Options(
            decode_as=tuple(decode_as(rule) for rule in self.decode_as),
            without=lookup.known_protocols(self.disabled),
            dialects=lookup.chosen_dialects(self.dialects),
            reading=self.reading,
            strict=self.strict,
            limits=limits(),
            together=self.together,
            **hooks,
        )


_LIMIT_NOTES = {
    "MAX_REPORTS": "more connections than can be shown",
    "MAX_BRIEF": "connections with few datagrams were only counted",
    "MAX_ANOMALIES": "of the least severe findings are left out",
    "MAX_CONNECTIONS": "connections were reported before their end, because there were too many",
    "MAX_ALL_OUTSTANDING": "connections with the most unacknowledged units were reported before"
    " their end",
    "MAX_UNCOUNTED": "datagrams were counted before earlier ones of flows not yet recognised",
    "MAX_SORTED": "units are missing: there are more than can be sorted",
    "MAX_SELECTED": "messages match, but are not shown: there are more than a filter can select",
    "MAX_KEPT_ITEMS": "units and events are missing: too many to keep, and the capture cannot be"
    " read again",
    "MAX_ARROWS": "datagrams are not drawn: there are too many; choose some with --from",
    "MAX_HELD_RECORDS": "datagrams were shown before the fate of all their units was known",
}
"""Limit -> what its excess, a number, means for the output."""

_CONFINED = frozenset({
    "anomalies", "connections", "diagnose", "diff", "export", "follow", "info", "ladder", "plot",
    "read", "report", "show", "stats", "timeline",
})  # fmt: skip
"""Commands that are sandboxed when their session is entered: they open no socket and start no
program. Commands without a session confine themselves.
"""


class Session(Closing):
    """An open capture; use as a context manager, then ask for `status`."""

    keeps_anomalies = False
    """Whether `records_and_timeline` fills `anomalies`."""
    keeps_reports = True
    """Whether `records_and_timeline` fills `reports`."""
    lines = True
    """Whether the messages of records have summary lines."""

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
            choices: how datagrams are decoded.
            quiet: no progress and no note on a capture that is cut short.
            streams: the command prints while it reads, so a progress line is only shown if the
                output goes to a file.
            reader: the capture if it is open already; None = open `file`.

        """
        from netdissect.cli.progress import Progress, to_file  # noqa: PLC0415
        from netdissect.pipeline import open_capture  # noqa: PLC0415
        from netdissect.pipeline.reports import Reports  # noqa: PLC0415

        self.file = file
        self.choices = choices or Choices()
        self.quiet = quiet
        self.progress = Progress(enabled=not quiet and (not streams or to_file()))
        self.own = reader is None
        """Whether the capture was opened here, by name, and so can be opened again."""
        self.reader = self.progress.watch(open_capture(file) if reader is None else reader)
        self.reports = Reports()
        self.anomalies: list[Anomaly] = []
        self.limits_hit: dict[str, int] = {}
        self.most: int | None = None
        """See `Records`."""
        self.needs: frozenset[str | None] | None = None
        """`Filter.needs` of the filter that all records pass; None = every record is needed."""
        self.only: frozenset[int] | None = None
        """Connections of interest; None = all. Items of other connections may still appear."""
        self.others = True
        """Whether datagrams of no known protocol get records."""
        self._read_through = self._recognised = False
        self._early_ns: int | None = None
        """Time of the first frame, known while early records are yielded."""
        self._looked_at: Any = None
        """The reader of the first pass, if there was one."""
        self.joined: tuple[CaptureInfo, ...] = ()
        """The captures that were joined, if there is a second one."""
        self.first_pass: Analysis | None = None
        """Result of the first pass over the whole file, if there was one."""
        self.hold = True
        """Whether live records are held until the fate of their units is settled, as records of a
        file always are. Otherwise they lack only what is learned later.
        """

    def reopen(self, *, quiet: bool = False) -> Session:
        """Return a new session on the same file, which shares the result of the first pass."""
        session = Session(self.file, self.choices, quiet=quiet or self.quiet)
        session.only, session.first_pass = self.only, self.first_pass
        session._looked_at = self._looked_at
        return session

    @property
    def live(self) -> bool:
        """Return whether the capture arrives on standard input."""
        return self.file == "-"

    @property
    def rereadable(self) -> bool:
        """Return whether the capture is a file that can be read more than once."""
        return self.own and not self.live and Path(self.file).is_file()

    @property
    def at_once(self) -> bool:
        """Return whether records are shown before the fate of their units is settled."""
        return self.live and not self.hold

    def __enter__(self) -> Self:
        context = click.get_current_context(silent=True)
        if context is not None and context.info_name in _CONFINED:
            sandbox.confine()
            lean.lean()
        return self

    def close(self) -> None:
        """Close the capture and clear the progress line."""
        self.progress.clear()
        self.reader.close()

    @property
    def first_ns(self) -> int | None:
        """Return the time of the first frame; None before it is read."""
        info: CaptureInfo = self.reader.info
        if info.first_time_ns is not None:
            return info.first_time_ns
        if self._early_ns is None and self.first_pass is not None:
            return self.first_pass.info.first_time_ns
        return self._early_ns

    def status(self) -> int:
        """Return the exit status; print on standard error which limits were hit, which link types
        cannot be read, and whether the capture is cut short, or could not be read the first time.
        """
        from netdissect.capture.linktypes import link_type_name  # noqa: PLC0415
        from netdissect.flow.links import LINK_READERS  # noqa: PLC0415

        self.progress.clear()
        for limit, what in _LIMIT_NOTES.items():
            if limit in self.limits_hit:
                self._say(f"{self.limits_hit[limit]:,} {what} ({limit})")
        info = self.reader.info
        known = {each.path: each for each in (info, *self.joined)}
        for name in info.link_types:
            if name not in map(link_type_name, LINK_READERS):
                self._say(f"link type {name} is not supported; its frames were skipped")
        if cut_short(known.values(), quiet=self.quiet):
            return EXIT.CUT_SHORT
        check_start(info)
        first = self._looked_at
        if first is None or first.fault is None:
            return EXIT.DONE
        self._say(
            f"{info.path} could only be read up to offset {first.info.truncated_at} the first"
            f" time: {first.fault}; conclusions rest on what is before it"
        )
        return EXIT.CUT_SHORT

    def faults(self) -> list[str]:
        """Return where and why each pass so far has ended early, if it did."""
        found = []
        for each in (self._looked_at, self.reader):
            if each is not None and each.fault is not None:
                end = f"offset {each.info.truncated_at}: {each.fault}"
                found.append(f"{each.info.path} could only be read up to {end}")
        return found

    def frames_of_all_passes(self) -> int:
        """Return how many frames each pass so far has found; the file may have grown meanwhile."""
        readers = [self.reader, *([self._looked_at] if self._looked_at is not None else [])]
        found: int = min(reader.info.frames for reader in readers)
        return found

    def _say(self, text: str) -> None:
        """Print a note on standard error, unless `-q` is given."""
        if not self.quiet:
            print(f"netdissect: {safe(text)}", file=sys.stderr)  # noqa: T201 - the one place

    # -- results -----------------------------------------------------------------------------------

    def analysis(
        self, processes: int | None = 1, *, anomalies: bool = False, **hooks: Any
    ) -> Analysis:
        """Analyse the whole capture; `processes` None = as many as are worth it."""
        from netdissect.pipeline import analyze, processes_for  # noqa: PLC0415

        processes = processes_for(self.file) if processes is None else processes
        options = self.choices.options(**hooks)
        found = analyze(self.reader, options=options, processes=processes, anomalies=anomalies)
        self.anomalies = found.anomalies
        self.collect(found.connections, found.limits_hit)
        return found

    def timeline(self) -> Iterator[UnitRecord | ConnectionEvent]:
        """Yield units and events in time order; `reports` is filled afterwards."""
        from netdissect.pipeline import Pipeline, Recorder, iter_timeline  # noqa: PLC0415

        recorder = Recorder()
        pipeline = Pipeline(self.with_first_look(self.choices.options()), recorder=recorder)
        yield from iter_timeline(self.reader, pipeline=pipeline)
        self.collect(pipeline.reports, pipeline.limits_hit)

    def records(self, *, early: bool = False) -> Iterator[DatagramRecord]:
        """Yield one record per datagram, in frame order.

        With `early`, the first records of a long file are yielded before the first pass over it.
        They differ from the final ones at most in the vantage.
        """
        skip = (0, 0)
        if early and self._is_long():
            for found in self._early():
                self._early_ns, skip = found.first_ns, found.skip
                if found.record is not None:
                    yield found.record
            # The user reads these lines during the first pass.
            sys.stdout.flush()
            gc.collect(0)  # otherwise the pipelines of these passes, which are cycles, would stay
        items = self.records_and_timeline(timeline=False, skip=skip)
        yield from cast("Iterator[DatagramRecord]", items)

    def _is_long(self) -> bool:
        """Return whether the user would notice the duration of a first pass over the file."""
        if not self.rereadable or self.first_pass is not None or self.choices.strict:
            return False
        return Path(self.file).stat().st_size >= LONG_OCTETS

    def _early(self) -> list[EarlyRecord]:
        """Return the records that are shown before the first pass."""
        from netdissect.pipeline.early import early_records  # noqa: PLC0415

        def make() -> Records:
            records = self.record_maker()
            records.needs = self.needs
            return records

        return early_records(self.file, make, self.choices.options(others=self.others))

    def record_maker(self) -> Records:
        """Return the pipeline observer that makes records of datagrams."""
        from netdissect.pipeline.records import Records  # noqa: PLC0415

        return Records(live=self.at_once, lazy=True, lines=self.lines, **self.choices.decoding())

    def scenes(self, on_datagram: Told, *, remember: bool) -> Scenes:
        """Return the pipeline observer that reports every datagram, and remembers recent ones."""
        from netdissect.pipeline.scenes import Scenes  # noqa: PLC0415

        return Scenes(on_datagram, remember=remember, **self.choices.decoding())

    def records_and_timeline(
        self, *, timeline: bool = True, skip: tuple[int, int] = (0, 0)
    ) -> Iterator[DatagramRecord | UnitRecord | ConnectionEvent]:
        """Yield records and, with `timeline`, units and events in one pass.

        Afterwards `reports` and `anomalies` are filled, as far as they are kept. `skip`: as for
        `Records`.
        """
        from netdissect.pipeline import Pipeline  # noqa: PLC0415
        from netdissect.pipeline.anomalies import Anomalies  # noqa: PLC0415
        from netdissect.pipeline.iterate import iter_both  # noqa: PLC0415

        records = self.record_maker()
        records.needs, records.most, records.skip = self.needs, self.most, skip
        found = Anomalies()
        options = self.choices.options(
            on_anomaly=found.take if self.keeps_anomalies else None,
            reported=self.keeps_reports or bool(requested_part().connections),
            others=self.others,
        )
        options = self.with_first_look(options).narrowed(None if timeline else self.needs)
        pipeline = Pipeline(options, recorder=records.recorder, observer=records)
        yield from iter_both(self.reader, records, pipeline, timeline=timeline)
        self.collect(pipeline.reports, pipeline.limits_hit)
        self._recognised = bool(pipeline.counts)
        self.anomalies = found.listed()
        found.settle(self.limits_hit)

    def count(
        self, count: Count, ended: Callable[[ConnectionReport], None], sums: Intervals
    ) -> None:
        """Read the capture, count datagrams and sum up units; `reports` is filled afterwards.

        Args:
            count: called for every datagram of a connection.
            ended: called with each report as soon as its connection is over.
            sums: takes the sums over units.

        """
        from netdissect.pipeline import Pipeline  # noqa: PLC0415
        from netdissect.pipeline.counting import DatagramCounter, count_datagrams  # noqa: PLC0415
        from netdissect.pipeline.reports import Reports  # noqa: PLC0415

        reports = Reports()

        def over(report: ConnectionReport) -> None:
            ended(report)
            reports.append(report)

        counted = DatagramCounter(count, sums=lambda _: sums)
        options = self.choices.options(on_report=over)
        if self.only is not None:
            options = self.with_first_look(options)
        pipeline = Pipeline(options, recorder=counted.recorder, observer=counted)
        count_datagrams(self.reader, counted, pipeline)
        self.collect(reports, pipeline.limits_hit)

    def first_look(self, **hooks: Any) -> Reports | None:
        """Analyse the whole file in a first pass that later passes build on.

        Returns the reports; None if the capture cannot be read twice.
        """
        from netdissect.pipeline import first_look  # noqa: PLC0415

        if self.live or not self.own:
            return None
        with self._first_progress() as watch:
            options = self.choices.options(**hooks)
            self.first_pass = first_look(self.file, options, processes=None, watch=watch)
        return None if self.first_pass is None else self.first_pass.connections

    @contextmanager
    def _first_progress(self) -> Iterator[Callable[[Any], Any]]:
        """Show the progress of a first pass, unless a pager already shows lines."""
        from netdissect.cli.progress import Progress  # noqa: PLC0415

        paged = hasattr(sys.stderr, "terminal") and self._early_ns is not None
        progress = Progress(enabled=not self.quiet and not paged)

        def watch(reader: Any) -> None:
            self._looked_at = progress.watch(reader)

        yield watch
        progress.clear()
        self.progress.renew()

    def ends(self, wanted: Collection[int] | None) -> set[frozenset[str]] | None:
        """Return the endpoints of the wanted connections, so that other packets can be skipped;
        None if there are no others, or no first pass has shown them.
        """
        first = self.first_pass
        if first is None or wanted is None or len(first.connections) <= len(wanted):
            return None
        reports = first.connections.of(set(wanted))
        return {frozenset((report.client, report.server)) for report in reports}

    @property
    def other_datagrams(self) -> int:
        """Return how many datagrams of no known protocol the first pass has counted."""
        return 0 if self.first_pass is None else self.first_pass.other_datagrams

    @property
    def other_connections_later(self) -> bool:
        """Return whether a later pass may have other connections than the first one: that reaches
        its bounds elsewhere if it follows only a flood's longer connections, or in shares.
        """
        from netdissect.pipeline.parallel import DECISIVE  # noqa: PLC0415

        return self.first_pass is not None and not DECISIVE.isdisjoint(self.first_pass.limits_hit)

    def say_unrecognised(self) -> None:
        """Say on standard error that no protocol was recognised: no output at all does not."""
        self.progress.clear()
        if self._read_through and not self._recognised:
            self._say("no datagram of a known protocol; `netdissect info` counts all")

    def use_first_look(self, wanted: Collection[int]) -> bool:
        """Replace the reports of a pass over the wanted connections by those of the first pass.

        Returns whether the two passes agree on the wanted connections.
        """
        first, mine = self.first_pass, self.reports
        if first is None:
            return True
        self.reports, self.limits_hit = first.connections, first.limits_hit
        pairs = ((mine.by_number(each), self.reports.by_number(each)) for each in wanted)
        return all(
            one is not None
            and other is not None
            and (one.first_frame, one.datagrams) == (other.first_frame, other.datagrams)
            for one, other in pairs
        )

    def with_first_look(self, options: Options, most: int | None = None) -> Options:
        """Return the options completed with the results of a first pass over the file.

        Args:
            options: the pipeline's options.
            most: size of the file in bytes up to which a first pass is made; None = any size.

        """
        from netdissect.pipeline import look_ahead, with_placements  # noqa: PLC0415

        if self.live or not self.own:
            return options
        if self.first_pass is not None:
            options = with_placements(options, self.first_pass)
        elif most is None:
            with self._first_progress() as watch:
                options = look_ahead(self.file, options, processes=None, watch=watch)
        else:
            options = look_ahead(self.file, options, most=most)
        # Without a first pass, connections have other numbers than the requested ones.
        return options if options.begins is None else replace(options, only=self.only)

    def of_connection(self, number: int | None, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items of one connection; None = of all.

        Raises:
            UsageError: there is no such connection, which is known after the last item.

        """
        for item in items:
            if number is None or item.connection == number:
                yield item
        if number is not None and self.reports.by_number(number) is None:
            raise no_such_connection(number, self.reports)

    @staticmethod
    def discard(finding: object) -> None:
        """Ignore a finding or report: a hook for commands that do not need them."""

    def collect(self, reports: Reports, limits_hit: dict[str, int]) -> None:
        """Keep the results of a pass, and clear the progress line before anything is printed."""
        self.progress.clear()
        info = self.reader.info
        check_start(info)
        self.reports, self.limits_hit = reports, limits_hit
        self._read_through = True
        self._recognised = bool(reports)
        # A connection may be missing only because the capture is cut short or a limit was hit.
        if info.truncated_at is None and self.own and "MAX_REPORTS" not in limits_hit:
            check_connections(requested_part().connections, reports)
