"""One pass counts what several would: datagrams, units, and what only the end tells of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from netdissect.capture import open_capture
from netdissect.flow import Decapsulator
from netdissect.model.annotations import Severity
from netdissect.model.intervals import Interval
from netdissect.model.packets import Packet
from netdissect.model.reports import ConnectionEvent, ConnectionReport, UnitRecord
from netdissect.pipeline import Intervals, Options, Pipeline, analyze, look_ahead
from netdissect.pipeline import counting as spans_module
from netdissect.pipeline.counting import DatagramCounter, count_datagrams
from netdissect.pipeline.iterate import iter_records
from netdissect.pipeline.observer import Datagram
from netdissect.protocols.base import Protocol
from netdissect.track import intervals as intervals_module
from netdissect.track.recorder import Recorder

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
SAMPLE = [
    CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap",
    CAPTURES / "riptide" / "udp_2.2.1_lossy_serverleg.pcap",
    CAPTURES / "riptide" / "udp_2.2.1_kick_stop.pcap",
    CAPTURES / "riptide" / "tcp_2.2.1_full.pcap",
    CAPTURES / "teeworlds" / "ddnet_loss_client_side.pcap",
    CAPTURES / "teeworlds" / "tw064_loss_client_side.pcap",
    CAPTURES / "knet" / "knet2010_loss.server.pcap",
    CAPTURES / "eoudp" / "late_lossy_client.pcap",
]


class _Read:
    """Counts one capture in one pass."""

    def __init__(
        self,
        path: Path,
        placed: Sequence[ConnectionReport] = (),
        options: Options = Options(),  # noqa: B008 - frozen
        *,
        summed: bool = False,
    ) -> None:
        self.table = Intervals(100_000_000)
        self.table.place(placed)
        self.datagrams: list[tuple[int, int, int, int, bool]] = []
        self.told = 0
        counted = DatagramCounter(self._count, sums=(lambda _: self.table) if summed else None)
        options = replace(options, on_report=lambda report: self.table.place((report,)))
        pipeline = Pipeline(options, recorder=counted.recorder, observer=counted)
        count_datagrams(path, counted, pipeline, self._told)
        self.limits_hit = pipeline.limits_hit

    def _count(
        self, number: int, _protocol: str, direction: int, time_ns: int, octets: int,
        repeated: bool,
    ) -> None:  # fmt: skip
        self.datagrams.append((number, direction, time_ns, octets, repeated))
        self.table.datagram(direction, time_ns, octets, repeated=repeated)

    def _told(self, item: UnitRecord | ConnectionEvent) -> None:
        self.told += 1
        if isinstance(item, UnitRecord) or item.event == "gap":
            self.table.tell(item)


@pytest.mark.parametrize(
    "path", [*SAMPLE, *sorted((CAPTURES / "knet").glob("*loss*.pcap"))], ids=lambda path: path.stem
)
def test_units_that_share_a_record_count_as_those_with_their_own(path: Path) -> None:
    each, shared = _recorded(path, counted=False), _recorded(path, counted=True)
    assert Counter(_copies(shared)) == Counter(_copies(each))
    assert len(shared) <= len(each)


def _recorded(path: Path, *, counted: bool) -> list[UnitRecord]:
    recorder = Recorder(counted=counted)
    pipeline = Pipeline(recorder=recorder)
    with open_capture(path) as reader:
        Decapsulator().hand_over(reader, pipeline)
        pipeline.finish(reader.info.last_time_ns)
    return [item for item in recorder.rest() if isinstance(item, UnitRecord)]


def _copies(units: Sequence[UnitRecord]) -> Iterator[tuple[Any, ...]]:
    for unit in units:
        for seq in range(unit.seq, unit.seq + unit.extra.get("run", 1)):
            for copy in unit.copies:
                named = unit.connection, unit.direction, unit.space, seq, unit.outcome, unit.lost
                yield *named, copy.frame, copy.time_ns, copy.kind, unit.rtt_ms


@pytest.mark.parametrize(
    "path",
    [
        *SAMPLE,
        *sorted((CAPTURES / "knet").glob("*loss*.pcap")),
        *sorted((CAPTURES / "netplay").glob("*.pcap")),
        *sorted(CAPTURES.glob("*/tcp_*.pcap")),
    ],
    ids=lambda path: path.stem,
)
def test_units_that_are_but_summed_up_count_as_those_with_records(path: Path) -> None:
    each, summed = _Read(path), _Read(path, summed=True)
    assert summed.table.rows() == each.table.rows()
    assert summed.datagrams == each.datagrams
    assert not summed.told


def test_connections_that_are_left_out_count_nothing() -> None:
    table = Intervals(100_000_000)
    counted = DatagramCounter(lambda *_: None, sums=lambda _: table)
    pipeline = Pipeline(Options(), recorder=counted.recorder, observer=counted)
    count_datagrams(SAMPLE[0], counted, pipeline, lambda _: None)
    for report in pipeline.reports:
        table.leave_out(report.connection)
    assert table.rows() == []


def test_consecutive_messages_of_a_datagram_share_a_record() -> None:
    path = CAPTURES / "knet" / "udp_burst_acks.pcap"
    assert len(_recorded(path, counted=True)) < 0.6 * len(_recorded(path, counted=False))


@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: path.stem)
@pytest.mark.parametrize("late_ns", [intervals_module.LATE_NS, 0])
def test_what_is_known_at_the_end_counts_as_if_it_had_been_known_before(
    path: Path, late_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without patience nearly everything is counted before its connection is over.
    monkeypatch.setattr(intervals_module, "LATE_NS", late_ns)
    before: list[Interval] = _Read(path, list(analyze(path).connections)).table.rows()
    assert any(row.units for row in before)
    assert _Read(path).table.rows() == before


@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: path.stem)
@pytest.mark.parametrize("late_ns", [intervals_module.LATE_NS, 0])
def test_copies_judged_late_count_as_if_the_place_had_been_known_before(
    path: Path, late_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without patience nearly everything is counted before it is known.
    monkeypatch.setattr(intervals_module, "LATE_NS", late_ns)
    ahead = _Read(path, options=look_ahead(str(path), Options())).table.rows()
    assert _Read(path).table.rows() == ahead


@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: path.stem)
def test_datagrams_are_those_of_the_records(path: Path) -> None:
    known = [record for record in iter_records(path) if record.protocol is not None]
    expected = [
        (
            record.connection, record.direction, record.time_ns, record.length,
            bool(record.kinds) and "original" not in record.kinds,
        )
        for record in known
    ]  # fmt: skip
    found = _Read(path).datagrams
    assert found[0] == expected[0]  # where the first span begins
    assert sorted(found) == sorted(expected)


def test_too_many_that_wait_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans_module, "MAX_UNCOUNTED", 5)
    known = _Kept()
    pipeline = Pipeline(Options(), recorder=Recorder(), observer=known)
    with open_capture(SAMPLE[0]) as reader:
        pipeline.run(list(Decapsulator().packets(reader)))
    frames: list[int] = []
    counted = DatagramCounter(lambda *told: frames.append(told[3]))
    for item in known.items[10:]:
        counted.seen(item)
    counted.ready(known.items[9].frame)
    late = [item.time_ns for item in known.items[10:]]
    assert frames == late
    assert counted.early == len(frames)


class _Kept:
    """Keeps every datagram of a known protocol."""

    def __init__(self) -> None:
        self.items: list[Datagram] = []

    def reads_events(self, protocol: Protocol) -> bool:
        return False

    def seen(self, item: Datagram) -> None:
        self.items.append(item)

    def other(self, packet: Packet) -> None:
        pass

    def finding(self, code: str, severity: Severity, frame: int | None) -> None:
        pass


def test_what_comes_late_is_counted_first_at_a_cost_of_its_own() -> None:
    """A flow that is recognised late gives its datagrams after those of others that are held."""
    counted: list[int] = []
    spans = DatagramCounter(lambda _number, _protocol, _way, time_ns, _octets, _again: counted.append(time_ns))
    known = _Kept()
    pipeline = Pipeline(Options(), recorder=Recorder(), observer=known)
    with open_capture(SAMPLE[0]) as reader:
        pipeline.run(list(Decapsulator().packets(reader)))

    def come(frame: int) -> None:
        item = Datagram(frame, frame, b"")
        item.connection = known.items[0].connection
        spans.seen(item)

    held = 60_000
    for frame in range(held):
        come(held + frame)
    begun = process_time()
    for frame in range(0, held, 30):
        come(held - 1 - frame)
        spans.ready(0)
    assert process_time() - begun < 1
    assert counted == []
    spans.ready(None)
    assert counted[0] == 29
    assert sorted(counted) == [*range(29, held, 30), *range(held, 2 * held)]
