"""Captures of mirror ports, which hold every packet twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agreement import CAPTURES
from netdissect.flow import duplicates
from netdissect.flow.duplicates import DuplicateFilter, is_mirrored
from netdissect.join import join
from netdissect.pipeline import analyze, iter_timeline
from packetbuild import frame, ipv4, ipv6, udp
from twocaptures import Record, rewritten

NAMES = (
    "riptide/udp_2.2.1_lossy_clientleg", "knet/udp_loss8.server", "eoudp/late_resend_lossy_server",
    "teeworlds/ddnet_loss_server_side", "netplay/bin1_lossy__client_side",
)  # fmt: skip
TAG = bytes.fromhex("81000005")


def numbered(found: list[Record]) -> list[Record]:
    """Give each packet an IP identification, as the relays of some captures do not."""
    return [
        (time, data[:18] + (number % 65_535 + 1).to_bytes(2, "big") + data[20:], wire)
        for number, (time, data, wire) in enumerate(found)
    ]


def twice(found: list[Record], *, tagged: bool, seen: float = 1.0) -> list[Record]:
    """Add a second record of each packet some microseconds later."""
    rows = []
    for number, (time, data, wire) in enumerate(found):
        second = data[:12] + TAG + data[12:] if tagged else data
        more = 4 if tagged else 0
        rows.append((time, data, wire))
        if number % 100 < 100 * seen:
            rows.append((time + 3_000 + 1_000 * (number % 9), second, wire + more))
    return sorted(rows, key=lambda row: row[0])


def conclusions(path: Path) -> list[object]:
    """Return what is said of a capture, apart from times and frame numbers."""
    said: list[object] = []
    for report in analyze(path).connections:
        found = report.diagnosis
        assert found is not None
        said += [report.vantage, report.state, found.verdict, found.cause.text]
        said += [
            (space.space, space.units, space.retransmissions, space.duplicates, space.acked)
            for space in report.spaces
        ]
    kinds = [
        [copy.kind for copy in item.copies] for item in iter_timeline(path) if hasattr(item, "copies")
    ]
    return [*said, kinds]


@pytest.mark.parametrize("tagged", [False, True], ids=["equal", "tagged"])
@pytest.mark.parametrize("name", NAMES)
def test_the_second_record_of_a_packet_is_no_copy(name: str, tagged: bool, tmp_path: Path) -> None:
    path = CAPTURES / f"{name}.pcap"
    once = rewritten(path, tmp_path / "once.pcap", numbered)
    mirrored = rewritten(
        path, tmp_path / "twice.pcap", lambda found: twice(numbered(found), tagged=tagged)
    )
    assert conclusions(mirrored) == conclusions(once)
    assert analyze(mirrored).flow.capture_duplicates > 0


def test_a_few_packets_that_passed_one_port_change_nothing(tmp_path: Path) -> None:
    path = CAPTURES / f"{NAMES[0]}.pcap"
    once = rewritten(path, tmp_path / "once.pcap", numbered)
    change: Callable[[list[Record]], list[Record]] = lambda found: twice(  # noqa: E731
        numbered(found), tagged=False, seen=0.97
    )
    assert conclusions(rewritten(path, tmp_path / "twice.pcap", change)) == conclusions(once)


def test_a_sender_that_sends_everything_twice_is_no_mirror_port() -> None:
    """Its packets have identifications of their own, or none."""
    for given in (True, False):
        frames = [
            frame(number, ipv4(udp(bytes([number // 2])), ident=given and number + 1), time_ns=number)
            for number in range(60)
        ]
        assert not is_mirrored(frames)
    frames = [frame(number, ipv6(udp(bytes([number // 2]))), time_ns=number) for number in range(60)]
    assert not is_mirrored(frames)
    frames = [frame(number, ipv4(udp(bytes([number // 2])), ident=7), time_ns=number) for number in range(60)]
    assert not is_mirrored(frames)


@pytest.mark.parametrize("side", ["clientleg", "serverleg"])
def test_a_capture_of_a_mirror_port_is_joined_like_any_other(side: str, tmp_path: Path) -> None:
    paths = {
        name: CAPTURES / "riptide" / f"udp_2.2.1_lossy_{name}.pcap"
        for name in ("clientleg", "serverleg")
    }
    with join(*map(str, paths.values())) as plain:
        before = [[way.lost for way in one.ways] for one in plain.report.conversations]
    paths[side] = rewritten(
        paths[side], tmp_path / "twice.pcap", lambda found: twice(numbered(found), tagged=False)
    )
    with join(*map(str, paths.values())) as joined:
        after = [[way.lost for way in one.ways] for one in joined.report.conversations]
    assert after == before


def test_packets_that_may_come_again_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "MAX_RECENT", 8)
    packets = [ipv4(udp(b"%d" % number)) for number in range(20)]
    places, mirror = DuplicateFilter(), DuplicateFilter()
    assert not any(places.is_duplicate(packet, b"a", 1) for packet in packets)
    assert not any(mirror.is_second(packet, 1) for packet in packets)
    assert [places.is_duplicate(packet, b"b", 2) for packet in packets[:12]] == [False] * 12
    assert [mirror.is_second(packet, 2) for packet in packets[12:]] == [True] * 8
    assert not mirror.is_second(packets[0], 2)
