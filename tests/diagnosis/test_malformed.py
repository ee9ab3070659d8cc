"""What a side sends that its peer cannot read explains why the peer closes, or falls silent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from netdissect import analyze
from netdissect.model.diagnosis import Cause, Diagnosis
from netdissect.model.reports import ConnectionReport
from netdissect.render.diagnose import brief_lines
from twocaptures import Record, rewritten

CAPTURES = Path(__file__).parents[2] / "captures"
SPORT, PAYLOAD = 34, 42
"""Offsets in a frame of Ethernet, IPv4 and UDP."""


def report_of(name: str, connection: int = 1) -> ConnectionReport:
    return analyze(CAPTURES / f"{name}.pcap").connections[connection - 1]


def cause_of(name: str, connection: int = 1) -> Cause:
    found = report_of(name, connection).diagnosis
    assert found is not None
    return found.cause


@pytest.mark.parametrize(
    ("name", "connection", "frame", "code"),
    [
        ("netplay/bin1_malformed", 1, 6, "frame-length-below-3"),
        ("netplay/bin1_malformed", 2, 17, "frame-length-below-3"),
        ("knet/tcp_malformed_length.server", 1, 16, "knet-tcp-length"),
        ("knet/tcp_malformed_zero_length.server", 1, 20, "knet-tcp-length"),
    ],
)
def test_a_server_closes_after_malformed_data(
    name: str, connection: int, frame: int, code: str
) -> None:
    report = report_of(name, connection)
    found = report.diagnosis
    assert found is not None
    cause = found.cause
    assert (cause.what, cause.direction, cause.from_frame) == ("malformed", 0, frame)
    assert cause.confidence == "likely"
    assert f"The client sent #{frame}, which is malformed ({code})" in cause.text
    assert f"the client sent #{frame}, which is malformed" in found.verdict
    assert "no problem" not in cause.text.lower()
    assert found.settles is None
    # It is worse than a connection that was closed without a reason.
    calm = report_of("netplay/bin1_malformed", 4).diagnosis
    assert calm is not None
    assert found.badness > calm.badness
    assert len(list(brief_lines(found))) == 2
    assert len(list(brief_lines(calm))) == 1


def test_whoever_sent_malformed_data_may_close_for_another_reason() -> None:
    cause = cause_of("netplay/bin1_truncated_zlib_hangs_server", 2)
    assert cause.what == "closed"
    assert "The client sent malformed data, last in #11 (zlib-truncated)." in cause.text
    assert "no problem was seen" not in cause.text


def test_malformed_datagrams_are_a_problem_that_was_seen() -> None:
    """Their receiver drops them, so they explain no end."""
    cause = cause_of("eoudp/late_malformed")
    assert cause.what == "none"
    assert "sent malformed data, last in #" in cause.text
    assert "No problem" not in cause.text


def test_a_clean_connection_has_no_malformed_data() -> None:
    report = report_of("netplay/bin1_malformed", 4)
    assert report.malformed == [None, None]
    assert "no problem was seen before" in cause_of("netplay/bin1_malformed", 4).text


def test_a_server_that_malformed_data_silences(tmp_path: Path) -> None:
    found = silenced(tmp_path / "silenced.pcap", spoilt=True)
    assert found.cause.what == "silence"
    assert "The client had just sent #" in found.cause.text
    assert "the program of the server may have crashed or hung" in found.cause.text


def test_a_server_that_falls_silent_by_itself(tmp_path: Path) -> None:
    found = silenced(tmp_path / "silenced.pcap", spoilt=False)
    assert found.cause.what == "silence"
    assert "malformed" not in found.cause.text


def silenced(path: Path, *, spoilt: bool) -> Diagnosis:
    """Return the diagnosis of a session whose server stops in the middle, where `spoilt` right
    after the client sends an unknown type of message.
    """
    capture = CAPTURES / "riptide/udp_2.2.1_clean.pcap"
    port = int(analyze(capture).connections[0].server.rpartition(":")[2])

    def change(found: list[Record]) -> Iterator[Record]:
        middle_ns = (found[0][0] + found[-1][0]) // 2
        sent = False
        for time_ns, octets, wire in found:
            over = time_ns > middle_ns
            if over and int.from_bytes(octets[SPORT : SPORT + 2], "big") == port:
                continue
            spoil = over and spoilt and not sent
            sent = sent or spoil
            kind = octets[PAYLOAD] | (0x0F if spoil else 0)
            yield time_ns, octets[:PAYLOAD] + bytes([kind]) + octets[PAYLOAD + 1 :], wire

    diagnosis = analyze(rewritten(capture, path, change)).connections[0].diagnosis
    assert diagnosis is not None
    return diagnosis
