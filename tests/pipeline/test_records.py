from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import UDP
from scapy.utils import rdpcap, wrpcap

from netdissect.capture import open_capture
from netdissect.cli.request import filter_names
from netdissect.export import json
from netdissect.filters import compile_filter
from netdissect.flow import Decapsulator
from netdissect.lookup import hot_path
from netdissect.model.annotations import Annotation, Severity
from netdissect.model.records import DatagramRecord, MessageRecord, assign_annotations
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.pipeline import Options, Pipeline, analyze, look_ahead
from netdissect.pipeline import holding as held_module
from netdissect.pipeline import records as records_module
from netdissect.pipeline.early import early_records
from netdissect.pipeline.holding import advance
from netdissect.pipeline.iterate import iter_both, iter_records
from netdissect.pipeline.observer import Datagram
from netdissect.pipeline.options import UNKNOWN_PLACEMENT
from netdissect.pipeline.records import Records
from netdissect.track.outcomes import KIND
from netdissect.track.recorder import HOLD_NS
from netdissect.track.repeats import FINDING
from packetbuild import A4, B4, ipv4, link_frame, pcap_file, udp, vital_chunks
from twocaptures import rewritten
from work import lines

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


SEVERAL = [
    CAPTURES / "knet" / "udp_same_endpoint_reconnect.client.pcap",
    CAPTURES / "netplay" / "bin1_server_full.pcap",
    CAPTURES / "riptide" / "udp_2.2.1_reconnect.pcap",
    CAPTURES / "teeworlds" / "ddnet_mixed.pcap",
    CAPTURES / "teeworlds" / "tw07_reconnect.pcap",
]


def _shown(item: DatagramRecord | UnitRecord | ConnectionEvent):
    if isinstance(item, UnitRecord):
        return json.unit(item)
    return json.event(item) if isinstance(item, ConnectionEvent) else json.shown(item)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    "name",
    ["teeworlds/ddnet_loss_server_side", "teeworlds/ddnet_mixed", "riptide/tcp_2.2.1_clean"],
)
def test_a_look_ahead_places_captures_as_reports_do(name: str, processes: int) -> None:
    path = str(CAPTURES / f"{name}.pcap")
    ahead = look_ahead(path, Options(), processes=processes)
    whole = analyze(path)
    placed = {
        each.connection: each.placement
        for each in whole.connections
    }
    known = {number: near for number, near in placed.items() if near != UNKNOWN_PLACEMENT}
    assert known
    assert ahead.near == known
    assert ahead.begins == whole.begins


@pytest.mark.parametrize("path", SEVERAL, ids=lambda path: path.stem)
def test_what_is_wanted_of_some_connections_is_what_all_have(path: Path) -> None:
    def read(only: frozenset[int] | None):
        options = replace(look_ahead(path, Options()), only=only)
        records = Records()
        pipeline = Pipeline(options, recorder=records.recorder, observer=records)
        datagrams, timeline = [], []
        for item in iter_both(path, records, pipeline):
            kind = datagrams if isinstance(item, DatagramRecord) else timeline
            kind.append((item.connection, _shown(item)))
        return datagrams, timeline, [json.connection(report) for report in pipeline.reports]

    def of(number, items):
        return [shown for connection, shown in items if connection == number]

    datagrams, timeline, reports = read(None)
    assert len(reports) > 1
    fewer = 0
    for number in range(1, len(reports) + 1):
        some, moments, same = read(frozenset({number}))
        assert same == reports
        assert of(number, some) == of(number, datagrams)
        assert of(number, moments) == of(number, timeline)
        fewer += len(datagrams) - len(some)
    assert fewer


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


FINDINGS = {code: KIND[verdict] for verdict, code in FINDING.items()}


