"""One pass counts what several would: datagrams, units, and what only the end tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from netdissect.model.intervals import Interval
from netdissect.model.reports import ConnectionEvent, ConnectionReport, UnitRecord
from netdissect.pipeline import Intervals, Options, Pipeline, analyze
from netdissect.pipeline import spans as spans_module
from netdissect.pipeline.records import iter_records
from netdissect.pipeline.spans import Counted, tell
from netdissect.track import intervals as intervals_module

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
SAMPLE = [
    CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap",
    CAPTURES / "riptide" / "udp_2.2.1_lossy_serverleg.pcap",
    CAPTURES / "riptide" / "tcp_2.2.1_full.pcap",
    CAPTURES / "teeworlds" / "ddnet_loss_client_side.pcap",
    CAPTURES / "teeworlds" / "tw064_loss_client_side.pcap",
    CAPTURES / "knet" / "knet2010_loss.server.pcap",
    CAPTURES / "eoudp" / "late_lossy_client.pcap",
]


class _Read:
    """Counts one capture in one pass."""

    def __init__(self, path: Path, placed: Sequence[ConnectionReport] = ()) -> None:
        self.table = Intervals(100_000_000)
        self.table.place(placed)
        self.datagrams: list[tuple[int, int, int, int, list[str]]] = []
        counted = Counted(self._count)
        options = Options(on_report=lambda report: self.table.place((report,)))
        pipeline = Pipeline(options, recorder=counted.recorder, observer=counted)
        tell(path, counted, pipeline, self._told)
        self.limits_hit = pipeline.limits_hit

    def _count(
        self, number: int, _protocol: str, direction: int, time_ns: int, octets: int,
        kinds: Sequence[str | None],
    ) -> None:  # fmt: skip
        self.datagrams.append((number, direction, time_ns, octets, sorted(map(str, kinds))))
        self.table.datagram(direction, time_ns, octets, kinds)

    def _told(self, item: UnitRecord | ConnectionEvent) -> None:
        if isinstance(item, UnitRecord) or item.event == "gap":
            self.table.tell(item)


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
def test_datagrams_are_those_of_the_records(path: Path) -> None:
    known = [record for record in iter_records(path) if record.protocol is not None]
    assert _Read(path).datagrams == [
        (
            record.connection, record.direction, record.time_ns, record.length,
            sorted(map(str, record.kinds or ())),
        )
        for record in known
    ]  # fmt: skip


def test_too_many_that_wait_count_as_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans_module, "MAX_UNCOUNTED", 1)
    read = _Read(SAMPLE[0])
    assert read.limits_hit["MAX_UNCOUNTED"] > 0
    known = [record for record in iter_records(SAMPLE[0]) if record.protocol is not None]
    assert len(read.datagrams) == len(known)
