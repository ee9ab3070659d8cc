"""Runs a capture through all stages, and returns reports or a timeline."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import IO, Protocol, cast

from netdissect.capture import CaptureReader, open_capture
from netdissect.flow import Decapsulator
from netdissect.model.byconnection import ByConnection
from netdissect.model.keys import FlowKey
from netdissect.model.packets import Frame, flow_endpoints
from netdissect.model.reports import CaptureInfo, ConnectionEvent, ConnectionReport, UnitRecord
from netdissect.model.units import Placement
from netdissect.pipeline import parallel
from netdissect.pipeline.anomalies import Anomalies
from netdissect.pipeline.collector import rare_collections
from netdissect.pipeline.options import Analysis, Options, decode_as, reading
from netdissect.pipeline.parallel import processes_for
from netdissect.pipeline.stages import Pipeline
from netdissect.protocols.base import Reading
from netdissect.protocols.claiming import DecodeAs
from netdissect.track.intervals import Intervals, Sums
from netdissect.track.recorder import Recorder

__all__ = [
    "Analysis",
    "DecodeAs",
    "Intervals",
    "Options",
    "Pipeline",
    "Reading",
    "Recorder",
    "Sums",
    "analyze",
    "decode_as",
    "first_look",
    "iter_timeline",
    "look_ahead",
    "open_capture",
    "opened",
    "processes_for",
    "reading",
    "with_placements",
]


class FrameSource(Protocol):
    """An open capture, of a file or live."""

    @property
    def info(self) -> CaptureInfo:
        """Return the facts known so far."""

    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames; possible once."""

    def batches(self) -> Iterator[list[Frame]]:
        """Yield the same frames in lists, each as soon as it is complete."""


Source = str | os.PathLike[str] | IO[bytes] | FrameSource
Watch = Callable[[FrameSource], object]

MAX_REMEMBERED = 65_536
"""Flows for which it is remembered whether `iter_timeline` tracks them; for others it is determined
again with each packet.
"""
_FLUSH_PACKETS = 256
"""Packets after which settled records of the timeline are emitted."""


def opened(source: Source) -> AbstractContextManager[FrameSource]:
    """Return a context manager for the reader of a capture. A reader passed in is not closed."""
    if isinstance(source, (str, os.PathLike)) or hasattr(source, "read"):
        return open_capture(cast("str | IO[bytes]", source))
    return nullcontext(source)


def analyze(
    source: Source,
    *,
    options: Options | None = None,
    processes: int = 1,
    anomalies: bool = True,
) -> Analysis:
    """Return the analysis of a whole capture.

    Args:
        source: a path, `-` for standard input, or an open binary file.
        options: decode-as rules and so on; `on_anomaly` is called for each anomaly at the end.
        processes: processes that share the work; more than 1 only for a file, see `parallel`.
        anomalies: whether to list the anomalies; reports count them in any case.

    Raises:
        CaptureFileError: the file is missing, unreadable or not a capture.

    """
    options = options or Options()
    collected = Anomalies()
    with opened(source) as reader:
        if processes > 1 and isinstance(reader, CaptureReader):
            return parallel.analyze_shares(reader, options, processes, anomalies=anomalies)
        told = options.on_anomaly
        if anomalies or told:
            options = replace(options, on_anomaly=collected.take)
        pipeline = Pipeline(options)
        with rare_collections():
            decapsulator = Decapsulator()
            if isinstance(reader, CaptureReader):
                decapsulator.hand_over(reader, pipeline)
            else:
                for packets in decapsulator.batches(reader.batches()):
                    pipeline.run(packets)
            pipeline.finish(reader.info.last_time_ns)
        numbers = pipeline.renumber()
        if numbers is not None:
            collected.renumber(numbers)
        found = pipeline.analysis(reader.info, collected, decapsulator.stats)
        if told is not None:
            for anomaly in found.anomalies:
                told(anomaly)
        return found