@pytest.mark.parametrize("live", [False, True])
def test_a_finding_on_a_copy_agrees_with_its_kind_in_one_pass(
    tmp_path: Path, live: bool
) -> None:
    """At this pace copies come within the guard time before it is known who made them."""
    paced = rewritten(
        SAMPLE[0], tmp_path / "paced.pcap",
        lambda found: [(place * 10**6, data, wire) for place, (_, data, wire) in enumerate(found)],
    )  # fmt: skip
    repeats = Counter[str]()
    records = Records(live=live)
    pipeline = Pipeline(Options(), recorder=records.recorder, observer=records)
    for record in iter_both(paced, records, pipeline):
        if isinstance(record, DatagramRecord):
            kinds = sorted(kind for kind in record.kinds if kind != "original")
            found = (finding.code for finding in record.findings)
            # Next to both sides of a network that copies, some are neither.
            codes = sorted(FINDINGS[code] for code in found if code in FINDINGS)
            assert codes == kinds, record.frame
            repeats.update(kinds)
    assert repeats.total() > 20


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


def _read(path: Path, *, lazy: bool, lines: bool = True) -> Iterator[DatagramRecord]:
    records = Records(lazy=lazy, lines=lines)
    pipeline = Pipeline(Options(), recorder=records.recorder, observer=records)
    for item in iter_both(path, records, pipeline):
        if isinstance(item, DatagramRecord):
            yield item


@pytest.mark.parametrize(
    "path",
    [
        *SAMPLE[:3],
        CAPTURES / "teeworlds" / "tw064_loss_client_side.pcap",
        CAPTURES / "knet" / "knet2010_clean.pcap",
        CAPTURES / "netplay" / "bin1_server_stop.pcap",
        CAPTURES / "netplay" / "text_server_full.pcap",
    ],
    ids=lambda path: path.stem,
)
def test_without_lines_nothing_else_is_missing(path: Path) -> None:
    shown = 0
    pairs = zip(_read(path, lazy=True), _read(path, lazy=True, lines=False), strict=True)
    for record, bare in pairs:
        for whole, same in zip(record.messages or [None], bare.messages or [None], strict=True):
            assert json.message(record, whole) == json.message(bare, same)
            if whole and same and record.dissection and record.dissection.messages:
                shown += bool(whole.summary)
                assert not same.summary
    assert shown


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


