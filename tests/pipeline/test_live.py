from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import samples
from netdissect.model.live import ViewRequest
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import Copy
from netdissect.pipeline.live import MAX_CHOSEN, Chosen, look

PIPELINE: Any = SimpleNamespace(now_ns=0, oldest_sampled=None)


class Records:
    """Stands for the pipeline's observer."""

    def __init__(self, records: list[DatagramRecord]) -> None:
        self.records = records

    def ready(self, *_: object) -> Iterator[DatagramRecord]:
        while self.records:
            yield self.records.pop(0)


def chosen(records: list[DatagramRecord]) -> Chosen:
    made = Chosen(Records(records))  # type: ignore[arg-type]
    made.filter(lambda one: one.frame % 2 == 0)
    made.look(PIPELINE)
    return made


def test_connections_and_frames_that_match_are_remembered() -> None:
    found = chosen([samples.datagram(frame=number, connection=number) for number in range(1, 7)])
    assert list(found.connections) == list(found.frames) == [2, 4, 6]
    assert chosen([samples.datagram(frame=2, connection=None)]).connections == {}


def test_another_filter_begins_anew() -> None:
    found = chosen([samples.datagram(frame=number, connection=number) for number in range(1, 7)])
    found.filter(lambda one: one.frame % 3 == 0)
    assert not found.frames
    found.records.records = [samples.datagram(frame=number, connection=7) for number in (8, 9)]
    found.look(PIPELINE)
    assert (list(found.frames), list(found.connections)) == ([9], [7])
    found.filter(None)
    assert not found.connections


def test_units_and_events_on_matching_frames_are_held() -> None:
    found = chosen([samples.datagram(frame=42)])
    again = [Copy(41, 0, "original"), Copy(42, 0, "retransmission")]
    assert found.holds(samples.unit(copies=again))
    assert not found.holds(samples.unit(copies=again[:1]))
    assert found.holds(samples.event(frame=42))
    assert not found.holds(samples.event(frame=None))


def test_what_is_remembered_is_bounded_and_the_newest_stays() -> None:
    frames = range(2, 2 * MAX_CHOSEN + 40, 2)
    found = chosen([samples.datagram(frame=frame, connection=frame) for frame in frames])
    assert len(found.frames) == len(found.connections) == MAX_CHOSEN
    assert next(reversed(found.frames)) == frames[-1]


def test_units_of_connections_that_are_not_looked_for_are_not_shown() -> None:
    pending = [samples.unit(), samples.event(frame=42)]
    pipeline: Any = SimpleNamespace(
        tracked=list, recorder=SimpleNamespace(pending=pending), now_ns=0, other_datagrams=0,
        begun=SimpleNamespace(count=0),
    )  # fmt: skip
    info = SimpleNamespace(path="lo")
    feed: Any = SimpleNamespace(info=info, packets=2, own_drops=0, backend="test")
    assert look(feed, pipeline, ViewRequest(1, 5, "active", "", None)).recent == pending
    assert look(feed, pipeline, ViewRequest(1, 5, "active", "riptide", None)).recent == []
