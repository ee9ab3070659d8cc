"""Who speaks what, on every piece of every capture, and on traffic of nobody's."""

from __future__ import annotations

from functools import reduce
from operator import add
from pathlib import Path

import pytest

from foreign import STREAMS, UDP, datagrams, lines
from netdissect.flow import Decapsulator
from netdissect.model.packets import SIDES, PacketKind, flow_texts, reverse_key
from netdissect.pipeline import Options, Pipeline, analyze
from packetbuild import A4, B4, frame, ipv4, tcp
from twocaptures import Record, rewritten, snapped
from windows import BROADER, Score, Whole, flow_of, frames_of, score

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
ALL = sorted(CAPTURES.glob("*/*.pcap*"))
SOME = [
    path
    for path in ALL
    if path.name.startswith(
        (
            "udp_2.0.0_clean", "udp_2.0.0_lossy", "udp_2.1dev_clean", "udp_2.2.0_clean",
            "udp_2.1.2client", "tcp_2.2.1_split", "knet2010_loss", "udp_rmn_over", "late_resend_k",
            "tw07_two", "text_", "bin1_lossy",
        )
    )
]  # fmt: skip
SECOND = 1_000_000_000
CLIENT = bytes([10, 0, 0, 1, 10, 0, 0, 2]) + b"\xc3\x50\x13\x89"


def total(paths) -> Score:
    return reduce(add, (score(f"{p.parent.name}/{p.name}", Whole(p)) for p in paths))


def test_some_captures_from_anywhere() -> None:
    found = total(SOME)
    assert not found.wrong
    assert found.claimed >= 0.99 * found.busy


@pytest.mark.slow
def test_all_captures_from_anywhere() -> None:
    found = total(ALL)
    assert found.windows > 2000
    assert not found.wrong
    assert found.claimed >= 0.99 * found.busy, found.missed


SHORT = ["tw065_clean.pcap", "ddnet_mixed.pcap", "udp_2.2.1_lossy_clientleg.pcap"]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if path.name in SHORT else pytest.mark.slow)
        for path in ALL
        if path.suffix == ".pcap"
    ],
)
def test_short_snap_lengths_bring_no_wrong_dialect(path: Path, tmp_path: Path) -> None:
    """60 bytes are the headers and little more."""
    whole: dict[frozenset[str], set[str]] = {}
    for report in analyze(path).connections:
        told = whole.setdefault(flow_of(report)[1], set())
        for dialect in report.dialects:
            told |= {dialect, *BROADER.get(dialect, ())}
    for octets in (60, 90):
        cut = rewritten(path, tmp_path / "cut.pcap", snapped(octets))
        for report in analyze(cut).connections:
            assert set(report.dialects) <= whole.get(flow_of(report)[1], set()), report.explain


@pytest.mark.parametrize(("octets", "found"), [(66, [1, 2]), (240, [1, 2, 3])])
def test_what_was_cut_off_may_have_said_that_a_flow_is_another_protocols(
    octets: int, found: list[int], tmp_path: Path
) -> None:
    """A flow of TCP to a known server proves itself, unless little was sent in it."""

    def third(rows: list[Record]) -> list[Record]:
        port = (37668).to_bytes(2, "big")
        return [
            (time, data[:octets] if port in (data[34:36], data[36:38]) else data, wire)
            for time, data, wire in rows
        ]

    cut = rewritten(CAPTURES / "netplay" / "bin1_example_chat.pcap", tmp_path / "cut.pcap", third)
    assert [report.connection for report in analyze(cut).connections] == found


def test_the_other_end_of_a_link_is_never_taken_for_this_one(tmp_path: Path) -> None:
    """What the other side would have captured: each direction half a round trip earlier or later."""
    judged = 0
    for path in SOME:
        analysis = analyze(path)
        if len(analysis.connections) != 1 or path.suffix != ".pcap":
            continue
        (report,) = analysis.connections
        path_ms = report.diagnosis.lag.path_ms if report.diagnosis else None
        if report.vantage not in SIDES or path_ms is None:
            continue
        port = int(report.client.rpartition(":")[2]).to_bytes(2, "big")
        half = int(path_ms * 5e5) * (1 if report.vantage == "client" else -1)

        def turned(found: list[tuple[int, bytes, int]]) -> list[tuple[int, bytes, int]]:
            moved = [
                (time + (half if data[34:36] == port else -half), data, wire)  # noqa: B023
                for time, data, wire in found
            ]
            return sorted(moved, key=lambda row: row[0])

        other = analyze(rewritten(path, tmp_path / "other.pcap", turned)).connections[0]
        assert other.vantage != report.vantage, (path, other.vantage_basis)
        judged += other.vantage in SIDES
    assert judged >= 2  # next to the other side, none of the rest would be out of order or copied