@pytest.fixture(scope="module")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of twelve connections of Teeworlds, one after the other."""
    again = []
    for count in range(12):
        for frame in rdpcap(str(CAPTURES / "teeworlds" / "tw064_loss_client_side.pcap"), 150):
            frame.time += 1000 * count
            udp = frame[UDP]
            for port in ("sport", "dport"):
                if getattr(udp, port) > 30_000:
                    setattr(udp, port, getattr(udp, port) + count)
            del udp.chksum
            again.append(frame)
    path = tmp_path_factory.mktemp("twelve") / "again.pcap"
    wrpcap(str(path), again)
    return path


def test_what_is_not_decoded_keeps_no_ended_connection(
    twelve: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "MAX_INSPECTORS", 2)
    records = Records(lazy=True)
    records.needs = frozenset({"duplicate"})
    pipeline = Pipeline(Options(), recorder=records.recorder, observer=records)
    for _ in iter_both(twelve, records, pipeline, timeline=False):
        pass
    assert len(pipeline.reports) >= 12
    assert len(records._passed) < 6


def test_what_waits_to_be_decoded_and_who_decodes_is_bounded(
    twelve: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [item.kinds for item in iter_records(twelve)]
    monkeypatch.setattr(records_module, "MAX_INSPECTORS", 2)
    monkeypatch.setattr(records_module, "MAX_PASSED", 40)
    records = Records(lazy=True)
    pipeline = Pipeline(Options(), recorder=records.recorder, observer=records)
    waiting, inspectors, facts, found = 0, 0, 0, []
    for item in iter_both(twelve, records, pipeline, timeline=False):
        found.append(item.kinds)
        waiting = max(waiting, sum(len(row) for _, row in records._passed.values()))
        inspectors, facts = max(inspectors, len(records._inspectors)), max(facts, len(records._lately))
    assert found == whole
    assert 30 < waiting <= 40
    assert inspectors == facts == 2


ASKS_UNITS = (
    "msg.resend",
    "any(msg: msg.resend) and frame.number > 20",
    "msg.duplicate or msg.resend_of == 3",
    "msg.seq != 4",
    "all(msg: msg.seq)",
    "all msg.kind == original",
    "msg.wire_seq == msg.seq && !msg.resend",
)
ASKS_NONE = (
    "not msg.resend",
    "count(msg.resend) == 0",
    "msg.resend or frame.number < 30",
    "0 < msg.seq and not msg.duplicate",
    "frame.number",
)


def _narrowed(path: Path, text: str) -> Iterator[DatagramRecord]:
    wanted = compile_filter(text, filter_names())
    records = Records(lazy=True)
    records.needs = wanted.needs
    pipeline = Pipeline(Options(), recorder=records.recorder, observer=records)
    for item in iter_both(path, records, pipeline):
        if isinstance(item, DatagramRecord):
            yield item


@pytest.mark.parametrize("text", [*ASKS_UNITS, *ASKS_NONE])
@pytest.mark.parametrize(
    "name",
    [
        "teeworlds/tw064_loss_client_side",
        "knet/knet2010_clean",
        "knet/udp_fragments_loss.client",
        "riptide/udp_2.2.1_lossy_clientleg",
    ],
)
def test_no_datagram_is_left_out_that_a_filter_wants(text: str, name: str) -> None:
    path = CAPTURES / f"{name}.pcap"
    wanted = compile_filter(text, filter_names())
    assert (wanted.needs is None) == (text in ASKS_NONE)
    whole = [json.shown(record) for record in _read(path, lazy=True) if wanted.matches(record)]
    made = list(_narrowed(path, text))
    assert whole == [json.shown(record) for record in made if wanted.matches(record)]
    if text == "msg.resend":
        assert all("retransmission" in (record.kinds or ()) for record in made)


@pytest.mark.parametrize(
    "path",
    [*SAMPLE, CAPTURES / "knet" / "udp_same_endpoint_reconnect.server.pcap"],
    ids=lambda path: path.stem,
)
def test_the_records_are_the_same_without_reports(path: Path) -> None:
    made = []
    for reported in (True, False):
        records = Records(lazy=True)
        options = look_ahead(str(path), Options(reported=reported))
        pipeline = Pipeline(options, recorder=records.recorder, observer=records)
        whole = iter_both(path, records, pipeline, timeline=False)
        made.append([json.shown(record) for record in whole])
        assert bool(pipeline.reports) == (reported and bool(pipeline.counts))
    assert made[0] == made[1]


@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: path.stem)
def test_a_first_look_tells_which_connections_repeat_anything(path: Path) -> None:
    options = look_ahead(str(path), Options())
    again = {
        record.connection
        for record in _read(path, lazy=True)
        if any(kind != "original" for kind in record.kinds or ())
    }
    assert options.repeated is not None
    assert again <= options.repeated
    assert options.narrowed({"retransmission"}).only == options.repeated
    assert options.narrowed({"retransmission", None}).only is None
    assert options.narrowed(None).only is None


def test_where_nothing_is_repeated_no_connection_is_looked_at_for_resends() -> None:
    path = CAPTURES / "knet" / "udp_clean_session.pcap"
    assert look_ahead(str(path), Options()).repeated == set()


@pytest.mark.skipif(hot_path() == "compiled", reason="compiled methods are not replaced")
def test_what_a_filter_throws_out_is_not_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    again = {
        record.frame
        for record in _read(SAMPLE[0], lazy=True)
        if any(kind != "original" for kind in record.kinds or ())
    }
    looked_at: list[int] = []
    each = Records.next
    monkeypatch.setattr(
        Records, "next", lambda made, item: looked_at.append(item.frame) or each(made, item)
    )
    kept = {record.frame for record in _narrowed(SAMPLE[0], "msg.resend")}
    assert kept <= set(looked_at) <= again
    assert len(looked_at) == len(set(looked_at))


def test_of_datagrams_that_nobody_can_want_nothing_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_module, "MAX_HELD_OCTETS", 32 * 1024)
    path = CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
    early = []
    for needs in (None, frozenset({"retransmission"})):
        records = Records(lazy=True)
        records.needs = needs
        pipeline = Pipeline(Options(), recorder=records.recorder, observer=records)
        for _ in iter_both(path, records, pipeline):
            pass
        early.append(records.held.early)
    assert early[1] < early[0]


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
    text: str, decoded: bool
) -> None:
    wanted = compile_filter(text, filter_names())
    count = 0
    for record in _read(SAMPLE[0], lazy=True):
        wanted.matches(record)
        count += record.decode is None
    assert (count > 0) == decoded


@pytest.mark.parametrize("path", SAMPLE[:3], ids=lambda path: path.stem)
@pytest.mark.parametrize("kind", ["msg.resend", "msg.duplicate", "msg.key", "msg.reliable"])
def test_what_the_tracker_knows_is_the_same_before_and_after_decoding(
    path: Path, kind: str
) -> None:
    wanted = compile_filter(kind, filter_names())
    every = list(iter_records(path))
    before = [wanted.matches(record) for record in _read(path, lazy=True)]
    for record in every:
        record.kinds = None
    assert before == [wanted.matches(record) for record in every]


def message(index: int, buffer: int, offset: int, length: int) -> MessageRecord:
    return MessageRecord(index, "Thing", offset, length, {}, None, [], buffer, "")


def note(buffer: int, bit: int) -> Annotation:
    return Annotation("truncated", Severity.WARN, "malformed", "", bit, 8, buffer)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4), st.integers(0, 4)), min_size=1),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 400))),
    st.randoms(use_true_random=False),
)
def test_findings_go_to_the_message_that_they_lie_in(
    sizes: list[tuple[int, int, int]], places: list[tuple[int, int]], chance: random.Random
) -> None:
    ends, spans = [0, 0], []
    for buffer, gap, length in sizes:
        spans.append((buffer, ends[buffer] + gap, length))
        ends[buffer] += gap + length
    chance.shuffle(spans)
    messages = [message(index, *span) for index, span in enumerate(spans)]
    notes = [note(*place) for place in places]
    assign_annotations(notes, messages)
    for found in notes:
        (owner,) = [item for item in messages if any(found is mine for mine in item.annotations)]
        around = [
            item
            for item in messages
            if item.buffer == found.buffer
            and 8 * item.offset <= found.bit_offset < 8 * (item.offset + item.length)
        ]
        assert owner is (around or messages)[0]


def test_findings_of_many_messages_cost_what_they_are_many() -> None:
    few, many = (
        lines(
            lambda count=count: assign_annotations(
                [note(0, 8 * index) for index in range(count)],
                [message(index, 0, index, 1) for index in range(count)],
            )
        )
        for count in (100, 400)
    )
    assert many < 4.2 * few


def test_what_is_held_is_bounded_by_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A datagram of hundreds of units takes as much memory as hundreds of datagrams."""
    capture = vital_chunks(tmp_path / "vital.pcap", 16, 60)
    whole = list(iter_records(capture))
    one = 600 + 250 * 62 + 1000 * 60 + 2 * 250
    monkeypatch.setattr(held_module, "MAX_HELD_OCTETS", 4 * one)
    records = Records()
    pipeline = Pipeline(Options(), recorder=records.recorder, observer=records)
    most, found = 0, []
    for item in iter_both(capture, records, pipeline):
        if isinstance(item, DatagramRecord):
            found.append(item)
            most = max(most, len(records.held))
    assert most <= 5
    assert [item.frame for item in found] == [item.frame for item in whole]
    assert pipeline.limits_hit["MAX_HELD_RECORDS"] == records.held.early > 8


