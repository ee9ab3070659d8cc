"""Captures of several interfaces: whose flow a packet is, and what was seen twice."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from agreement import CAPTURES
from netdissect.capture import open_capture
from netdissect.capture.writer import PcapngWriter
from netdissect.flow import interfaces as module
from netdissect.flow.duplicates import DuplicateFilter
from netdissect.flow.interfaces import Interfaces
from netdissect.model.packets import flow_endpoints, flow_ports, flow_sides, reverse_key
from netdissect.model.reports import UnitRecord
from netdissect.pipeline import analyze, iter_timeline

THERE = bytes([10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39, 0x1E, 0x61])
BACK = reverse_key(THERE)
PATH = CAPTURES / "riptide/udp_2.2.1_big.pcap"
OTHER = CAPTURES / "riptide/udp_2.2.1_lossy_clientleg.pcap"


def keys(sights: list[tuple[int, bytes]]) -> list[int]:
    """Return which flow each packet (interface, key) belongs to: 0 is the first of its endpoints."""
    table = Interfaces()
    found = []
    for interface, key in sights:
        table.frame(interface)
        whole = table.key(key, interface, new=True)
        assert whole[:12] == key
        assert reverse_key(reverse_key(whole)) == whole
        found.append(int.from_bytes(whole[12:], "big"))
    return found


@pytest.mark.parametrize(
    ("sights", "flows"),
    [
        # Both directions on both, at once: two conversations.
        ([(0, THERE), (1, THERE), (0, BACK), (1, BACK), (0, THERE), (1, THERE)], [0, 0, 0, 1, 0, 1]),
        # It goes out on one and comes in on another.
        ([(0, THERE), (1, BACK), (0, THERE), (1, BACK)], [0, 0, 0, 0]),
        ([(1, THERE), (0, BACK), (1, THERE), (0, BACK)], [0, 0, 0, 0]),
        # One ends where the other begins: files of one capture, joined.
        ([(0, THERE), (0, BACK), (1, THERE), (1, BACK), (1, THERE)], [0, 0, 0, 0, 0]),
    ],
)
def test_whose_flow(sights: list[tuple[int, bytes]], flows: list[int]) -> None:
    assert keys(sights) == flows


def test_what_many_interfaces_leave_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ALTERNATING", 6)
    monkeypatch.setattr(module, "MAX_SHARING", 4)
    table = Interfaces()
    for turn in range(3):
        for interface in range(40):
            table.frame(interface)
            whole = table.key(BACK if turn & 1 else THERE, interface, new=True)
            assert int.from_bytes(whole[12:], "big") < 4
    assert len(table._alternating) <= 6
    assert [len(seen) for seen in table._pairs.values()] == [4]


def test_large_packets_are_remembered_by_a_few_bytes() -> None:
    """On all interfaces packets may have 64 KB each, where a network card joins them."""
    table = DuplicateFilter()
    tracemalloc.start()
    for number in range(100):
        packet = b"\x45" + bytes(60_000) + number.to_bytes(4, "big")
        assert not table.is_duplicate(packet, b"one", 0)
        assert table.is_duplicate(packet, b"other", 0)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 500_000


def test_a_mark_changes_nothing_else_of_a_key() -> None:
    for key in (THERE, bytes(range(36))):
        marked = key + b"\0\7"
        assert flow_endpoints(marked) == flow_endpoints(key)
        assert (flow_ports(marked), flow_sides(marked)) == (flow_ports(key), flow_sides(key))
        assert reverse_key(marked) == reverse_key(key) + b"\0\7"


def test_pairs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PAIRS", 4)
    table = Interfaces()
    for number in range(20):
        table.key(bytes([number]) + THERE[1:], 0, new=True)
    assert len(table._pairs) == 4


def frames(path: Path) -> list[tuple[int, bytes]]:
    with open_capture(path) as reader:
        return [(time_ns, data) for _, time_ns, _, data, _ in reader]


def write(path: Path, sights: list[tuple[int, int, bytes]]) -> Path:
    """Write (interface, time, frame) in the order of time."""
    with PcapngWriter(path) as out:
        for name in ("left", "right"):
            out.add_interface(1, name)
        for interface, time_ns, data in sorted(sights, key=lambda sight: sight[1]):
            out.write(time_ns, data, interface=interface)
    return path


def test_what_a_bridge_passes_on_is_seen_twice_and_sent_once(tmp_path: Path) -> None:
    whole = [(0, time_ns, data) for time_ns, data in frames(PATH)]
    again = [(1, time_ns + 20_000, data[:22] + b"\x3f" + data[23:]) for _, time_ns, data in whole]
    (alone,) = analyze(PATH).connections
    bridge = write(tmp_path / "bridge.pcapng", whole + again)
    (both,) = analyze(bridge).connections
    units = [item for item in iter_timeline(bridge) if isinstance(item, UnitRecord)]
    assert {copy.kind for unit in units for copy in unit.copies} <= {"original", "retransmission"}
    with open_capture(bridge) as reader:
        assert {frame[2] for frame in reader} == {1}
    assert sum(space.duplicates for space in both.spaces) == 0
    assert [space.retransmissions for space in both.spaces] == [
        space.retransmissions for space in alone.spaces
    ]
    assert [counters["capture_duplicates"] for counters in both.counters] == list(alone.datagrams)


@pytest.mark.parametrize("first", [0, 1])
def test_directions_on_two_interfaces_are_one_connection(tmp_path: Path, first: int) -> None:
    own = frames(PATH)
    port = own[0][1][34:36]
    sights = [(first ^ (data[34:36] != port), time_ns, data) for time_ns, data in own]
    (alone,) = analyze(PATH).connections
    (split,) = analyze(write(tmp_path / "split.pcapng", sights)).connections
    assert (split.messages, split.spaces) == (alone.messages, alone.spaces)


def test_equal_endpoints_on_two_interfaces_are_two_connections(tmp_path: Path) -> None:
    """Once it is seen that both are captured at once: they may be files of one capture, joined."""
    own, other = frames(PATH), frames(OTHER)
    (alone,), (stranger,) = analyze(PATH).connections, analyze(OTHER).connections
    ports = own[0][1][34:38]
    turned = ports[2:] + ports[:2]
    client = other[0][1][34:36]
    late_ns = own[3][0] - other[0][0]
    sights = [(0, time_ns, data) for time_ns, data in own]
    sights.append((1, own[0][0] - 1, bytes(12) + b"\x08\x06" + bytes(28)))
    sights += [
        (1, time_ns + late_ns, data[:34] + (ports if data[34:36] == client else turned) + data[38:])
        for time_ns, data in other
    ]
    found = analyze(write(tmp_path / "two.pcapng", sights)).connections
    assert [report.datagrams for report in found] == [alone.datagrams, stranger.datagrams]
    assert {(report.client, report.server) for report in found} == {(alone.client, alone.server)}
    for report, same in zip(found, (alone, stranger), strict=True):
        assert [(space.units, space.copies, space.acked) for space in report.spaces] == [
            (space.units, space.copies, space.acked) for space in same.spaces
        ]
