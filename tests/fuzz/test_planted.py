"""Bugs that are planted in the minimal servers are found."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from agreement import CAPTURES
from fuzzing import free_target, server_command
from netdissect.fuzz import fuzz_target
from netdissect.fuzz.servers import make_server
from netdissect.fuzz.servers.base import SHARED_BUGS, Event, PlantedBugError

CAPTURE = {
    "riptide": "riptide/udp_2.2.1_clean.pcap",
    "teeworlds": "teeworlds/tw07_clean.pcap",
    "knet": "knet/udp_clean_session.pcap",
    "eoudp": "eoudp/late_clean.pcap",
}
PLANTED = [
    *[("riptide", bug) for bug in ("off-by-one", "number-wrap", "double-free", "unbounded-table")],
    *[("teeworlds", bug) for bug in ("off-by-one", "number-wrap", "unbounded-table")],
    *[("knet", bug) for bug in ("off-by-one", "number-wrap", "stale-fragment")],
    *[("eoudp", bug) for bug in ("off-by-one", "number-wrap", "unbounded-table")],
    *[("netplay", bug) for bug in ("off-by-one", "stale-fragment", "unbounded-table")],
]


def found(folder: Path, protocol: str, bug: str, seed: int, cases: int) -> str:
    """Return what the server is seen to die of, empty where it does not."""
    kind = socket.SOCK_STREAM if protocol == "netplay" else socket.SOCK_DGRAM
    target = free_target(kind)
    capture = CAPTURE.get(protocol)
    report = fuzz_target(
        protocol, target, folder / "run", seed=seed, cases=cases, rate=0, failures=1,
        captures=[CAPTURES / capture] if capture else [],
        monitors=[server_command(protocol, target, bug)],
    )  # fmt: skip
    return "".join(finding.verdict.detail for finding in report.findings.values())


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "bug"), PLANTED)
def test_planted_bugs_are_found_within_twenty_thousand_cases(
    protocol: str, bug: str, tmp_path: Path
) -> None:
    assert f"PlantedBugError: {bug}: " in found(tmp_path, protocol, bug, 1, 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_the_length_bug_of_knet_is_found_from_any_seed(seed: int, tmp_path: Path) -> None:
    assert "PlantedBugError: length: " in found(tmp_path, "knet", "length", seed, 20_000)


def test_a_planted_bug_is_found_soon(tmp_path: Path) -> None:
    detail = found(tmp_path, "teeworlds", "number-wrap", 1, 400)
    assert "PlantedBugError: number-wrap: " in detail


BREACHES = {
    "off-by-one": [Event(1, 43, 10, window=32)],
    "number-wrap": [Event(1, 65_530, 2)],
    "stale-fragment": [Event(1, fragment=(3, 0, True)), Event(1, fragment=(4, 1, False))],
    "double-free": [Event(1, leaves=True), Event(1, leaves=True)],
    "unbounded-table": [Event(1, key=key) for key in range(301)],
    "gates": [Event(1, content=bytes.fromhex("00005a0000c300001d000036"))],
    "steps": [Event(1, content=bytes([0, 0, value])) for value in (0x1A, 0x23, 0x3D)],
}
HARMLESS = [
    Event(1, 42, 10, window=32),
    Event(1, 44, 10, window=32),
    Event(1, 3, 2),
    Event(1, 2, 3),
    Event(1, 1, 65_530),
    Event(1, fragment=(3, 0, True)),
    Event(1, fragment=(3, 1, False)),
    Event(1, leaves=True),
    Event(1, enters=True),
    Event(1, leaves=True),
    Event(1, enters=True),
    *[Event(1, key=key % 300) for key in range(900)],
    Event(1, content=bytes.fromhex("00005a0000c300001d0000")),
    *[Event(1, content=bytes([0, 0, value])) for value in (0x1A, 0x23, 0, 0x3D)],
    *[Event(slot, content=bytes([0, 0, value])) for slot, value in ((1, 0x1A), (2, 0x23))],
    Event(1, content=b"\0\0\0"),
]


@pytest.mark.parametrize("bug", SHARED_BUGS)
def test_a_planted_bug_wants_its_own_trigger(bug: str) -> None:
    protocol = next((name for name, planted in PLANTED if planted == bug), "riptide")
    server = make_server(protocol, bugs=frozenset({bug}))
    for event in HARMLESS:
        server.event(event)
    *before, last = BREACHES[bug]
    for event in before:
        server.event(event)
    with pytest.raises(PlantedBugError, match=bug):
        server.event(last)
    sound = make_server(protocol)
    for event in (*before, last):
        sound.event(event)
