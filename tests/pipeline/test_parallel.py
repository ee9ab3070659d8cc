from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agreement import CAPTURES
from faulty import faulty_capture
from netdissect.capture import open_capture
from netdissect.capture.writer import PcapWriter
from netdissect.export import json
from netdissect.flow import Decapsulator
from netdissect.model.packets import PacketKind, reverse_key
from netdissect.pipeline import (
    Options,
    analyze,
    anomalies,
    parallel,
    processes_for,
    recogniser,
    stages,
    table,
)
from netdissect.pipeline.reports import Lines
from netdissect.pipeline.share import Share
from netdissect.system.parent import usable_cores
from packetbuild import A4, ipv4, link_frame, udp
from twocaptures import coming_back, interleaved

NAMES = (
    "riptide/udp_2.2.1_reconnect.pcap",
    "riptide/udp_2.2.1_natreuse_serverleg.pcap",
    "riptide/tcp_2.2.1_clean.pcap",
    "teeworlds/ddnet_mixed.pcap",
    "netplay/bin1_port_reuse.pcap",
    "netplay/mixed_dialects_and_noise.pcap",
    "netplay/bin1_example_server_full.pcap",
    "eoudp/decoys.pcap",
    "knet/udp_two_clients.pcap",
)
WELCOME = bytes.fromhex("1800100000")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real captures of one link type one after the other, their frames interleaved."""
    target = tmp_path_factory.mktemp("mixed") / "mixed.pcap"
    return interleaved((CAPTURES / name for name in NAMES), target)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_answer_is_that_of_one_process(mixed: Path, count: int) -> None:
    one, many = analyze(str(mixed)), analyze(str(mixed), processes=count)
    assert len(one.connections) > 10
    assert [json.connection(report) for report in many.connections] == [
        json.connection(report) for report in one.connections
    ]
    assert many.protocols == one.protocols
    assert many.other_datagrams == one.other_datagrams
    assert sorted(map(repr, many.anomalies)) == sorted(map(repr, one.anomalies))
    # A second pass searches it by halves.
    assert list(many.begins) == list(one.begins) == sorted(one.begins)
    assert len(one.begins) >= len(one.connections)


def test_a_fault_that_only_another_process_meets_is_told(
    mixed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = mixed.stat().st_size // 2
    monkeypatch.setattr(parallel, "open_capture", lambda path: faulty_capture(path, half))
    with open_capture(mixed) as reader:
        found = analyze(reader, processes=2)
        assert reader.fault == "Input/output error"
    assert found.info.damage == "Input/output error"
    assert 0 < (found.info.truncated_at or 0) <= half


def test_lines_are_those_of_one_process(mixed: Path) -> None:
    lines = Lines(
        json.connection_line, json.line_parts, json.diagnosed_line, json.renumbered
    )
    many = analyze(str(mixed), options=Options(lines=lines), processes=3)
    assert list(many.connections.lines(lines)) == list(analyze(str(mixed)).connections.lines(lines))


def test_flows_to_a_server_that_another_share_knows(mixed: Path, tmp_path: Path) -> None:
    path = tmp_path / "beside.pcap"
    with open_capture(mixed) as capture:
        frames = list(capture)
    known = next(r for r in analyze(str(mixed)).connections if r.transport == "udp")
    address, _, port = known.server.rpartition(":")
    assert address == "127.0.0.1"
    loopback = bytes([127, 0, 0, 1])
    with path.open("wb") as file:
        writer = PcapWriter(file, link_type=1)
        for _, time, _, data, wire in frames:
            writer.write(time, data, wire)
        for place in range(12):
            payload = udp(b"\xee" * 9, sport=40_000 + place, dport=int(port))
            packet = link_frame("ethernet", ipv4(payload, src=loopback, dst=loopback))[1]
            writer.write(frames[-1][1] + 1000 * place, packet, len(packet))
        writer.flush()
    one, many = analyze(str(path)), analyze(str(path), processes=3)
    assert len(one.connections) == len(analyze(str(mixed)).connections) + 12
    assert [json.connection(report) for report in many.connections] == [
        json.connection(report) for report in one.connections
    ]
    lines = Lines(
        json.connection_line, json.line_parts, json.diagnosed_line, json.renumbered
    )
    again = analyze(str(path), options=Options(lines=lines), processes=3)
    assert list(again.connections.lines(lines)) == list(one.connections.lines(lines))
    assert (many.other_datagrams, many.protocols) == (one.other_datagrams, one.protocols)


def test_flows_that_are_forgotten_are_those_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some go to a server that another share knows, and one talks again."""
    monkeypatch.setattr(recogniser, "MAX_QUIET_SAMPLED", 0)
    monkeypatch.setattr(table, "QUIET_ROUNDS", 2)
    server, other, noise = bytes([10, 1, 1, 1]), bytes([10, 1, 1, 2]), b"\xee" * 9
    talk = [(0, b"\x02"), (1, WELCOME), (0, bytes.fromhex("1100100000")), (1, WELCOME)]
    rows = [(server, 50_000, at, side, octets) for at, (side, octets) in enumerate(talk)]
    rows += [(server, 50_001 + n, 10 + n, 0, noise) for n in range(12)]
    rows += [(other, 50_002, 30, 0, noise)]
    rows += [(bytes(4), 49_000, 50 + 10 * n, 0, noise) for n in range(20)]
    rows += [(other, 50_002, 300 + at, side, octets) for at, (side, octets) in enumerate(talk)]
    path = tmp_path / "quiet.pcap"
    with PcapWriter(str(path), 1) as writer:
        for to, port, at, side, octets in rows:
            ports, ends = (port, 7777)[:: 1 - 2 * side], (A4, to)[:: 1 - 2 * side]
            packet = ipv4(udp(octets, *ports), src=ends[0], dst=ends[1])
            writer.write(at * 1_000_000_000, link_frame("ethernet", packet)[1])
    one, many = analyze(str(path)), analyze(str(path), processes=3)
    assert len(one.connections) == 1 + 12 + 1
    assert one.connections[-1].first_frame == len(rows) - 3
    assert one.other_datagrams == 1 + 20
    assert one.limits_hit["MAX_QUIET_SAMPLED"] == 13
    assert [json.connection(report) for report in many.connections] == [
        json.connection(report) for report in one.connections
    ]
    assert (many.other_datagrams, many.protocols) == (one.other_datagrams, one.protocols)


