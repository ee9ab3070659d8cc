"""Runs a live capture through the pipeline for `sniff`, and takes snapshots for its dashboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from netdissect.capture.live import Interface, LiveRequest, find_interface, interfaces
from netdissect.capture.live.choice import BACKENDS
from netdissect.capture.live.feed import LiveFeed
from netdissect.capture.live.limits import Autostop, RingRule
from netdissect.capture.live.replay import ReplaySource
from netdissect.capture.live.rights import successor
from netdissect.capture.live.source import PolledInput
from netdissect.diagnosis import diagnose
from netdissect.flow import Decapsulator
from netdissect.model.live import ConnectionSnapshot, LiveView, ViewRequest
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import ConnectionEvent, ConnectionReport, UnitRecord
from netdissect.pipeline.server_totals import ServerTotals, median_round_trip
from netdissect.pipeline.stages import Pipeline
from netdissect.track.conclusion import snapshot
from netdissect.track.connection import Connection

if TYPE_CHECKING:
    from netdissect.pipeline.records import Records

__all__ = [
    "BACKENDS",
    "MAX_CHOSEN",
    "Autostop",
    "Chosen",
    "Interface",
    "LiveFeed",
    "LiveRequest",
    "RingRule",
    "ServerTotals",
    "find_interface",
    "interfaces",
    "look",
    "standings",
    "successor",
    "watch",
]

_FORGET_PACKETS = 256
"""Packets after which settled records of the timeline are freed."""
MAX_CHOSEN = 8192
"""Newest matching connections, and newest matching frames, that are remembered."""
_LOOKED_THROUGH = 4096
"""Newest items of the timeline that are searched for matches."""
_DIAGNOSED = 64
"""Most recently active connections that are sorted by an order that needs a diagnosis."""


_NOTHING: frozenset[str | None] = frozenset()


class Chosen:
    """The newest connections and frames of a running capture that match a filter, if there is one:
    of the datagrams that were captured since it was given.
    """

    def __init__(self, records: Records) -> None:
        """Take the observer of the pipeline."""
        self.records = records
        self.connections: dict[int, None] = {}
        """Numbers of the connections with a matching datagram, in the order of the newest one."""
        self.frames: dict[int, None] = {}
        """Matching frames, newest last."""
        self.matches: Callable[[DatagramRecord], bool] | None = None
        """The filter; None = none."""
        records.needs = _NOTHING

    def filter(self, matches: Callable[[DatagramRecord], bool] | None) -> None:
        """Apply another filter from now on; None = none."""
        self.matches = matches
        self.records.needs = _NOTHING if matches is None else None
        self.connections.clear()
        self.frames.clear()

    def look(self, pipeline: Pipeline) -> None:
        """Apply the filter to the records that have become ready."""
        matches = self.matches
        for record in self.records.ready(pipeline.now_ns, pipeline.oldest_sampled):
            if matches is not None and matches(record):
                _remember(self.frames, record.frame)
                if record.connection is not None:
                    _remember(self.connections, record.connection)

    def holds(self, item: UnitRecord | ConnectionEvent) -> bool:
        """Return whether an item of the timeline belongs to a matching frame."""
        if isinstance(item, UnitRecord):
            return any(copy.frame in self.frames for copy in item.copies)
        return item.frame in self.frames


def _remember(known: dict[int, None], number: int) -> None:
    known.pop(number, None)
    known[number] = None
    if len(known) > MAX_CHOSEN:
        del known[next(iter(known))]


def watch(
    feed: LiveFeed,
    pipeline: Pipeline,
    chosen: Chosen | None = None,
    at_end: Callable[[], None] | None = None,
) -> None:
    """Process a capture to its end. Meanwhile `look` may be called from `LiveFeed.on_tick`, and for
    the last time from `at_end`.
    """
    recorder = pipeline.recorder
    for count, packet in enumerate(Decapsulator().packets(feed)):
        pipeline.feed(packet)
        if chosen is not None:
            chosen.look(pipeline)
        if recorder is not None and not count % _FORGET_PACKETS:
            for _ in recorder.ready(pipeline.now_ns):
                pass
    if at_end is not None:
        at_end()
    pipeline.finish(feed.info.last_time_ns)


def look(
    feed: LiveFeed, pipeline: Pipeline, wish: ViewRequest, chosen: Chosen | None = None
) -> LiveView:
    """Return a snapshot of a running capture.

    Args:
        feed: the capture.
        pipeline: has processed its packets so far.
        wish: how much of it to show, and in which order.
        chosen: what matches the filter; None = no filter is possible.

    """
    tracked = pipeline.tracked()
    pending = pipeline.recorder.pending if pipeline.recorder is not None else ()
    newest: Iterator[UnitRecord | ConnectionEvent] = reversed(pending)
    if chosen is not None and chosen.matches is not None:
        tracked = [one for one in tracked if one.number in chosen.connections]
        newest = filter(chosen.holds, islice(newest, _LOOKED_THROUGH))
    if wish.only is not None:
        newest = (item for item in islice(newest, _LOOKED_THROUGH) if item.connection == wish.only)
        tracked = [one for one in tracked if one.number == wish.only]
    text = wish.text if wish.only is None else ""
    matching = [one for one in tracked if _has(one, text)]
    if text:
        numbers = {one.number for one in matching}
        newest = (item for item in islice(newest, _LOOKED_THROUGH) if item.connection in numbers)
    shown = _ordered(matching, wish)
    return LiveView(
        source=_source(feed),
        now_ns=pipeline.now_ns,
        packets=feed.packets,
        lost=feed.own_drops,
        other_datagrams=pipeline.other_datagrams,
        connections_begun=pipeline.begun.count,
        connections=shown,
        hidden=len(tracked) - len(shown),
        recent=list(islice(newest, wish.recent))[::-1],
    )


def _source(feed: LiveFeed) -> str:
    """Return what is captured, and by which backend."""
    path = feed.info.path
    if feed.backend != ReplaySource.backend:
        return f"{path} with {feed.backend}"
    return "standard input" if path in {PolledInput.name, "-"} else path


def standings(pipeline: Pipeline) -> list[ConnectionReport]:
    """Return current reports of the most recently active connections."""
    tracked = sorted(pipeline.tracked(), key=lambda one: one.last_ns, reverse=True)
    found = [snapshot(one) for one in tracked[:_DIAGNOSED]]
    for report in found:
        report.diagnosis = diagnose(report)
    return found


def _has(connection: Connection, text: str) -> bool:
    """Return whether every word of a text occurs in the endpoints, dialect or state."""
    facts = (*connection.endpoints, *connection.hints.dialects, connection.machine.word)
    whole = " ".join(facts).lower()
    return all(word in whole for word in text.lower().split())


def _ordered(tracked: list[Connection], wish: ViewRequest) -> list[ConnectionSnapshot]:
    """Return the first connections in the requested order."""
    # Also for other orders: sorting is stable, so that equal ones stay in the order of activity.
    tracked.sort(key=lambda one: one.last_ns, reverse=True)
    if wish.order in _BADNESS:
        found = [_snapshot(one) for one in tracked[: max(_DIAGNOSED, wish.connections)]]
        found.sort(key=_BADNESS[wish.order], reverse=True)
        return found[: wish.connections]
    if wish.order == "number":
        tracked.sort(key=lambda one: one.number, reverse=True)
    elif wish.order == "resent":
        tracked.sort(key=_resent, reverse=True)
    return [_snapshot(one) for one in tracked[: wish.connections]]


def _resent(connection: Connection) -> int:
    spaces = (space for lane in connection.lanes for space in lane.space_list)
    return sum(space.repeats.retransmissions for space in spaces)


def _lost(one: ConnectionSnapshot) -> float:
    found = one.diagnosis
    return 0.0 if found is None else max(part.share or 0.0 for part in found.loss)


def _late(one: ConnectionSnapshot) -> float:
    found = one.diagnosis
    return 0.0 if found is None else found.lag.late_ms or 0.0


_BADNESS: dict[str, Callable[[ConnectionSnapshot], float]] = {
    "loss": _lost,
    "late": _late,
    "RTT": lambda one: one.rtt_ms or 0.0,
}


def _snapshot(connection: Connection) -> ConnectionSnapshot:
    there, back = connection.lanes
    spaces = [space for lane in connection.lanes for space in lane.space_list]
    chat, note, warn, error = connection.findings.by_severity
    return ConnectionSnapshot(
        connection=connection.number,
        dialects=connection.hints.dialects,
        transport=connection.transport,
        client=connection.endpoints[0],
        server=connection.endpoints[1],
        state=connection.machine.word,
        first_time_ns=connection.lifetime.first_ns,
        last_time_ns=connection.last_ns,
        datagrams=(there.datagrams, back.datagrams),
        octets=(there.octets, back.octets),
        units=sum(space.units for space in spaces),
        retransmissions=_resent(connection),
        rtt_ms=median_round_trip(connection),
        anomalies=(chat, note, warn, error),
        diagnosis=diagnose(snapshot(connection)),
    )
