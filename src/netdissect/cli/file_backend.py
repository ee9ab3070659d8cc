"""The backend of `browse` for a file: reads it once in the background, then again on demand."""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, TypeVar

from netdissect.browse.backend import Entry, Loaded
from netdissect.cli.errors import EXIT
from netdissect.cli.output import refuse_input_as_output
from netdissect.cli.request import Match, compiled, filter_names
from netdissect.cli.session import Choices, Session
from netdissect.model.annotations import CodeRow, Severity
from netdissect.model.errors import FilterError, UsageError
from netdissect.model.names import FieldInfo
from netdissect.model.reports import Anomaly, ConnectionReport, UnitRecord
from netdissect.pipeline.index import Index
from netdissect.plot.history import History
from netdissect.render.safe import safe
from netdissect.render.units import counted, octets
from netdissect.system import interrupt

if TYPE_CHECKING:
    from netdissect.capture.blocks import Block, BlockReader
    from netdissect.pipeline import Analysis, Pipeline
    from netdissect.pipeline.reports import Reports


MAX_AHEAD = 8_000_000
"""Size in bytes up to which a file gets a first pass before its first row is shown. Connections of
a larger file have provisional numbers, in the order of recognition, until it is read completely.
"""
MAX_BESIDE = 64_000_000
"""Size in bytes up to which a filter reads a file while it is being read for the lists. Of a larger
file, both together would take too much memory.
"""
MAX_EXAMPLES = 20_000
"""Findings whose text is kept; for the others, the count and the frames are kept."""
_SLICE = 64
"""Packets, or units, after which reading checks whether a key was pressed."""
_WAIT_S = 0.05
"""Interval at which a filter checks whether the file has been read."""
_YIELD_S = 0.05
"""Seconds that reading pauses for the thread of the screen after a key press: the time in which a
key is answered. While a key is held down, reading goes on in between.
"""

_Item = TypeVar("_Item")