def test_of_a_flood_all_shares_together_report_what_one_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reports its part, so that a flood costs no more where more processes read it."""
    monkeypatch.setattr(table, "MAX_BRIEF", 60)
    monkeypatch.setattr(table, "ADDED_A_LOOK", 12)
    path = tmp_path / "flood.pcap"
    with PcapWriter(str(path), 1) as writer:
        for at in range(600):
            first = udp(b"\x10\x00\x00\x01TKEN" + b"\xff" * 4, 1024 + at)
            writer.write(at * 1_000_000, link_frame("ethernet", ipv4(first))[1])
    one, many = analyze(str(path)), analyze(str(path), processes=3)
    assert 60 < len(one.connections) < 80
    assert 60 < len(many.connections) < 80
    assert many.protocols == one.protocols == {"teeworlds": {"datagrams": 600, "connections": 600}}


@pytest.mark.parametrize("most", [1, 5, 12, 25, 40])
def test_beyond_their_bound_the_anomalies_are_those_of_one_process(
    mixed: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(anomalies, "MAX_ANOMALIES", most)
    one, many = analyze(str(mixed)), analyze(str(mixed), processes=3)
    assert many.limits_hit == one.limits_hit
    assert len(one.anomalies) == most
    assert sorted(map(repr, many.anomalies)) == sorted(map(repr, one.anomalies))


def test_a_capture_ends_with_its_newest_frame(mixed: Path, tmp_path: Path) -> None:
    """Whatever is in it, and however many processes look."""
    path = tmp_path / "later.pcap"
    with open_capture(mixed) as capture:
        frames = list(capture)
    with path.open("wb") as file:
        writer = PcapWriter(file, link_type=1)
        for _, time, _, data, wire in frames:
            writer.write(time, data, wire)
        writer.write(frames[-1][1] + 60_000_000_000, bytes(60), 60)
        writer.flush()
    one, many = analyze(str(path)), analyze(str(path), processes=2)
    assert [json.connection(report) for report in one.connections] == [
        json.connection(report) for report in many.connections
    ]
    assert one.info.last_time_ns == many.info.last_time_ns == frames[-1][1] + 60_000_000_000


def test_anomalies_are_told_in_order(mixed: Path) -> None:
    told = []
    analyze(str(mixed), options=Options(on_anomaly=told.append), processes=2)
    frames = [anomaly.frame or 0 for anomaly in told]
    assert frames == sorted(frames)
    assert frames


def test_every_packet_belongs_to_one_share_both_ways(mixed: Path) -> None:
    with open_capture(mixed) as capture:
        frames = list(capture)
    packets = list(Decapsulator().packets(frames))
    shares = [list(parallel.share_of(index, 3).packets(frames)) for index in range(3)]
    assert sorted(p[1] for share in shares for p in share) == sorted(p[1] for p in packets)
    for kinds in ((PacketKind.UDP, PacketKind.ICMP_UNREACHABLE), (PacketKind.TCP,)):
        keys = [{p[3] for p in share if p[0] in kinds} for share in shares]
        assert sum(map(len, keys)) == len(set().union(*keys))
        for mine in keys:
            assert not {reverse_key(key) for key in mine} & set().union(*keys) - mine


@pytest.mark.parametrize("size", [4, 16])
def test_shares_are_of_like_size(size: int) -> None:
    """Both ways alike, whether addresses or ports follow each other; a server's streams together."""
    ends = [(n.to_bytes(size, "big"), 50_000) for n in range(400)]
    ends += [(bytes(range(size)), 50_000 + n) for n in range(400)]
    server = bytes(size)
    keys = [address + server + port.to_bytes(2, "big") + b"\x1e\x61" for address, port in ends]
    shares = [Share(index, 3) for index in range(3)]
    for part in (keys[:400], keys[400:]):
        for key in part:
            mine = [not share.skips_udp(key) for share in shares]
            assert mine == [not share.skips_udp(reverse_key(key)) for share in shares]
            assert sum(mine) == 1
        for share in shares:
            assert 100 < sum(not share.skips_udp(key) for key in part) < 170
    ways = [*keys, *map(reverse_key, keys)]
    assert sorted({share.skips_tcp(key) for key in ways} == {True} for share in shares) == [
        False, True, True,
    ]  # fmt: skip


