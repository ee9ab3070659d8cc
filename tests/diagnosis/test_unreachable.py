"""ICMP errors say that the program of a side is gone: its host was reached, and answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from netdissect import analyze
from netdissect.model.diagnosis import Diagnosis
from packetbuild import ipv4
from twocaptures import Record, rewritten

CAPTURES = Path(__file__).parents[2] / "captures"
HEAD = 14
SESSIONS = [
    "eoudp/early_clean", "eoudp/late_long32_session", "riptide/udp_2.2.1_clean",
    "teeworlds/tw07_two_players",
]  # fmt: skip


def refused(octets: bytes, code: int = 3) -> bytes:
    """Return the error that the receiver's host, or a router, sends back."""
    packet = octets[HEAD:]
    error = pack(">BBHI", 3, code, 0, 0) + packet[:28]
    return octets[:HEAD] + ipv4(error, 1, src=packet[16:20], dst=packet[12:16])


class Stops:
    """Change of a capture: the program behind a port stops in the middle, and the host says so."""

    def __init__(self, port: int, *, at: float = 0.5, back: float = 2.0, code: int = 3) -> None:
        self.port, self.at, self.back, self.code = port, at, back, code

    def __call__(self, found: list[Record]) -> Iterator[Record]:
        first, last = found[0][0], found[-1][0]
        for time, octets, wire in found:
            place = (time - first) / (last - first)
            sport, dport = (int.from_bytes(octets[at : at + 2], "big") for at in (34, 36))
            gone = self.at < place < self.back
            if gone and sport == self.port:
                continue
            yield time, octets, wire
            if gone and dport == self.port:
                error = refused(octets, self.code)
                yield time + 100_000, error, len(error)


def diagnosis(name: str, folder: Path, **changes: Any) -> Diagnosis:
    path = CAPTURES / f"{name}.pcap"
    port = int(analyze(path).connections[0].server.rpartition(":")[2])
    report = analyze(rewritten(path, folder / "stops.pcap", Stops(port, **changes))).connections[0]
    assert report.diagnosis is not None
    return report.diagnosis


@pytest.mark.parametrize("name", SESSIONS)
def test_a_server_that_is_gone_is_no_broken_path(name: str, tmp_path: Path) -> None:
    found = diagnosis(name, tmp_path)
    assert "nothing listens on the port any more: the server stopped" in found.cause.text
    assert "No problem was seen" not in found.cause.text


@pytest.mark.parametrize("name", SESSIONS)
def test_a_server_that_is_heard_again_is_not_gone(name: str, tmp_path: Path) -> None:
    assert "nothing listens" not in diagnosis(name, tmp_path, back=0.6).cause.text


def test_errors_are_an_answer() -> None:
    """Nothing but errors came back: this capture can tell why."""
    found = analyze(CAPTURES / "riptide" / "udp_2.2.1_noserver.pcap").connections[0].diagnosis
    assert found is not None
    assert found.ending.how == "never-answered"
    assert found.cause.text.endswith("reports that nothing listens on the port.")


@pytest.mark.parametrize("name", [*SESSIONS, "knet/tcp_clean_session", "riptide/tcp_2.0.0_clean"])
@pytest.mark.parametrize(("code", "text"), [
    (1, "A host or router reports that {} cannot be reached (ICMP host unreachable)."),
    (10, "A firewall rejects what is sent to {} (ICMP host administratively prohibited)."),
])  # fmt: skip
def test_a_path_that_breaks_is_told_by_its_router(
    name: str, code: int, text: str, tmp_path: Path
) -> None:
    server = analyze(CAPTURES / f"{name}.pcap").connections[0].server
    found = diagnosis(name, tmp_path, code=code)
    assert text.format(server) in found.cause.text
    assert "nothing listens" not in found.cause.text
    assert found.ending.how != "unreachable"


@pytest.mark.parametrize(("code", "text"), [
    (1, "A host or router reports that {} cannot be reached (ICMP host unreachable)."),
    (13, "A firewall rejects what is sent to {} (ICMP communication administratively prohibited)."),
])  # fmt: skip
def test_other_errors_are_an_answer_too(code: int, text: str, tmp_path: Path) -> None:
    def coded(found: list[Record]) -> Iterator[Record]:
        for time, octets, wire in found:
            is_error = octets[HEAD + 9] == 1
            place = HEAD + 21
            new = octets[:place] + bytes([code]) + octets[place + 1 :] if is_error else octets
            yield time, new, wire

    path = CAPTURES / "riptide" / "udp_2.2.1_noserver.pcap"
    report = analyze(rewritten(path, tmp_path / "rejected.pcap", coded)).connections[0]
    assert report.diagnosis is not None
    assert report.diagnosis.ending.how == "never-answered"
    assert report.diagnosis.cause.text == text.format(report.server)
    assert report.diagnosis.cause.confidence == "likely"
    assert {"destination-unreachable"} <= set(report.codes)
    assert "port-unreachable" not in report.codes