def reports(packets):
    pipeline = Pipeline(Options(strict=True))
    pipeline.run(packets)
    pipeline.finish()
    return list(pipeline.reports)


def of_udp(rows):
    keys = CLIENT, reverse_key(CLIENT)
    return [
        (PacketKind.UDP, number, SECOND + at, keys[side], payload, None, ())
        for number, (side, at, payload) in enumerate(rows, 1)
    ]


def of_tcp(rows, *, handshake=False):
    frames, seqs = [], [1000, 5000]
    for number, (side, at, payload) in enumerate(rows, 1):
        ports = {"sport": 5001, "dport": 50000} if side else {"sport": 50000, "dport": 5001}
        if handshake and number == 1:
            frames.append(frame(0, ipv4(tcp(seq=999, flags=2, **ports), 6), time_ns=SECOND))
        segment = tcp(payload, seq=seqs[side], ack=seqs[1 - side], flags=0x18, **ports)
        packet = ipv4(segment, 6, src=B4, dst=A4) if side else ipv4(segment, 6)
        frames.append(frame(number, packet, time_ns=SECOND + at))
        seqs[side] += len(payload)
    return Decapsulator().packets(frames)


def claimed(kinds, seeds):
    for seed in seeds:
        for name in kinds:
            for length in (2, 3, 5, 80):
                made = (
                    of_udp(datagrams(name, seed)[:length])
                    if name in UDP
                    else of_tcp(lines(name, seed)[:length])
                )
                yield from (f"{name} {seed} {length}: {found.explain}" for found in reports(made))


def test_traffic_of_nobody_is_left_alone() -> None:
    assert not list(claimed([*UDP, *STREAMS], range(6)))


def test_a_flow_that_may_be_a_protocols_is_looked_at_until_it_shows_more() -> None:
    """Of its first datagrams, one side alone is heard, and only acknowledges."""
    acks = [(0, n, bytes([1, 7 * n % 256, 3, 0xFF, 0xFF])) for n in range(90)]
    both = [
        (side, 100 + n, bytes([1 if side else 7, n, 4, 0xFF, 0xFF] + [9] * (1 - side)))
        for n in range(20)
        for side in (0, 1)
    ]
    (report,) = reports(of_udp([*acks, *both]))
    assert report.protocol == "riptide"
    assert sum(report.datagrams) == len(acks) + len(both)
    assert not reports(of_udp(acks))


ONE_WAY = {
    # capture: (frames, port that is heard, dialects that are true)
    "knet/urho3d_scene_clean.pcap": ((300, 500), 23062, {"knet-2.x", *BROADER["knet-2.x"]}),
    "knet/udp_rmn_over_32767.pcap": ((100, 300), 47880, {"knet-2.x", *BROADER["knet-2.x"]}),
    "knet/tcp_clean_session.pcap": ((0, 77), 41300, {"knet-tcp"}),
    "riptide/tcp_2.0.0_split.pcap": ((100, 300), 35714, {"riptide-2.0", "riptide-2.0/2.1dev"}),
}


@pytest.mark.parametrize("name", ONE_WAY)
def test_one_direction_alone_is_known_by_what_its_numbers_do(name: str) -> None:
    (first, last), port, wanted = ONE_WAY[name]
    heard = [
        packet
        for packet in Decapsulator().packets(frames_of(CAPTURES / name)[first:last])
        if flow_texts(packet[3])[0].endswith(f":{port}")
    ]
    (report,) = reports(heard)
    side = 0 if report.client.endswith(f":{port}") else 1
    assert report.dialects[side] in wanted


def test_messages_behind_other_bytes_are_for_captures_that_begin_late() -> None:
    """Where the SYN was captured, a stream begins with a message or is none of Netplay."""
    message = bytes.fromhex("000900000000044a6f686e") + bytes.fromhex("000800000100034a6f65")
    rows = [(0, 0, b"\xff" * 700), *((0, n, message) for n in range(1, 6))]
    (report,) = reports(of_tcp(rows))
    assert report.protocol == "netplay"
    assert not reports(of_tcp(rows, handshake=True))


@pytest.mark.slow
def test_much_traffic_of_nobody_is_left_alone() -> None:
    assert not list(claimed([*UDP, *STREAMS], range(6, 600)))