class FileBackend:
    """A capture file for `browse`."""

    def __init__(
        self, file: str, choices: Choices, session: Session | None = None, *, ring: int = 0,
        piped: int | None = None, name: str = "",
    ) -> None:  # fmt: skip
        """Open the capture.

        Args:
            file: path; it is opened again for everything that needs another pass.
            choices: how datagrams are decoded.
            session: the capture if it is open already.
            ring: bytes to keep of a capture without an end; see `Index`.
            piped: size of the part of a longer pipe that this file is; None = complete.
            name: what the title calls it; "" = by the name of the file.

        Raises:
            CaptureError: the file cannot be read.
            UsageError: a choice does not exist.

        """
        self.file = file
        self.choices = choices
        self._piped = piped
        self.name = name or safe(Path(file).name, 60)
        self.index = Index(ring=ring, **choices.decoding())
        self.loaded = Loaded()
        self._session = Session(file, choices, quiet=True) if session is None else session
        self._size = 0 if session is not None else Path(file).stat().st_size
        self._examples: dict[tuple[str, int | None, int | None], Anomaly] = {}
        self._first_pass: Analysis | None = None
        """What the first pass over the whole file has found; None while it is read."""
        self._ended = Event()
        self._halted = Event()

    def stop(self) -> None:
        """Request that everything in progress ends."""
        self._ended.set()

    def halt(self) -> bool:
        """Stop reading and keep what was read; return whether anything was left to read."""
        if self.loaded.ready or self._halted.is_set():
            return False
        self._halted.set()
        return True

    def must_exit(self) -> bool:
        """Return whether a signal has arrived, or the terminal is closed."""
        return interrupt.pending() or interrupt.hang_up()

    def read(self) -> None:
        """Read the capture once, and fill `index` and `loaded`."""
        from netdissect.flow import Decapsulator  # noqa: PLC0415
        from netdissect.pipeline import Analysis, Pipeline  # noqa: PLC0415
        from netdissect.pipeline.collector import rare_collections  # noqa: PLC0415

        index, loaded = self.index, self.loaded
        with self._session as session, rare_collections(brief=True):
            options = session.with_first_look(
                session.choices.options(on_anomaly=self._found, on_late=self._late), MAX_AHEAD
            )
            pipeline = Pipeline(options, recorder=index.recorder, observer=index)
            reader = session.reader
            for packets in Decapsulator().batches(reader.batches()):
                if self._ended.is_set():
                    return
                if self._halted.is_set():
                    break
                loaded.first_ns = session.first_ns or 0
                for packet in self._yielding(packets):
                    pipeline.feed(packet)
                # Rows from the oldest packet of an unrecognised flow on may still change.
                index.list_until(pipeline.oldest_sampled)
                self._take(self._yielding(index.recorder.settled(pipeline.now_ns)))
                done, size = reader.progress()
                loaded.share = done / size if size else None
            if self._size:
                self._size = Path(self.file).stat().st_size
            self._end(pipeline)
            numbers = pipeline.renumber()
            if numbers is not None:
                index.renumber(numbers)
                for found in self._examples.values():
                    found.connection = found.connection and numbers[found.connection - 1]
            if not self._halted.is_set():
                begins = array("q", sorted(pipeline.begun.frames))
                late = pipeline.recogniser.late
                self._first_pass = Analysis(reader.info, pipeline.reports, begins, late)
            self._conclude(pipeline, pipeline.reports)

    def _yielding(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield items, but after a key press leave the processor to the screen."""
        for count, item in enumerate(items):
            yield item
            if not count % _SLICE and time.monotonic() < self.loaded.yield_until:
                time.sleep(_YIELD_S)

    def _conclude(self, pipeline: Pipeline, reports: Reports) -> None:
        """Publish what is known only when the whole capture has been read."""
        session, loaded = self._session, self.loaded
        session.collect(reports, pipeline.limits_hit)
        loaded.anomalies = list(self._examples.values())
        loaded.entries = [connection_entry(report) for report in reports]
        loaded.notes = self._notes(session)
        self.index.finish()
        gc.freeze()  # lives until the program ends: exclude it from garbage collection
        loaded.share, loaded.live, loaded.done = 1.0, "", True
        loaded.version += 1

    def _end(self, pipeline: Pipeline) -> None:
        """Process what is left in the pipeline."""
        pipeline.finish(self._session.reader.info.last_time_ns)
        self.index.list_until(None)
        self._take(self.index.recorder.rest())

    @contextmanager
    def _again(self) -> Iterator[Session]:
        """Open the file again."""
        from netdissect.pipeline.collector import rare_collections  # noqa: PLC0415

        # Drawing the screen leaves cycles behind, which would be kept until all is read.
        self._compare_size()
        with rare_collections(brief=True), Session(self.file, self.choices, quiet=True) as session:
            session.first_pass = self._first_pass
            yield session

    def _compare_size(self) -> None:
        """Say so if the file has more than what was read."""
        if self.loaded.done and self._size and Path(self.file).stat().st_size > self._size:
            note = "The file has grown since it was read: R reads it again."
            self._size = 0  # said once
            self.loaded.notes = [*self.loaded.notes, note]
            self.loaded.version += 1

    def _found(self, found: Anomaly) -> None:
        """Keep the first finding of each code and connection as an example; of findings without a
        frame, the first in each direction.
        """
        way = found.direction if found.frame is None else None
        key = found.code, found.connection, way
        known = self._examples.get(key)
        if known is None:
            if len(self._examples) < MAX_EXAMPLES:
                self._examples[key] = found
        elif (found.frame or 0) < (known.frame or 0):
            self._examples[key] = found

    def _late(self, code: str, severity: Severity, frame: int) -> None:
        self.index.hit(code, severity, frame)

    def _take(self, items: Iterable[object]) -> None:
        for item in items:
            if isinstance(item, UnitRecord):
                self.index.unit(item)

    def _notes(self, session: Session) -> list[str]:
        info, notes = session.reader.info, []
        if self._piped is not None:
            notes.append(f"Only the first {octets(self._piped)} of standard input are shown.")
        if info.truncated_at is not None:
            why = f" ({safe(info.damage)})" if info.damage else ""
            notes.append(
                f"Cut short at offset {info.truncated_at:,}; everything before is shown{why}."
            )
        if self._halted.is_set():
            share = self.loaded.share or 0.0
            notes.append(f"Reading was stopped at {share:.0%} of the file.")
        hit = dict(session.limits_hit)
        if self.index.left_out:
            hit["MAX_ROWS"] = self.index.left_out
        if hit:
            named = ", ".join(f"{name} {counted(count, 'time')}" for name, count in hit.items())
            notes.append(f"Limits were reached: {named}.")
        return notes

    def status(self) -> int:
        """Return the exit status: CUT_SHORT for a file that is cut short, as in every command."""
        return EXIT.CUT_SHORT if self._session.reader.info.truncated_at is not None else EXIT.DONE

    def connection(self, number: int) -> ConnectionReport | None:
        """Return the report of a connection; None while reading."""
        return self._session.reports.by_number(number) if self.loaded.done else None

    def check(self, text: str) -> tuple[str, int] | None:
        """Return what is wrong with a filter; None if it is valid."""
        try:
            compiled(text)
        except FilterError as error:
            return safe(str(error), 300), error.start
        return None

    def filters_later(self) -> bool:
        """Return whether `select` waits until all of a large file has been read."""
        return self._size > MAX_BESIDE and not self.loaded.ready

    def select(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield (frame, index of the row among the frame's rows, from 0) of each match."""
        while self.filters_later():
            if self._ended.wait(_WAIT_S):
                return
        with self._again() as session:
            session.keeps_reports = False
            match = Match.compile(text, session)
            # Only datagrams over UDP are skipped, and a frame has one of them at most.
            match.restrict(session)
            last = nth = -1
            for record in session.records():
                nth = nth + 1 if record.frame == last else 0
                last = record.frame
                if self._ended.is_set():
                    return
                if match.datagram(record, session.first_ns):
                    yield record.frame, nth

    def history(self, number: int, only: Iterable[int] | None = None) -> History | None:
        """Return the plot data of a connection, or those of some of its frames."""
        from netdissect.cli.plot_data import collect_plot_data  # noqa: PLC0415
        from netdissect.edit import FrameSet  # noqa: PLC0415

        with self._again() as session:
            frames = None if only is None else FrameSet(only).__contains__
            found = collect_plot_data(session, {number}, only=frames)
            return found.gallery.histories.get(number)

    def write(self, path: str, frames: Sequence[int], whole: Collection[int] = ()) -> str:
        """Write frames to a file, with all fragments of their datagrams and all TCP segments of
        `whole` connections; return a message.
        """
        from netdissect.edit import FrameSet, of_connections, pieces, slice_capture  # noqa: PLC0415

        self._fits(path)
        requested = FrameSet(frames)
        reports = [report for number in whole if (report := self.connection(number)) is not None]
        belongs = of_connections(reports)
        with self._again() as session:
            batches = session.reader.batches()
            wanted = FrameSet(
                pieces(batches, lambda packet: packet[1] in requested or belongs(packet))
            )
        kept = 0

        def keep(block: Block) -> bool:
            nonlocal kept
            kept += block.frame in requested
            return block.frame in wanted

        with self._blocks() as reader:
            _, written = slice_capture(reader, path, keep)
        gone = len(requested) - kept  # of a running capture
        rest = f"; {counted(gone, 'other')} no longer kept" if gone > 0 else ""
        return f"{counted(written, 'frame')} written to {safe(path)}{rest}"

    def _fits(self, path: str) -> None:
        """Refuse to write over the capture, or onto the screen."""
        if path == "-":
            raise UsageError("standard output is in use: name a file")
        refuse_input_as_output(path, [self.file])

    def _blocks(self) -> AbstractContextManager[BlockReader]:
        from netdissect.capture.blocks import BlockReader  # noqa: PLC0415

        return BlockReader(self.file)

    def report(self, path: str) -> str:
        """Write the report; return a message."""
        from netdissect.cli.report import write_report  # noqa: PLC0415

        self._fits(path)
        with self._again() as session:
            size = write_report(session, path)
        return f"{safe(path)} written, {size / 1000:,.0f} kB"

    def again(self, rule: str) -> FileBackend:
        """Return a new backend for the same file, with one more rule of `-d` ("" = none).

        Raises:
            UsageError: the rule is invalid.
            CaptureError: the file can no longer be read.

        """
        rules = (rule, *self.choices.decode_as) if rule else self.choices.decode_as
        choices = replace(self.choices, decode_as=rules)
        choices.options()
        return FileBackend(self.file, choices, piped=self._piped, name=self.name)

    def protocols(self) -> Sequence[FieldInfo]:
        """Return the protocols and dialects that a port can be decoded as."""
        from netdissect import lookup  # noqa: PLC0415

        found = {}
        for protocol in lookup.loaded_protocols():
            found[protocol.name] = FieldInfo(protocol.name, "protocol", protocol.title)
            for row in protocol.dialects:
                found[row.name] = FieldInfo(row.name, "dialect", row.title)
        return list(found.values())

    def fields(self) -> Sequence[FieldInfo]:
        """Return the fields that a filter may name."""
        return list(filter_names().all())

    def codes(self) -> dict[str, CodeRow]:
        """Return the catalogue of findings."""
        from netdissect import lookup  # noqa: PLC0415

        return lookup.catalogue()


def connection_entry(report: ConnectionReport) -> Entry:
    """Return a connection's entry in the list."""
    from netdissect.diagnosis.words import line  # noqa: PLC0415
    from netdissect.render.units import dialect_text  # noqa: PLC0415

    found = report.diagnosis
    worst = next(
        (label for label in ("error", "warn", "note", "chat") if report.anomalies.get(label)), ""
    )
    return Entry(
        number=report.connection,
        dialect=dialect_text(report.dialects),
        client=report.client,
        server=report.server,
        severity=worst,
        again=sum(space.retransmissions for space in report.spaces),
        verdict=line(report),
        badness=0 if found is None else found.badness,
        first_ns=report.first_time_ns,
        last_ns=report.last_time_ns,
        datagrams=sum(report.datagrams),
        slowest_ms=0.0 if found is None else max(late.maximum or 0.0 for late in found.lag.added),
    )