def look_ahead(
    source: Source,
    options: Options,
    *,
    processes: int | None = 1,
    most: int | None = None,
    watch: Watch | None = None,
) -> Options:
    """Return the options with facts that only a first pass over the whole capture can provide: the
    order in which connections begin, and where the capture was taken.

    With them connections have the same numbers in all views, and conclusions that depend on the
    vantage are the same from the first unit on. A source that cannot be read twice leaves the
    options unchanged; the second pass then works with what it knows at each moment.

    Args:
        source: the capture.
        options: decode-as rules and so on.
        processes: processes that share the work; None = as many as are useful.
        most: largest file, in bytes, that is read twice; None = any.
        watch: called with the reader before the first pass starts.

    """
    if options.near is not None:
        return options
    placing = replace(options, on_late=None, reported=True, placing=True)
    found = first_look(source, placing, processes=processes, most=most, watch=watch)
    if found is None:
        return options
    return replace(
        options, near=found.near, begins=found.begins, late=found.late, repeated=found.repeated
    )


def first_look(
    source: Source,
    options: Options,
    *,
    processes: int | None = 1,
    most: int | None = None,
    watch: Watch | None = None,
) -> Analysis | None:
    """Return the analysis of a whole file, or None if the source cannot be read twice or has more
    than `most` bytes. Of the callbacks in `options`, only `on_late` is called.
    """
    if not isinstance(source, (str, os.PathLike)):
        return None
    try:
        found = Path(source).stat()
    except OSError:
        return None  # reading the file reports why
    # A pipe cannot be read twice, and a large file would take too long.
    if not stat.S_ISREG(found.st_mode) or found.st_size > (most or found.st_size):
        return None
    # Callbacks would run in another process.
    if options.on_late is not None:
        processes = 1
    elif processes is None:
        processes = processes_for(str(source))
    quiet = replace(options, on_anomaly=None, on_report=None)
    with opened(source) as reader:
        if watch is not None:
            watch(reader)
        return analyze(reader, options=quiet, processes=processes, anomalies=False)


def with_placements(
    options: Options, found: Analysis, reports: Iterable[ConnectionReport] | None = None
) -> Options:
    """Return the options with what a first pass has found out about the connections.

    Args:
        options: the options of the first pass.
        found: its result.
        reports: reports of the connections that matter; None = all.

    """
    reports = found.connections if reports is None else reports
    known = ByConnection[Placement]()
    for report in reports:
        known.put(report.connection, report.placement)
    return replace(options, near=known, begins=found.begins, late=found.late)


def _is_other(
    key: FlowKey, ends: Container[frozenset[str]], known: dict[FlowKey, bool]
) -> bool:
    """Return whether the endpoints of a flow are not among `ends`."""
    other = known.get(key)
    if other is None:
        other = frozenset(map(str, flow_endpoints(key))) not in ends
        if len(known) < MAX_REMEMBERED:
            known[key] = other
    return other


def iter_timeline(
    source: Source,
    *,
    options: Options | None = None,
    pipeline: Pipeline | None = None,
    ends: Container[frozenset[str]] | None = None,
) -> Iterator[UnitRecord | ConnectionEvent]:
    """Yield the timeline of all connections of a capture in order of time, each record as soon as
    it is settled.

    Args:
        source: a path, `-` for standard input, or an open binary file.
        options: decode-as rules and so on.
        pipeline: a pipeline with a `Recorder`, if its reports are needed afterwards.
        ends: pairs of "address:port"; only packets between them are tracked. None = all. A flow
            that is only recognised by other flows of its server is then not recognised: compare the
            reports with those of all flows.

    """
    others: dict[FlowKey, bool] = {}
    if pipeline is None:
        pipeline = Pipeline(look_ahead(source, options or Options()), recorder=Recorder())
    recorder = pipeline.recorder
    if recorder is None:
        return
    with rare_collections(), opened(source) as reader:
        packets = chain.from_iterable(Decapsulator().batches(reader.batches()))
        for count, packet in enumerate(packets):
            if ends is not None and _is_other(packet[3], ends, others):
                pipeline.tick(packet[1], packet[2])
            else:
                pipeline.packet(packet)
            # Looking for settled records after each packet would cost more than tracking it.
            if not count % _FLUSH_PACKETS:
                yield from recorder.ready(pipeline.now_ns)
        pipeline.finish(reader.info.last_time_ns)
    yield from recorder.rest()
