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


@pytest.mark.parametrize("begins", range(2, 8))
def test_numbers_that_are_missing_after_a_pause_show_a_silence(
    begins: int, tmp_path: Path
) -> None:
    """Whatever came last before it: a message that is acknowledged, or another one."""
    path = CAPTURES / "eoudp" / "mid_clean.pcap"
    (whole,) = analyze(path).connections
    server = int(whole.server.rpartition(":")[2]).to_bytes(2, "big")
    since = whole.first_time_ns + begins * 1_000_000_000

    def darkened(found: list[Record]) -> list[Record]:
        return [
            row for row in found if row[1][PORT] != server or not since <= row[0] < since + DARK_NS
        ]

    part = rewritten(path, tmp_path / "part.pcap", darkened)
    (report,) = analyze(part).connections
    found = diagnose(report)
    assert (found.cause.what, found.cause.direction) == ("silence", 1)
    assert found.cause.from_ns is not None
    assert found.cause.to_ns is not None
    assert found.cause.from_ns < since + DARK_NS <= found.cause.to_ns