def test_what_is_held_is_bounded_by_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = vital_chunks(tmp_path / "vital.pcap", 40, 0)
    whole = [item.frame for item in iter_records(capture)]
    monkeypatch.setattr(held_module, "MAX_HELD_RECORDS", 7)
    found, most = frames_and_waiting(capture, Options())
    assert most <= 8 < len(whole)
    assert found == whole


def with_lone_datagram(path: Path, port: int) -> Path:
    """A capture that begins with a datagram which no later one follows, to a port of the server."""
    vital_chunks(path, 400, 0)
    packet = link_frame("ethernet", ipv4(udp(b"\xaa\x07", 999, port), src=A4, dst=B4))[1]
    head, body = path.read_bytes()[:24], path.read_bytes()[24:]
    lone = pcap_file([(1_700_000_000, 0, packet, len(packet))])[24:]
    path.write_bytes(head + lone + body)
    return path


def frames_and_waiting(path: Path, options: Options) -> tuple[list[int], int]:
    """Return the frames of all records in order, and how many datagrams waited at most."""
    records = Records()
    pipeline = Pipeline(options, recorder=records.recorder, observer=records)
    found, waited = [], []
    for item in iter_both(path, records, pipeline, timeline=False):
        found.append(item.frame)
        waited.append(len(records.held))
    return found, max(waited)