def test_quiet_connections_that_leave_are_those_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A survey reads a capture of a day in shares although thousands of players just left."""
    monkeypatch.setattr(table, "MAX_QUIET", 1)
    monkeypatch.setattr(table, "QUIET_ROUNDS", 2)
    monkeypatch.setattr(table, "GIVEN_UP_ROUNDS", 100)
    server = bytes([10, 1, 1, 1])
    talk = [(0, b"\x02"), (1, WELCOME), (0, bytes.fromhex("1100100000")), (1, WELCOME)]
    rows = [(n, 2 * n + at, side, octets) for n in range(60) for at, (side, octets) in enumerate(talk)]
    # So many frames that no round of housekeeping is put off.
    rows += [(99, n / 10, 0, b"\xee" * 9) for n in range(3600)]
    rows += [(n, 300 + n + at, side, octets) for n in range(60) for at, (side, octets) in enumerate(talk)]
    path = tmp_path / "quiet.pcap"
    with PcapWriter(str(path), 1) as writer:
        for n, at, side, octets in sorted(rows, key=lambda row: row[1]):
            ports = (50_000 + n, 7777 + (n == 99))[:: 1 - 2 * side]
            packet = ipv4(udp(octets, *ports), src=(A4, server)[side], dst=(server, A4)[side])
            writer.write(int(at * 1e9), link_frame("ethernet", packet)[1])
    one = analyze(str(path))
    assert one.limits_hit["MAX_QUIET"] > 10
    for count in (2, 3, 8):
        many = analyze(str(path), processes=count)
        assert [json.connection(report) for report in many.connections] == [
            json.connection(report) for report in one.connections
        ]
        assert many.limits_hit == one.limits_hit
        with open_capture(path) as reader:
            part = parallel.read_share(reader, Options(), (0, count))
        assert "MAX_QUIET" in part.analysis.limits_hit
        assert not parallel.beyond_bounds([part])


def test_shares_may_be_beyond_a_bound_that_none_of_them_reaches(
    mixed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = []
    for index in range(3):
        with open_capture(mixed) as reader:
            parts.append(parallel.read_share(reader, Options(), (index, 3)))
    claimed, waiting = (sum(part.most_flows[at] for part in parts) for at in (0, 1))
    begun = sum(part.begun.count for part in parts)
    for place, name, together in (
        (table, "MAX_CONNECTIONS", claimed),
        (recogniser, "MAX_SAMPLED", waiting),
        (stages, "MAX_REPORTS", begun),
    ):
        for most in (together, together - 1):
            with monkeypatch.context() as patch:
                patch.setattr(place, name, most)
                assert parallel.beyond_bounds(parts) is (most < together)


def test_a_connection_whose_flow_comes_back_unrecognised_is_listed_once(tmp_path: Path) -> None:
    """That the server is known lets one process recognise it again, and a share does not."""
    path = coming_back(tmp_path / "back.pcap")
    one = analyze(str(path))
    assert len(one.connections) == 18
    for count in (2, 3):
        many = analyze(str(path), processes=count)
        assert [json.connection(report) for report in many.connections] == [
            json.connection(report) for report in one.connections
        ]
        assert (many.other_datagrams, many.protocols) == (one.other_datagrams, one.protocols)


def test_a_failing_process_is_told(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = os.getpid()
    honest: Callable[..., object] = parallel.read_share

    def failing(*args: object, **named: object) -> object:
        if os.getpid() != parent:
            raise MemoryError
        return honest(*args, **named)

    monkeypatch.setattr(parallel, "read_share", failing)
    with pytest.raises(RuntimeError, match="a share of the capture failed"):
        analyze(str(mixed), processes=2)


def test_small_files_and_pipes_stay_in_one_process(
    mixed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert processes_for("-") == 1
    assert processes_for(str(mixed)) == 1
    monkeypatch.setattr(parallel, "MIN_OCTETS", 1)
    assert processes_for(str(mixed)) == parallel.shares_of(usable_cores())
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # macOS has none
    assert processes_for(str(mixed)) == parallel.shares_of(os.cpu_count() or 1)
