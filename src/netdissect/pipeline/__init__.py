"""From a capture to reports: the only place that knows all stages."""

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
from netdissect.model.packets import Frame, Packet, flow_endpoints
from netdissect.model.reports import CaptureInfo, ConnectionEvent, ConnectionReport, UnitRecord
from netdissect.pipeline import parallel
from netdissect.pipeline.anomalies import Anomalies
from netdissect.pipeline.collector import rare_collections
from netdissect.pipeline.options import Analysis, Options, Placement, Reading, decode_as, reading
from netdissect.pipeline.parallel import processes_for
from netdissect.pipeline.stages import Pipeline
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
    """An open capture: a file's reader, or a live one."""

    @property
    def info(self) -> CaptureInfo:
        """Return what is known of it so far."""

    def __iter__(self) -> Iterator[Frame]:
        """Yield its frames, once."""

    def batches(self) -> Iterator[list[Frame]]:
        """Yield the same frames in lists, each as soon as it is there."""


Source = str | os.PathLike[str] | IO[bytes] | FrameSource
Watch = Callable[[FrameSource], object]

MAX_REMEMBERED = 65_536
"""Flows of which is remembered whether they are tracked; of others it is found out again."""
_FLUSH_PACKETS = 256
"""The timeline is looked through for settled records after so many packets."""


def opened(source: Source) -> AbstractContextManager[FrameSource]:
    """Return a context with the reader of a capture; one that is open already is left open."""
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
    """Return everything that a capture holds.

    Args:
        source: a path, `-` for standard input, or an open binary file.
        options: decode-as rules and the like; `on_anomaly` is told of the anomalies at the end.
        processes: processes that share the work; more than 1 only for a file, see `parallel`.
        anomalies: False where nobody wants anomalies one by one: reports count them all the same.

    Raises:
        CaptureError: the file is missing, unreadable or no capture.

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
    """Return the options with what only the whole of a capture tells: in which order connections
    begin, and where it was taken.

    So that numbers are the same in all views, and what hangs on the place is the same from the
    first unit on. Unchanged for what cannot be read twice: there both are told by what is known up
    to then.

    Args:
        source: what is to be read.
        options: decode-as rules and the like.
        processes: processes that share the work; None = as many as pay.
        most: bytes of a file that is looked at; None = any.
        watch: is given what reads the file, before it does.

    """
    if options.near is not None:
        return options
    placing = replace(options, on_late=None, placing=True)
    found = first_look(source, placing, processes=processes, most=most, watch=watch)
    if found is None:
        return options
    return replace(options, near=found.near, begins=found.begins, repeated=found.repeated)


def first_look(
    source: Source,
    options: Options,
    *,
    processes: int | None = 1,
    most: int | None = None,
    watch: Watch | None = None,
) -> Analysis | None:
    """Return everything that a file holds; None for what cannot be read twice, or has more than
    `most` bytes. Told along the way is only `options.on_late`.
    """
    if not isinstance(source, (str, os.PathLike)):
        return None
    try:
        found = Path(source).stat()
    except OSError:
        return None  # reading it says why
    if not stat.S_ISREG(found.st_mode) or found.st_size > (most or found.st_size):
        return None
    # What is to be told would be told in another process.
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
    """Return the options with what a first look at the whole of a capture has shown; `reports`:
    those of the connections that are wanted, None = all.
    """
    reports = found.connections if reports is None else reports
    known = ByConnection[Placement]()
    for report in reports:
        known.put(report.connection, (*report.near, report.misses_frames, report.close_resends))
    return replace(options, near=known, begins=found.begins)


def _is_other(
    key: FlowKey, ends: Container[frozenset[str]], known: dict[FlowKey, bool]
) -> bool:
    """Return whether a flow is between other ends than those that are wanted."""
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
    """Yield the timeline of all connections of a capture in order of time, as it settles.

    Args:
        source: a path, `-` for standard input, or an open binary file.
        options: decode-as rules and the like.
        pipeline: a pipeline made with a `Recorder`, to look at its reports afterwards.
        ends: pairs of "address:port" whose packets alone are tracked; None = all. What is
            recognised by the packets of others then is not: compare the reports with those of all.

    """
    others: dict[FlowKey, bool] = {}
    if pipeline is None:
        pipeline = Pipeline(look_ahead(source, options or Options()), recorder=Recorder())
    recorder = pipeline.recorder
    if recorder is None:
        return
    with rare_collections(), opened(source) as reader:
        frames = chain.from_iterable(reader.batches())
        packets: Iterator[Packet] = Decapsulator().packets(frames)
        for count, packet in enumerate(packets):
            if ends is not None and _is_other(packet[3], ends, others):
                pipeline.tick(packet[1], packet[2])
            else:
                pipeline.packet(packet)
            if not count % _FLUSH_PACKETS:
                yield from recorder.ready(pipeline.now_ns)
        pipeline.finish(reader.info.last_time_ns)
    yield from recorder.rest()
