from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from netdissect.cli.naming import names
from netdissect.export import json
from netdissect.filters import compile_filter
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.pipeline import Options, Pipeline, analyze
from netdissect.pipeline import records as records_module
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


def _read(path: Path, *, lazy: bool) -> Iterator[DatagramRecord]:
    records = Records(lazy=lazy)
    pipeline = Pipeline(Options(), recorder=records.recorder, observer=records)
    for item in iter_both(path, records, pipeline):
        if isinstance(item, DatagramRecord):
            yield item


@pytest.mark.parametrize("passed", [records_module.MAX_PASSED, 7])
@pytest.mark.parametrize(
    "path",
    [
        SAMPLE[0],
        CAPTURES / "teeworlds" / "tw064_loss_client_side.pcap",
        CAPTURES / "knet" / "knet2010_clean.pcap",
        CAPTURES / "knet" / "tcp_big_messages.pcap",
    ],
    ids=lambda path: path.stem,
)
def test_what_is_decoded_late_or_not_at_all_changes_no_other_record(
    path: Path, passed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "MAX_PASSED", passed)
    both = zip(_read(path, lazy=True), _read(path, lazy=False), strict=True)
    for index, (record, whole) in enumerate(both):
        if not index % 3:
            assert json.shown(record) == json.shown(whole)


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("frame.number > 100000", False),
        ("conn.id == 77", False),
        ("msg.type == Heartbeat and conn.id == 77", False),
        ("not (conn.id or msg.type)", False),
        ("msg.resend and udp.length == 1", False),
        ("msg.type == Heartbeat", True),
    ],
)
def test_a_datagram_that_cheaper_facts_throw_out_is_not_decoded(
    text: str, decoded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0
    dissect = records_module.dissect

    def counted(*args: object, **extra: object) -> object:
        nonlocal count
        count += 1
        return dissect(*args, **extra)  # type: ignore[arg-type]

    monkeypatch.setattr(records_module, "dissect", counted)
    wanted = compile_filter(text, names())
    for record in _read(SAMPLE[0], lazy=True):
        wanted.matches(record)
    assert (count > 0) == decoded


@pytest.mark.parametrize("path", SAMPLE[:3], ids=lambda path: path.stem)
@pytest.mark.parametrize("kind", ["msg.resend", "msg.duplicate", "msg.key", "msg.reliable"])
def test_what_the_tracker_knows_is_the_same_before_and_after_decoding(
    path: Path, kind: str
) -> None:
    wanted = compile_filter(kind, names())
    every = list(iter_records(path))
    before = [wanted.matches(record) for record in _read(path, lazy=True)]
    for record in every:
        record.kinds = None
    assert before == [wanted.matches(record) for record in every]
