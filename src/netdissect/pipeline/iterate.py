"""Iterates over the records of a capture. Not compiled: these generators hold an open file, and
callers may abandon them half-way (see ARCHITECTURE.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from netdissect.flow import Decapsulator
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.pipeline import Source, look_ahead, opened
from netdissect.pipeline.collector import rare_collections
from netdissect.pipeline.holding import advance
from netdissect.pipeline.options import Options
from netdissect.pipeline.records import Records
from netdissect.pipeline.stages import Pipeline


def iter_records(
    source: Source,
    *,
    options: Options | None = None,
    schemas: Mapping[str, Any] | None = None,
    live: bool = False,
) -> Iterator[DatagramRecord]:
    """Yield one record per datagram of a capture, in the order of frames.

    Args:
        source: a path, `-` for standard input, an open binary file or reader.
        options: decode-as rules and so on.
        schemas: user schemas by protocol.
        live: yield records at once, without waiting for the outcome of their units.

    """
    records = Records(
        schemas=schemas,
        strict=bool(options and options.strict),
        live=live,
        bounds=options.reading.bounds if options and options.reading else None,
    )
    options = options or Options()
    if not live:
        options = look_ahead(source, options)
    pipeline = Pipeline(options, recorder=records.recorder, observer=records)
    for item in iter_both(source, records, pipeline, timeline=False):
        if isinstance(item, DatagramRecord):
            yield item


def iter_both(
    source: Source, records: Records, pipeline: Pipeline, *, timeline: bool = True
) -> Iterator[DatagramRecord | UnitRecord | ConnectionEvent]:
    """Yield datagrams and the timeline in one pass, each in its own order and as soon as possible.

    Args:
        source: a path, `-` for standard input, an open binary file or reader.
        records: the observer of the pipeline.
        pipeline: a pipeline with the recorder of `records`.
        timeline: False if only the datagrams are needed.

    """
    records.recorder.events = timeline
    if records.lazy:
        records.held.needs = records.needs
        records.recorder.bare = records.needs is None
    with rare_collections(), opened(source) as reader:
        for packets in Decapsulator().batches(reader.batches()):
            at = 0
            while at < len(packets):
                at, left = advance(packets, at, pipeline, records, timeline=timeline)
                yield from left
        pipeline.finish(reader.info.last_time_ns)
    if records.held.early:
        pipeline.limits_hit["MAX_HELD_RECORDS"] = records.held.early
    if timeline:
        yield from records.recorder.rest()
    yield from records.rest()
