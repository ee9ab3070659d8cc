"""Flows are sampled, claimed, restarted, evicted and reported; live and offline alike."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

from netdissect import lookup
from netdissect.capture import open_capture
from netdissect.export import json
from netdissect.flow import Decapsulator
from netdissect.flow.codes import CAPTURE_DUPLICATE, SNAPPED
from netdissect.model.events import Ev
from netdissect.model.packets import PacketKind, reverse_key
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.pipeline import (
    Options,
    Pipeline,
    analyze,
    decode_as,
    iter_timeline,
    look_ahead,
    recogniser,
    stages,
    table,
)
from netdissect.pipeline.iterate import iter_records
from netdissect.pipeline.records import Records
from netdissect.pipeline.servers import Servers
from netdissect.protocols.scanner import Scanner
from netdissect.track.recorder import Recorder
from netdissect.track.space import Space

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
SECOND = 1_000_000_000
CONNECT, WELCOME, ACK = b"\x02", bytes.fromhex("1800100000"), bytes.fromhex("1100100000")
BYE = b"\x05"


def key(number):
    """Return the key of what client `number` sends to the server."""
    return bytes([10, 0, number >> 8 & 255, number & 255, 10, 1, 1, 1]) + b"\xc3\x50\x1e\x61"


CLIENT = key(1)
ELSEWHERE = key(99).replace(bytes([10, 1, 1, 1]), bytes([10, 1, 1, 2]))
"""Of a client of another server."""


def packets(rows, *, key=CLIENT, start=1):
    """Return packets from (direction, seconds, payload) rows; an ICMP error where it is None."""
    made = []
    for frame, (direction, at, payload) in enumerate(rows, start):
        kind = PacketKind.UDP if payload is not None else PacketKind.ICMP_UNREACHABLE
        this = reverse_key(key) if direction else key
        octets = b"udp port unreachable" if payload is None else payload
        made.append((kind, frame, int(at * SECOND), this, octets, None, ()))
    return made


HANDSHAKE = [(0, 0, CONNECT), (1, 0.03, WELCOME), (0, 0.04, ACK), (0, 0.05, WELCOME)]


def run(made, **options):
    pipeline = Pipeline(Options(strict=True, **options))
    pipeline.run(made)
    pipeline.finish()
    return pipeline


def test_a_claimed_flow_gets_its_sample_replayed() -> None:
    pipeline = run(packets([*HANDSHAKE, (1, 0.06, ACK), (0, 1, BYE)]))
    (report,) = pipeline.reports
    assert report.datagrams == (4, 2)
    assert (report.first_frame, report.last_frame) == (1, 6)
    assert (report.client, report.server) == ("10.0.0.1:50000", "10.1.1.1:7777")
    assert pipeline.counts == {"riptide": {"datagrams": 6, "connections": 1}}
    assert pipeline.other_datagrams == 0


def test_roles_do_not_depend_on_who_is_seen_first() -> None:
    made = packets([(1, 0, WELCOME), (0, 0.1, CONNECT), *HANDSHAKE])
    (report,) = run(made[1:]).reports
    assert report.server == "10.1.1.1:7777"


def test_a_flow_of_nothing_known_is_counted() -> None:
    pipeline = run(packets([(n & 1, n, b"\xee" * 30) for n in range(50)]))
    assert not pipeline.reports
    assert pipeline.other_datagrams == 50


def test_an_unfinished_sample_is_judged_at_the_end() -> None:
    pipeline = run(packets([(0, n, CONNECT) for n in range(4)]))
    (report,) = pipeline.reports
    assert (report.handshake, report.datagrams) == ("unanswered", (4, 0))


def test_icmp_errors_of_the_sample_are_replayed_too() -> None:
    rows = [row for n in range(5) for row in ((0, n, CONNECT), (0, n + 0.001, None))]
    (report,) = run(packets(rows)).reports
    assert report.complete
    assert report.anomalies["note"] == 5
    assert report.last_frame == 10


def test_protocols_can_be_left_out() -> None:
    pipeline = run(packets(HANDSHAKE), without=frozenset({"riptide"}))
    assert not [report for report in pipeline.reports if report.protocol == "riptide"]


def test_decode_as_takes_what_nobody_recognises() -> None:
    rows = [(0, n, b"\x2b\x00\x10\x00\x07") for n in range(3)]
    rule = decode_as("udp.port==7777,riptide-2.1")
    (report,) = run(packets(rows), decode_as=(rule,)).reports
    assert report.dialects == ("riptide-2.1", "riptide-2.1")
    assert (report.server, report.roles_from) == ("10.1.1.1:7777", "port")
    assert "decode-as" in " ".join(report.explain)


def test_a_new_connection_after_a_close_on_the_same_addresses() -> None:
    again = [(d, at + 2, payload) for d, at, payload in HANDSHAKE]
    first, second = run(packets([*HANDSHAKE, (0, 1, BYE), *again])).reports
    assert (first.datagrams, second.datagrams) == ((4, 1), (3, 1))
    assert (first.state, second.state) == ("closed", "open")
    assert second.first_frame == 6


def test_a_flow_that_begins_with_a_restart_is_one_connection(monkeypatch) -> None:
    """A plug-in may say so of every request, and need not know what came before."""
    from netdissect.protocols.riptide import PROTOCOL

    def scan(payload, direction, hints, honest=PROTOCOL.scan):
        begins = [(Ev.RESTART, "*")] if payload == CONNECT else []
        return [*begins, *honest(payload, direction, hints)]

    monkeypatch.setattr(type(PROTOCOL), "scan", staticmethod(scan))
    monkeypatch.setattr(type(PROTOCOL), "scanner", lambda *_: None)
    (only,) = run(packets(HANDSHAKE)).reports
    assert (only.datagrams, only.first_frame) == ((3, 1), 1)
    assert not only.codes


@pytest.mark.parametrize(
    "options",
    [
        {"dialects": {"riptide": "riptide-2.1"}},
        {"decode_as": (decode_as("udp.port==7777,riptide-2.1"),)},
    ],
)
def test_a_dialect_that_is_named_holds_for_the_next_connection_too(options) -> None:
    again = [(d, at + 2, payload) for d, at, payload in HANDSHAKE]
    reports = run(packets([*HANDSHAKE, (0, 1, BYE), *again]), **options).reports
    assert [report.dialects for report in reports] == [("riptide-2.1", "riptide-2.1")] * 2


@pytest.mark.parametrize(
    ("name", "protocol", "dialect"),
    [
        ("teeworlds/tw065_clean", "teeworlds", "teeworlds-0.6"),
        ("teeworlds/ddnet_clean", "teeworlds", "teeworlds-0.6.5"),
        ("knet/urho3d_scene_clean", "knet", "knet-2.x"),
        ("riptide/udp_2.2.1_clean", "riptide", "riptide-2.0"),
    ],
)
def test_nothing_that_is_seen_changes_a_dialect_that_is_named(name, protocol, dialect) -> None:
    options = Options(dialects={protocol: dialect})
    reports = analyze(str(CAPTURES / f"{name}.pcap"), options=options).connections
    assert {report.dialects for report in reports} == {(dialect, dialect)}


def segments():
    with open_capture(CAPTURES / "riptide/tcp_2.2.1_clean.pcap") as reader:
        return [packet for packet in Decapsulator().packets(reader) if packet[5] is not None]


def test_the_end_of_a_tcp_connection_is_none_of_udp_on_the_same_ports() -> None:
    tcp, again = (
        [
            (kind, frame, 0, CLIENT if key == there else reverse_key(CLIENT), data, segment, faults)
            for kind, frame, _, key, data, segment, faults in stream
            if key in (there, reverse_key(there))
        ]
        for stream in (segments(), segments())
        for there in (stream[0][3],)
    )
    for packet in again:
        packet[5].connection = 2
    later = packets([(0, 1, WELCOME), (1, 1.1, WELCOME), (0, 1.2, ACK)], start=5000)
    reports = run([*packets(HANDSHAKE), *tcp, *again, *later]).reports
    udp = [report.datagrams for report in reports if report.transport == "udp"]
    assert udp == [(5, 2)]


def test_a_connect_on_a_live_connection_belongs_to_what_follows() -> None:
    """Section 8: ignored by the server, unless a Welcome with sequence id 1 answers it."""
    (ignored,) = run(packets([*HANDSHAKE, (0, 1, CONNECT), (0, 2, BYE)])).reports
    assert ignored.messages[0]["Connect"] == 2
    assert ignored.state == "closed"
    welcome = bytes.fromhex("1800200000")
    rows = [*HANDSHAKE, (0, 9, CONNECT), (1, 9.1, welcome)]
    first, second = run(packets(rows)).reports
    assert (first.messages[0]["Connect"], second.messages[0]["Connect"]) == (1, 1)
    assert (second.first_frame, second.identity) == (5, {"client_id": 2})


def test_held_datagrams_are_counted_at_the_end() -> None:
    (report,) = run(packets([*HANDSHAKE, *[(0, 1 + n, CONNECT) for n in range(30)]])).reports
    assert report.messages[0]["Connect"] == 31


def test_a_second_sight_by_the_capture_is_counted_and_not_tracked() -> None:
    made = packets([*HANDSHAKE, (0, 1, bytes.fromhex("2700000000"))])
    twice = [copy for packet in made for copy in (packet, (*packet[:6], (CAPTURE_DUPLICATE,)))]
    (once,) = run(made).reports
    (report,) = run(twice).reports
    assert report.datagrams == (2 * once.datagrams[0], 2 * once.datagrams[1])
    for single, double in zip(once.messages, report.messages, strict=True):
        assert double == {name: 2 * count for name, count in single.items()}
    assert [counts["capture_duplicates"] for counts in report.counters] == list(once.datagrams)
    assert report.anomalies["chat"] == once.anomalies["chat"] + sum(once.datagrams)
    assert report.spaces == once.spaces
    assert (report.state, report.identity) == (once.state, once.identity)


@pytest.mark.parametrize(
    "name", ["netplay/bin1_any_iface_sll.pcap", "knet/udp_any_interface.pcapng"]
)
def test_a_capture_on_two_interfaces_concludes_the_same(name) -> None:
    def frames(reader, *, twice):
        for frame in reader:
            number, time_ns, link, data, wire = frame
            yield frame
            if twice:
                yield number, time_ns + 500, link, data[:4] + b"\0\0\0\x09" + data[8:], wire

    found = []
    for twice in (False, True):
        with open_capture(CAPTURES / name) as reader:
            found.append(run(Decapsulator().packets(frames(reader, twice=twice))).reports)
    for once, double in zip(*found, strict=True):
        assert double.spaces == once.spaces
        assert double.datagrams == tuple(2 * count for count in once.datagrams)
        assert (double.state, double.close, double.dialects) == (
            once.state,
            once.close,
            once.dialects,
        )


def test_second_sights_of_no_known_protocol_are_datagrams_too() -> None:
    made = packets([(0, index, bytes([index] * 30)) for index in range(40)])
    twice = [copy for packet in made for copy in (packet, (*packet[:6], (CAPTURE_DUPLICATE,)))]
    assert run(twice).other_datagrams == 80


def test_what_the_capture_cut_is_not_malformed() -> None:
    made = packets([*HANDSHAKE, (0, 1, b"\x27\x00")])
    made[-1] = (*made[-1][:6], (SNAPPED,))
    (report,) = run(made).reports
    assert report.anomalies["error"] == 0
    assert report.messages[0]["Reliable"] == 1


@pytest.mark.parametrize("fault", [SNAPPED, CAPTURE_DUPLICATE])
def test_a_fault_of_ours_is_reported_on_an_unusual_packet_too(monkeypatch, fault) -> None:
    from netdissect.protocols.riptide import PROTOCOL

    found = []
    pipeline = Pipeline(Options(on_anomaly=found.append))
    pipeline.run(packets(HANDSHAKE))
    monkeypatch.setattr(type(PROTOCOL), "scan", staticmethod(lambda *_: 1 // 0))
    (last,) = packets([(0, 1, b"\x27\x00")], start=9)
    pipeline.run([(*last[:6], (fault,))])
    pipeline.finish()
    assert [a.frame for a in found if a.code == "dissector-bug"] == [9]


@pytest.mark.parametrize("name", ["riptide/tcp_2.2.1_clean.pcap", "knet/tcp_clean_session.pcap"])
@pytest.mark.parametrize("method", ["feed", "finish"])
@pytest.mark.parametrize("watched", [True, False])
def test_a_fault_of_a_framer_is_reported(monkeypatch, name, method, watched) -> None:
    class Broken:
        def __init__(self, *_, **__):
            pass

        def feed(self, _piece):
            return [] if method == "finish" else 1 // 0

        def finish(self):
            return [] if method == "feed" else 1 // 0

    monkeypatch.setattr("netdissect.protocols.knet.VleFramer", Broken)
    monkeypatch.setattr("netdissect.protocols.riptide.LengthPrefixed", Broken)
    found = []
    options = Options(on_anomaly=found.append)
    pipeline = Pipeline(options, recorder=Recorder() if watched else None)
    with open_capture(CAPTURES / name) as reader:
        pipeline.run(Decapsulator().packets(reader))
    pipeline.finish()
    assert "dissector-bug" in {anomaly.code for anomaly in found}


def test_a_fault_in_recognition_leaves_the_flow_to_the_others(monkeypatch) -> None:
    from netdissect.protocols.knet import PROTOCOL

    monkeypatch.setattr(type(PROTOCOL), "recognise", lambda *_, **__: 1 // 0)
    monkeypatch.setattr(type(PROTOCOL), "may_stand_alone", lambda *_: True)
    found = []
    pipeline = Pipeline(Options(on_anomaly=found.append))
    pipeline.run(packets(HANDSHAKE))
    pipeline.finish()
    assert [report.protocol for report in pipeline.reports] == ["riptide"]
    assert {(a.code, a.connection, a.frame) for a in found} == {("dissector-bug", None, None)}
    assert "recognition of knet: ZeroDivisionError" in found[0].message
    with pytest.raises(ZeroDivisionError):
        run(packets(HANDSHAKE))


@pytest.mark.parametrize(
    ("scanner", "fault"), [(None, ZeroDivisionError), (Scanner((), ()), NotImplementedError)]
)
def test_a_fault_of_ours_is_reported_or_raised(monkeypatch, scanner, fault) -> None:
    """Of what makes lists of events, and of what tells them by calls."""
    from netdissect.protocols.riptide import PROTOCOL

    def broken(payload, direction, hints):
        raise ZeroDivisionError

    monkeypatch.setattr(type(PROTOCOL), "scan", staticmethod(broken))
    monkeypatch.setattr(type(PROTOCOL), "scanner", staticmethod(lambda _: scanner))
    found = []
    pipeline = Pipeline(Options(on_anomaly=found.append))
    pipeline.run(packets(HANDSHAKE))
    pipeline.finish()
    assert [a.code for a in found] == ["dissector-bug"]
    assert fault.__name__ in found[0].message
    with pytest.raises(fault):
        run(packets(HANDSHAKE))


def test_ended_connections_leave_the_table() -> None:
    pipeline = Pipeline()
    pipeline.run(packets([*HANDSHAKE, (0, 1, BYE)]))
    assert not pipeline.reports
    pipeline.run(packets([(0, 60, b"x"), (0, 80, b"x")], key=key(2), start=9))
    assert [report.state for report in pipeline.reports] == ["closed"]


def handshakes(count, apart_s=1.0):
    made = []
    for number in range(count):
        rows = [(d, number * apart_s + at, payload) for d, at, payload in HANDSHAKE]
        made += packets(rows, key=key(number), start=1 + 4 * number)
    return made


def test_bound_of_connections(monkeypatch) -> None:
    monkeypatch.setattr(table, "MAX_CONNECTIONS", 50)
    pipeline = run(handshakes(200, 0.01))
    assert len(pipeline.reports) == 200
    assert pipeline.limits_hit["MAX_CONNECTIONS"] > 100
    evicted = [report for report in pipeline.reports if not report.complete]
    assert len(evicted) == pipeline.limits_hit["MAX_CONNECTIONS"]


def test_bound_of_brief_connections_that_an_observer_sees(monkeypatch) -> None:
    monkeypatch.setattr(table, "MAX_BRIEF", 10)
    monkeypatch.setattr(table, "ADDED_A_LOOK", 5)
    rows = handshakes(100, 0.01)
    for observer, most in ((Records(), 25), (None, 15)):
        recorder = None if observer is None else observer.recorder
        pipeline = Pipeline(Options(strict=True), recorder=recorder, observer=observer)
        tracked = 0
        for row in rows:
            pipeline.feed(row)
            tracked = max(tracked, len(pipeline._table.flows()))
        assert 10 < tracked <= most
        pipeline.finish()
        assert (len(pipeline.reports) == 100) == (observer is not None)
        assert ("MAX_CONNECTIONS" in pipeline.limits_hit) == (observer is not None)


def test_bound_of_quiet_connections(monkeypatch) -> None:
    monkeypatch.setattr(table, "QUIET_ROUNDS", 4)
    monkeypatch.setattr(table, "GIVEN_UP_ROUNDS", 100)
    monkeypatch.setattr(table, "QUIET_PLACES", 1)
    later = packets([(0, 20 + 5 * n, b"x") for n in range(20)], key=ELSEWHERE, start=100)
    monkeypatch.setattr(table, "MAX_QUIET", 8)
    usual = run([*handshakes(8), *later])
    monkeypatch.setattr(table, "MAX_QUIET", 3)
    pipeline = Pipeline(Options(strict=True))
    pipeline.run([*handshakes(8), *later])
    assert [report.connection for report in pipeline.reports] == [1, 2, 3, 4, 5]
    assert pipeline.limits_hit == {"MAX_QUIET": 5}
    pipeline.finish()
    assert pipeline.reports == usual.reports
    assert len(pipeline.reports) == 8


def test_connections_that_both_sides_have_given_up_leave_the_table() -> None:
    later = packets([(0, 10 + n, b"x") for n in range(60)], key=ELSEWHERE, start=100)
    pipeline = Pipeline(Options(strict=True))
    pipeline.run([*handshakes(8), *later])
    assert [report.state for report in pipeline.reports] == ["timed_out"] * 8
    assert not pipeline.limits_hit
    assert not pipeline.tracked()


def test_where_the_capture_pauses_nobody_is_given_up() -> None:
    answers = [(n % 2, 300 + n, bytes([0x08 + 2 * n, 0, 0])) for n in range(4)]
    resumed = packets([*answers, (0, 320, BYE)], key=key(0), start=10)
    (report,) = run([*handshakes(1), *resumed]).reports
    assert report.last_frame == 14
    assert report.state == "closed"


def memory_after(count) -> int:
    """Return the bytes that a pipeline takes after so many clients that vanished."""
    pipeline = Pipeline()
    tracemalloc.start()
    for number in range(count):
        rows = [(d, number + at, payload) for d, at, payload in HANDSHAKE]
        pipeline.run(packets(rows, key=key(number), start=1 + 4 * number))
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    pipeline.finish()
    assert len(pipeline.reports) == count
    return size


@pytest.mark.slow
def test_memory_does_not_grow_with_the_capture() -> None:
    memory_after(1000)  # what is made once
    # A report lies in a file; a few numbers say where.
    assert memory_after(4000) - memory_after(1500) < (4000 - 1500) * 64


def test_one_wrong_time_stamp_makes_no_connection_quiet(monkeypatch) -> None:
    monkeypatch.setattr(table, "MAX_QUIET", 0)
    pipeline = Pipeline()
    pipeline.run([*handshakes(8), *packets([(0, 1e6, b"x")], key=key(99), start=100)])
    assert not pipeline.reports


def test_bound_of_sampled_and_other_flows(monkeypatch) -> None:
    monkeypatch.setattr(recogniser, "MAX_SAMPLED", 50)
    monkeypatch.setattr(recogniser, "MAX_OTHER", 20)
    made = [packets([(0, n, b"\xee" * 9)], key=key(n), start=n + 1)[0] for n in range(500)]
    pipeline = run(made)
    assert pipeline.other_datagrams == 500
    assert pipeline.limits_hit["MAX_SAMPLED"] > 300
    assert pipeline.limits_hit["MAX_OTHER"] > 300
    assert len(pipeline.recogniser._others) <= 40


def test_unknown_flows_that_fell_silent_are_forgotten(monkeypatch) -> None:
    """What is held of them would grow as long as a capture runs; their ports are free again."""
    monkeypatch.setattr(recogniser, "MAX_QUIET_SAMPLED", 3)
    monkeypatch.setattr(table, "QUIET_ROUNDS", 2)
    pipeline = Pipeline(Options(strict=True))
    for n in range(8):
        rows = [(0, n, b"\xee" * 9)] * (1 + n % 2)
        pipeline.run(packets(rows, key=key(n), start=2 * n + 1))
    pipeline.run(packets([(0, 20 + 5 * n, b"x") for n in range(20)], key=key(99), start=100))
    waiting = pipeline.recogniser
    assert len(waiting._sampled) + len(waiting._lone) == 3 + 1
    assert pipeline.limits_hit == {"MAX_QUIET_SAMPLED": 5}
    assert pipeline.other_datagrams == 1 + 2 + 1 + 2 + 1
    assert not waiting._others
    pipeline.run(packets([(d, 200 + at, octets) for d, at, octets in HANDSHAKE], key=key(0),
                         start=200))  # fmt: skip
    pipeline.finish()
    # Those that were still held go to a server that is known now.
    assert [report.first_frame for report in pipeline.reports] == [11, 13, 15, 100, 200]
    assert pipeline.other_datagrams == 7


def test_flows_of_a_share_that_fell_silent_are_looked_at_anew(monkeypatch) -> None:
    """They are remembered for who knows all servers, and what comes on their ports is not theirs."""
    monkeypatch.setattr(recogniser, "MAX_QUIET_SAMPLED", 3)
    monkeypatch.setattr(table, "QUIET_ROUNDS", 2)
    pipeline = Pipeline(Options(strict=True), servers=Servers(weak=False))
    for n in range(8):
        pipeline.run(packets([(0, n, b"\xee" * 9)], key=key(n), start=n + 1))
    pipeline.run(packets([(0, 20 + 5 * n, b"x") for n in range(20)], key=key(99), start=100))
    assert sorted(pipeline.recogniser.strays()) == [key(n) for n in range(5)]
    pipeline.run(packets([(d, 200 + at, octets) for d, at, octets in HANDSHAKE], key=key(0),
                         start=200))  # fmt: skip
    pipeline.finish()
    assert [report.first_frame for report in pipeline.reports] == [200]


TOKEN = b"\x10\x00\x00\x01TKEN" + b"\xff" * 4
"""A Teeworlds connect with a token request, known alone."""
ACCEPT = b"\x10\x00\x00\x02TKEN" + b"abcd" + b"\xff" * 4


def test_bound_of_connections_of_one_datagram(monkeypatch) -> None:
    """Of a flood of first datagrams few are reported, all are counted, and who goes on is seen."""
    monkeypatch.setattr(table, "MAX_BRIEF", 30)
    monkeypatch.setattr(table, "ADDED_A_LOOK", 10)
    monkeypatch.setattr(recogniser, "MAX_SAMPLED", 50)
    made = [packets([(0, n / 1000, TOKEN)], key=key(n), start=n + 1)[0] for n in range(500)]
    alive = [(0, 1.1 + at / 100, b"\x10\x00\x00\x00" + ACCEPT[8:12]) for at in range(10)]
    made += packets([(1, 1, ACCEPT), *alive], key=key(490), start=501)
    # What says nothing is of this server's protocol too.
    made += [packets([(0, 2, b"\xee" * 9)], key=key(n), start=n + 3)[0] for n in range(500, 600)]
    pipeline = run(made)
    assert pipeline.counts == {"teeworlds": {"datagrams": 611, "connections": 600}}
    assert len(pipeline.reports) < 60
    assert pipeline.limits_hit["MAX_BRIEF"] == 600 - len(pipeline.reports)
    assert not pipeline.recogniser._known_alone
    (report,) = [each for each in pipeline.reports if sum(each.datagrams) > 1]
    assert (report.first_frame, report.datagrams) == (491, (11, 1))
    assert [each.connection for each in pipeline.reports] == [*range(1, len(pipeline.reports) + 1)]


@pytest.fixture
def few_brief(monkeypatch) -> None:
    """Have a flood of brief connections come to its bound, as thousands do in earnest."""
    for name, value in (("MAX_BRIEF", 30), ("ADDED_A_LOOK", 10)):
        monkeypatch.setattr(table, name, value)


@pytest.mark.usefixtures("few_brief")
def test_bound_of_brief_connections() -> None:
    """Handshakes from ever new ports: all are counted, and who goes on is reported."""
    made = handshakes(200, 0.01)
    goes_on = [(0, 3 + at, ACK) for at in range(table.BRIEF)]
    pipeline = run([*made, *packets(goes_on, key=key(150), start=len(made) + 1)])
    assert len(pipeline.reports) < 50
    assert pipeline.counts["riptide"] == {
        "datagrams": len(made) + len(goes_on),
        "connections": 200,
    }
    assert pipeline.limits_hit == {"MAX_BRIEF": 200 - len(pipeline.reports)}
    last = pipeline.reports[-1]
    assert (last.first_frame, sum(last.datagrams)) == (601, 4 + len(goes_on))


@pytest.mark.usefixtures("few_brief")
def test_of_brief_connections_known_by_their_first_datagram_all_are_counted(monkeypatch) -> None:
    monkeypatch.setattr(recogniser, "MAX_SAMPLED", 50)
    made = [
        packet
        for n in range(200)
        for packet in packets([(0, n, TOKEN), (1, n + 0.1, ACCEPT)], key=key(n), start=2 * n + 1)
    ]
    pipeline = run(made)
    assert pipeline.counts == {"teeworlds": {"datagrams": 400, "connections": 200}}
    assert len(pipeline.reports) == 200 - pipeline.limits_hit["MAX_BRIEF"] < 50
    assert pipeline.recogniser._octets == 0


@pytest.mark.usefixtures("few_brief")
@pytest.mark.parametrize("length", [2, 4])
def test_bound_of_connections_begun_again_on_the_same_ports(length) -> None:
    """Those too many are part of the one before; the flood is over as frames go by. Each has a
    client id of its own: with the same one, a Connect may be a copy.
    """
    ids = [(0x18 | client_id << 20).to_bytes(5, "little") for client_id in range(1, 401)]
    assert ids[0] == WELCOME
    made = [
        packet
        for life in range(400)
        for packet in packets(
            [
                (d, (life + 10 * at) / 1000, ids[life] if octets == WELCOME else octets)
                for d, at, octets in HANDSHAKE[:length]
            ],
            start=1 + length * life,
        )
    ]
    pipeline = run(made)
    counts = pipeline.counts["riptide"]
    assert counts["datagrams"] == sum(sum(each.datagrams) for each in pipeline.reports)
    assert counts == {"datagrams": len(made), "connections": 400}
    assert len(pipeline.reports) + pipeline.limits_hit["MAX_BRIEF"] == 400
    assert len(pipeline.reports) < 40 + len(made) / table.FRAMES_A_BRIEF


@pytest.mark.usefixtures("few_brief")
def test_brief_connections_beside_games_are_no_flood(monkeypatch) -> None:
    """As many as there are enough frames for, however many those are."""
    # Those that fell silent stay for 30 rounds of housekeeping: few of 4,000.
    for name, value in (("MAX_BRIEF", 60), ("MAX_QUIET", 0)):
        monkeypatch.setattr(table, name, value)
    each = table.FRAMES_A_BRIEF
    made = [
        packet
        for n in range(200)
        for packet in (
            *packets([(d, 60 * n, o) for d, _, o in HANDSHAKE], key=key(n), start=each * n + 1),
            *packets([(0, 60 * n + 1, ACK)] * (each - 4), key=key(0), start=each * n + 5),
        )
    ]
    pipeline = run(made)
    assert len(pipeline.reports) == 200
    assert "MAX_BRIEF" not in pipeline.limits_hit


@pytest.mark.usefixtures("few_brief")
@pytest.mark.parametrize("apart_s", [0, 60])
def test_the_times_of_a_flood_do_not_matter(apart_s: int) -> None:
    """Whoever makes a file chooses them."""
    pair = HANDSHAKE[:2]
    made = [
        packet
        for n in range(900)
        for packet in packets(
            [(d, apart_s * n + at, o) for d, at, o in pair], key=key(n), start=2 * n + 1
        )
    ]
    pipeline = run(made)
    assert pipeline.counts["riptide"]["connections"] == 900
    assert len(pipeline.reports) < 60 + len(made) / table.FRAMES_A_BRIEF


def test_bound_of_streams_of_one_segment(monkeypatch) -> None:
    """A flood of SYNs to a server that is known: few are reported, all are counted."""
    for name, value in (("MAX_BRIEF", 30), ("ADDED_A_LOOK", 10)):
        monkeypatch.setattr(table, name, value)
    monkeypatch.setattr(recogniser, "MAX_SAMPLED", 50)
    with open_capture(CAPTURES / "netplay" / "bin1_example_chat.pcap") as reader:
        made = list(Decapsulator().packets(reader))
    syn = next(packet for packet in made if packet[5].flags == 2)
    began = len(run(made).reports)
    flood = [(*syn[:3], bytes([10, 9, n >> 8, n & 255]) + syn[3][4:], *syn[4:]) for n in range(500)]
    pipeline = run([*made, *flood])
    assert pipeline.counts["netplay"]["connections"] == 500 + began
    assert len(pipeline.reports) < 100
    assert pipeline.limits_hit["MAX_BRIEF"] == 500 + began - len(pipeline.reports)


def test_a_stream_that_goes_on_after_its_first_segment_is_seen(monkeypatch) -> None:
    monkeypatch.setattr(recogniser, "MAX_SAMPLED", 50)
    with open_capture(CAPTURES / "netplay" / "bin1_example_chat.pcap") as reader:
        made = list(Decapsulator().packets(reader))
    syn = next(packet for packet in made if packet[5].flags == 2)
    elsewhere = syn[3][4:8] + bytes([10, 7, 7, 7]) + syn[3][8:]
    others = [(*syn[:3], bytes([10, 9, 9, n]) + elsewhere[4:], *syn[4:]) for n in range(40)]
    alone, among = run(made), run([*others, *made])
    assert alone.counts == among.counts
    assert list(map(comparable, alone.reports)) == list(map(comparable, among.reports))


def test_a_flood_that_has_passed_is_forgotten(monkeypatch) -> None:
    for name, value in (("MAX_BRIEF", 8), ("ADDED_A_LOOK", 1), ("MAX_QUIET", 0), ("QUIET_ROUNDS", 2)):
        monkeypatch.setattr(table, name, value)
    made = [packets([(0, n / 1000, TOKEN)], key=key(n), start=n + 1)[0] for n in range(20)]
    elsewhere = key(99).replace(bytes([10, 1, 1, 1]), bytes([10, 1, 1, 2]))
    later = packets([(0, 20 + 20 * n, b"x") for n in range(9)], key=elsewhere, start=100)
    again = packets([(0, 400, TOKEN)], key=key(1000), start=200)
    pipeline = run([*made, *later, *again])
    assert [report.first_frame for report in pipeline.reports] == [*range(1, 10), 200]
    assert pipeline.limits_hit["MAX_BRIEF"] == 11


def test_bound_of_reports(monkeypatch) -> None:
    monkeypatch.setattr(stages, "MAX_REPORTS", 5)
    assert len(run(handshakes(9)).reports) == 5
    every = []
    run(handshakes(9), on_report=every.append)
    assert len(every) == 9


def test_bound_of_sample_octets() -> None:
    big = b"\xee" * 30_000
    pipeline = run(packets([(0, n, big) for n in range(8)]))
    assert pipeline.other_datagrams == 8


def comparable(report):
    return (report.connection, report.messages, report.spaces, report.probes, report.anomalies)


@pytest.mark.parametrize("name", ["udp_2.2.1_lossy_clientleg", "tcp_2.2.1_clean"])
def test_one_by_one_or_all_at_once_gives_the_same(name) -> None:
    """Promise 14: the live path gives the same records as reading the file."""
    path = CAPTURES / "riptide" / f"{name}.pcap"
    whole = analyze(path)
    pipeline = Pipeline()
    with open_capture(path) as reader:
        for packet in Decapsulator().packets(reader):
            pipeline.feed(packet)
    pipeline.finish()
    assert list(map(comparable, pipeline.reports)) == list(map(comparable, whole.connections))


@pytest.mark.parametrize(
    "name", ["udp_2.0.0_lossy_clientleg", "udp_2.2.1_malformed", "tcp_2.0.0_split"]
)
def test_the_timeline_changes_no_figure(name) -> None:
    path = CAPTURES / "riptide" / f"{name}.pcap"
    pipeline = Pipeline(look_ahead(path, Options()), recorder=Recorder())
    items = list(iter_timeline(path, pipeline=pipeline))
    plain = analyze(path).connections
    assert list(map(comparable, pipeline.reports)) == list(map(comparable, plain))
    times = [
        item.copies[0].time_ns if isinstance(item, UnitRecord) else item.time_ns
        for item in items
        if not (isinstance(item, ConnectionEvent) and item.event == "timeout")
    ]
    assert times == sorted(times)
    for report in plain:
        for space in report.spaces:
            units = [
                item
                for item in items
                if isinstance(item, UnitRecord)
                and (item.connection, item.space, item.direction)
                == (report.connection, space.space, space.direction)
            ]
            assert len(units) == space.units
            assert sum(len(unit.copies) for unit in units) == space.copies
            assert sum(unit.outcome == "acked" for unit in units) == space.acked
            kinds = [copy.kind for unit in units for copy in unit.copies]
            assert kinds.count("retransmission") == space.retransmissions


def damaged(made, how):
    if how == "reversed":
        return made[::-1]
    if how == "doubled":
        return [packet for packet in made for _ in (0, 1)]
    if how == "one side":
        return [packet for packet in made if packet[3] == made[0][3]]
    if how == "middle":
        return made[len(made) // 2 :]
    if how == "thinned":
        return [packet for index, packet in enumerate(made) if index % 5]
    return [
        (*packet[:2], packet[2] + (10 * SECOND if index % 97 == 0 else 0), *packet[3:])
        for index, packet in enumerate(made)
    ]


@pytest.mark.parametrize(
    "how", ["reversed", "doubled", "one side", "middle", "thinned", "clock jumps"]
)
@pytest.mark.parametrize("name", ["udp_2.2.1_lossy_clientleg", "udp_2.0.0_burst_gap_serverleg"])
def test_under_damage(name, how) -> None:
    """Promise 12: no crash, identities hold, and what cannot be known is not claimed."""
    with open_capture(CAPTURES / "riptide" / f"{name}.pcap") as reader:
        made = list(Decapsulator().packets(reader))
    pipeline = run(damaged(made, how))
    for report in pipeline.reports:
        for space in report.spaces:
            further = space.retransmissions + space.duplicates + space.extra.get("undecided", 0)
            assert space.copies == space.units + further
            assert space.units == space.acked + space.unacked + space.unknown
            assert min(space.acked, space.unacked, space.unknown, space.never_seen) >= 0
        if how == "one side":
            assert all(space.unacked == 0 for space in report.spaces)
        if how in ("one side", "middle"):
            assert not report.complete


def test_two_runs_give_the_same() -> None:
    """Promise 15."""
    path = CAPTURES / "riptide" / "udp_2.2.1_lossy_serverleg.pcap"
    first, second = analyze(path), analyze(path)
    assert first == second


def test_both_directions_of_a_flow_of_nobody_are_one_flow(monkeypatch) -> None:
    """The direction that is heard late is counted at once, and looked at again with the other."""
    monkeypatch.setattr(recogniser, "MAX_SAMPLED", 4)
    pipeline = Pipeline()
    pipeline.run([packets([(0, n, b"\xee" * 9)], key=key(n), start=n + 1)[0] for n in range(9)])
    there, back = key(0), reverse_key(key(0))
    assert pipeline.recogniser.is_other(there)
    assert pipeline.recogniser.is_other(back)
    counted = pipeline.other_datagrams
    pipeline.run(packets([(1, 10 + n, b"\xee" * 9) for n in range(255)], key=key(0), start=20))
    assert pipeline.other_datagrams == counted + 255
    pipeline.run(packets([(1, 299, b"\xee" * 9)], key=key(0), start=300))
    pipeline.run(packets([(0, 300, b"\xee" * 9), (1, 301, b"\xee" * 9)], key=key(0), start=400))
    held = pipeline.recogniser.sampled(back)
    assert held is pipeline.recogniser.sampled(there)
    assert held is not None
    assert [side for side, _ in held.packets] == [0, 1]


def test_what_is_set_aside_is_taken_up_again() -> None:
    """One datagram of a flow is kept without a flow; with the next one it is as if there were."""
    made = handshakes(9)
    pipeline = Pipeline()
    pipeline.run(made[::4])
    assert len(pipeline.recogniser._lone) == 9
    assert not pipeline.recogniser._sampled
    pipeline.run([packet for at, packet in enumerate(made) if at % 4])
    pipeline.finish()
    assert not pipeline.recogniser._lone
    assert list(pipeline.reports) == list(run(made).reports)


@pytest.mark.parametrize(
    "path",
    [
        "knet/knet2010_loss.client", "riptide/udp_2.2.1_lossy_clientleg", "eoudp/late_lossy_client",
        "teeworlds/ddnet_loss_client_side",
    ],
)  # fmt: skip
def test_smaller_tables_of_silent_connections_change_nothing(path: str, monkeypatch) -> None:
    capture = CAPTURES / f"{path}.pcap"

    def told() -> list[object]:
        timeline = [repr(item) for item in iter_timeline(str(capture))]
        records = [json.shown(record) for record in iter_records(str(capture))]
        return [timeline, records, repr(analyze(str(capture)).connections[0])]

    usual = told()
    dozed: list[int] = []
    each = Space.doze
    monkeypatch.setattr(table, "DOZE_NS", 1)
    if lookup.hot_path() != "compiled":
        monkeypatch.setattr(
            Space, "doze", lambda space: dozed.append(space.direction) or each(space)
        )
    assert told() == usual
    assert dozed or lookup.hot_path() == "compiled"
