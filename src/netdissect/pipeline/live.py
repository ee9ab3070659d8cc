"""A live capture and the pipeline: what `sniff` runs, and what its dashboard shows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from netdissect.capture.live import Interface, LiveRequest, find_interface, interfaces
from netdissect.capture.live.choice import BACKENDS
from netdissect.capture.live.feed import LiveFeed
from netdissect.capture.live.limits import Autostop, RingRule
from netdissect.flow import Decapsulator
from netdissect.model.live import Glimpse, LiveView
from netdissect.pipeline.table import Pipeline
from netdissect.track.connection import Connection

__all__ = [
    "BACKENDS",
    "Autostop",
    "Interface",
    "LiveFeed",
    "LiveRequest",
    "RingRule",
    "find_interface",
    "interfaces",
    "look",
    "watch",
]

_FORGET_PACKETS = 256
"""The timeline is freed of settled records after so many packets."""


def watch(feed: LiveFeed, pipeline: Pipeline) -> None:
    """Take a capture to its end; `look` may be called meanwhile, from `LiveFeed.on_tick`."""
    recorder = pipeline.recorder
    for count, packet in enumerate(Decapsulator().packets(feed)):
        pipeline.feed(packet)
        if recorder is not None and not count % _FORGET_PACKETS:
            for _ in recorder.ready(pipeline.now_ns):
                pass
    pipeline.finish()


def look(feed: LiveFeed, pipeline: Pipeline, *, connections: int, recent: int) -> LiveView:
    """Return how a capture stands.

    Args:
        feed: the capture.
        pipeline: what has taken its packets so far.
        connections: how many connections are wanted at most, those active last.
        recent: how much of the end of the timeline is wanted at most.

    """
    tracked = sorted(pipeline.tracked(), key=lambda one: one.last_ns, reverse=True)
    pending = pipeline.recorder.pending if pipeline.recorder is not None else ()
    return LiveView(
        source=f"{feed.info.path} with {feed.backend}",
        now_ns=pipeline.now_ns,
        packets=feed.packets,
        lost=feed.own_drops,
        other_datagrams=pipeline.other_datagrams,
        connections_begun=len(pipeline.begun),
        connections=[_glimpse(one) for one in tracked[:connections]],
        recent=list(islice(reversed(pending), recent))[::-1],
    )


def _glimpse(connection: Connection) -> Glimpse:
    there, back = connection.lanes
    spaces = [space for lane in connection.lanes for space in lane.spaces.values()]
    chat, note, warn, error = connection.findings.by_severity
    return Glimpse(
        connection=connection.number,
        dialects=connection.hints.dialects,
        transport=connection.transport,
        client=connection.endpoints[0],
        server=connection.endpoints[1],
        state=connection.machine.word,
        first_time_ns=connection.first_ns,
        last_time_ns=connection.last_ns,
        datagrams=(there.datagrams, back.datagrams),
        octets=(there.octets, back.octets),
        units=sum(space.units for space in spaces),
        retransmissions=sum(space.retransmissions for space in spaces),
        rtt_ms=next(_medians(connection), None),
        anomalies=(chat, note, warn, error),
    )


def _medians(connection: Connection) -> Iterator[float]:
    """Yield the medians of what was measured, the most samples first."""
    trips = [trip for lane in connection.lanes for trip in lane.round_trips() if trip.samples]
    for trip in sorted(trips, key=lambda one: one.samples, reverse=True):
        middle = trip.percentile(0.5)
        if middle is not None:
            yield middle
