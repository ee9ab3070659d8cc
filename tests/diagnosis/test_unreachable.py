"""ICMP errors say that the program of a side is gone: its host was reached, and answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import pack

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


def refused(octets: bytes) -> bytes:
    """Return the error that the receiver's host sends back."""
    packet = octets[HEAD:]
    error = pack(">BBHI", 3, 3, 0, 0) + packet[:28]
    return octets[:HEAD] + ipv4(error, 1, src=packet[16:20], dst=packet[12:16])


class Stops:
    """Change of a capture: the program behind a port stops in the middle, and the host says so."""

    def __init__(self, port: int, *, at: float = 0.5, back: float = 2.0) -> None:
        self.port, self.at, self.back = port, at, back

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
                error = refused(octets)
                yield time + 100_000, error, len(error)


def diagnosis(name: str, folder: Path, **changes: float) -> Diagnosis:
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
