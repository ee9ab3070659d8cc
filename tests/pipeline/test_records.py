from __future__ import annotations

from pathlib import Path

import pytest

from netdissect.model.records import DatagramRecord
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.pipeline import Options, Pipeline, analyze
from netdissect.pipeline.records import Records, iter_both, iter_records

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
SAMPLE = [
    CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap",
    CAPTURES / "riptide" / "tcp_2.2.1_full.pcap",
    CAPTURES / "eoudp" / "late_lossy_client.pcap",
    CAPTURES / "eoudp" / "decoys.pcap",
]


@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: path.stem)
def test_records_agree_with_the_analysis(path: Path) -> None:
    found = analyze(path)
    records = list(iter_records(path))
    frames = [record.frame for record in records]
    assert frames == sorted(frames)
    known = [record for record in records if record.protocol is not None]
    for report in found.connections:
        mine = [record for record in known if record.connection == report.connection]
        for direction in (0, 1):
            sent = [record for record in mine if record.direction == direction]
            if report.transport == "udp":
                assert len(sent) == report.datagrams[direction]
            kinds: dict[str, int] = {}
            for record in sent:
                for item in record.messages:
                    kinds[item.type] = kinds.get(item.type, 0) + 1
            assert kinds == report.messages[direction]
    assert sum(record.protocol is None for record in records) == found.other_datagrams


@pytest.mark.parametrize("path", SAMPLE[:3], ids=lambda path: path.stem)
def test_messages_carry_the_units_of_the_timeline(path: Path) -> None:
    records = Records()
    pipeline = Pipeline(recorder=records.recorder, observer=records)
    items = list(iter_both(path, records, pipeline))
    copies = {
        (item.connection, item.direction, item.space, item.seq, copy.frame, copy.kind)
        for item in items
        if isinstance(item, UnitRecord) and item.type is not None
        for copy in item.copies
    }
    seen = {
        (record.connection, record.direction, fact.space, fact.seq, record.frame, fact.kind)
        for record in items
        if isinstance(record, DatagramRecord)
        for message in record.messages
        if (fact := message.reliability) is not None
    }
    assert copies == seen
    assert any(isinstance(item, ConnectionEvent) for item in items)


def test_a_live_source_gets_the_same_records_at_once() -> None:
    held = [(record.frame, record.src, record.payload) for record in iter_records(SAMPLE[0])]
    live = [
        (record.frame, record.src, record.payload) for record in iter_records(SAMPLE[0], live=True)
    ]
    assert held == live


def test_findings_of_the_tracker_stand_on_their_datagrams() -> None:
    total: dict[str, int] = {"chat": 0, "note": 0, "warn": 0, "error": 0}
    for record in iter_records(SAMPLE[0]):
        for finding in record.findings:
            total[finding.severity.label] += 1
    report = analyze(SAMPLE[0]).connections[0]
    assert total["chat"] > 0
    assert all(total[label] <= report.anomalies[label] for label in total)


def test_offsets_lie_inside_the_buffers() -> None:
    for path in SAMPLE:
        for record in iter_records(path):
            for item in record.messages:
                assert record.dissection is None or item.offset + item.length <= len(
                    record.dissection.buffers[item.buffer].data
                )


def test_a_dialect_can_be_asked_for() -> None:
    options = Options(dialects={"riptide": "riptide-2.1"})
    assert {record.dialect for record in iter_records(SAMPLE[0], options=options, live=True)} <= {
        "riptide-2.1",
        "riptide-2.2",
    }
