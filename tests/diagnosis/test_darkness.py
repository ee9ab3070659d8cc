"""Spans in which nothing of one side came, of protocols that have no timers."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdissect.diagnosis import diagnose
from netdissect.pipeline import analyze
from twocaptures import CAPTURES, Record, rewritten

DARK_NS = 4_000_000_000
PORT = slice(34, 36)
"""Bytes of the source port in Ethernet and IPv4."""


@pytest.mark.parametrize("late_ns", [0, 80_000_000])
@pytest.mark.parametrize("begins", range(2, 8))
def test_numbers_that_are_missing_after_a_pause_show_a_silence(
    begins: int, late_ns: int, tmp_path: Path
) -> None:
    """Whatever came last before it: a message that is acknowledged, another one, or a late copy."""
    path = CAPTURES / "eoudp" / "mid_clean.pcap"
    (whole,) = analyze(path).connections
    server = int(whole.server.rpartition(":")[2]).to_bytes(2, "big")
    since = whole.first_time_ns + begins * 1_000_000_000

    def darkened(found: list[Record]) -> list[Record]:
        before = [row for row in found if row[1][PORT] == server and row[0] < since]
        late = [(since + late_ns, *before[-5][1:])] if late_ns else []
        left = [
            row for row in found if row[1][PORT] != server or not since <= row[0] < since + DARK_NS
        ]
        return sorted([*left, *late])

    part = rewritten(path, tmp_path / "part.pcap", darkened)
    (report,) = analyze(part).connections
    found = diagnose(report)
    assert (found.cause.what, found.cause.direction) == ("silence", 1)
    assert found.cause.from_ns is not None
    assert found.cause.to_ns is not None
    assert found.cause.from_ns <= since + late_ns < since + DARK_NS <= found.cause.to_ns


@pytest.mark.parametrize(
    "name", ["riptide/udp_2.2.1_clean", "riptide/udp_2.0.0_clean", "teeworlds/ddnet_clean"]
)
def test_a_server_that_answers_late_was_silent(name: str, tmp_path: Path) -> None:
    """Its client asks to begin again and again for four seconds before it is answered."""
    path = CAPTURES / f"{name}.pcap"
    first = analyze(path).connections[0].first_frame

    def late(found: list[Record]) -> list[Record]:
        time_ns, octets, wire = found[first - 1]
        asked = [(time_ns - 1_000_000_000 * step, octets, wire) for step in (4, 3, 2, 1)]
        return [*asked, *found[first - 1 :]]

    report = analyze(rewritten(path, tmp_path / "late.pcap", late)).connections[0]
    span = report.quiet[0]
    assert (span.kind, span.direction, span.basis, span.unanswered) == ("silence", 1, "asked", 4)
    assert span.from_ns == report.first_time_ns
    assert (span.from_frame, span.to_frame) == (1, 6)