@pytest.mark.parametrize("others", [False, True])
def test_only_flows_that_will_be_a_connection_hold_records_back(
    others: bool, tmp_path: Path
) -> None:
    """A datagram of no known protocol is judged at the end of the capture: whoever does not want
    to see it need not wait for that.
    """
    path = with_lone_datagram(tmp_path / "idle.pcap", 998)
    found, waited = frames_and_waiting(path, replace(look_ahead(path, Options()), others=others))
    assert found == list(range(1 if others else 2, 406))
    assert (waited > 40) == others


@pytest.mark.parametrize("processes", [1, 2])
def test_what_was_claimed_at_the_end_is_claimed_at_once_in_the_second_pass(
    processes: int, tmp_path: Path
) -> None:
    """Its server shows what it is; all later datagrams waited for the end of the capture."""
    path = with_lone_datagram(tmp_path / "idle.pcap", 8303)
    options = look_ahead(path, Options(others=False), processes=processes)
    assert options.begins is not None
    assert list(options.begins) == [1, 2]
    found, waited = frames_and_waiting(path, options)
    assert found == list(range(1, 406))
    assert waited < 40


def test_datagrams_of_hundreds_of_units_leave_early_only_a_few_at_a_time(tmp_path: Path) -> None:
    """Each unit is decoded, and tracked for every place: 64 such datagrams took 280 MiB."""
    path = vital_chunks(tmp_path / "vital.pcap", 100, 250)
    early = early_records(str(path), lambda: Records(lazy=True), Options())
    assert 0 < len(early) < 12
    frames = [record.frame for record in islice(iter_records(path), len(early))]
    assert [each.record and each.record.frame for each in early] == frames


def test_what_waited_for_the_same_datagram_leaves_a_few_at_a_time(
    tmp_path: Path,
) -> None:
    """The records of a thousand datagrams of hundreds of messages took 770 MB."""
    with open_capture(vital_chunks(tmp_path / "vital.pcap", 1, 3)) as capture:
        begin = list(Decapsulator().packets(capture))
    with open_capture(vital_chunks(tmp_path / "empty.pcap", 400, 0)) as capture:
        later = list(Decapsulator().packets(capture))[4:]
    packets = [
        (kind, 6 + at, begin[-1][2] + 1_000_000 * at + HOLD_NS * (at >= 300), *rest)
        for at, (kind, _, _, *rest) in enumerate(later)
    ]
    records = Records()
    pipeline = Pipeline(Options(), recorder=records.recorder, observer=records)
    most, waited, frames, at = 0, 0, [], 0
    packets = begin + packets
    while at < len(packets):
        at, left = advance(packets, at, pipeline, records, timeline=False)
        most, waited = max(most, len(left)), max(waited, len(records.held))
        frames += [item.frame for item in left]
    pipeline.finish()
    frames += [item.frame for item in records.rest()]
    assert waited > 200
    assert most < 50
    assert frames == [packet[1] for packet in packets]


@pytest.mark.parametrize("path", [*SAMPLE[:3], CAPTURES / "knet" / "knet2010_loss.client.pcap"])
def test_a_waiting_datagram_scans_its_events_again(path: Path) -> None:
    released = 0

    class Seen(Records):
        def seen(self, item) -> None:
            nonlocal released
            before = list(item.events)
            super().seen(item)
            released += item._events is None
            assert item.events == before

    records = Seen(lazy=True)
    pipeline = Pipeline(Options(), recorder=records.recorder, observer=records)
    found = list(iter_both(str(path), records, pipeline, timeline=False))
    assert (released > len(found) // 2) == ("tcp" not in path.name)


def test_findings_of_datagrams_that_are_not_shown_displace_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records_module, "MAX_FINDINGS", 3)
    records = Records()
    for code, frame in (("a", 1), ("b", 1), ("c", 2), ("d", 2), ("e", 2), ("f", 2)):
        records.finding(code, Severity.NOTE, frame)
    item = Datagram(2, 0, b"")
    records.seen(item)
    assert [finding.code for finding in item.findings] == ["c", "d", "e"]
