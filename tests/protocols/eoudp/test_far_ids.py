"""A capture with its ids rewritten gives what it gave: ids are u64."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from netdissect.pipeline import analyze
from twocaptures import Record, rewritten

CAPTURE = Path(__file__).resolve().parents[3] / "captures/eoudp/late_resend_peer_client.pcap"
HEADERS = 14 + 20 + 8


def facts(path: str | Path) -> list[tuple[object, ...]]:
    with analyze(path).connections as reports:
        return [
            (space.direction, space.units, space.acked, space.retransmissions, space.duplicates)
            for report in reports
            for space in report.spaces
        ]


@pytest.mark.parametrize("base", [2**31 - 40, 2**31, 2**32 - 40, 2**63 - 40, 2**63, 2**64 - 2**31])
def test_a_capture_with_large_ids_gives_what_it_gave(tmp_path: Path, base: int) -> None:
    def moved(found: list[Record]) -> Iterable[Record]:
        for time, data, wire in found:
            out = bytearray(data)
            del out[HEADERS + 9 : HEADERS + 17]
            number = int.from_bytes(data[HEADERS + 9 : HEADERS + 17], "big") + base
            out[HEADERS + 9 : HEADERS + 9] = number.to_bytes(8, "big")
            if out[HEADERS] == 1:
                acked = int.from_bytes(data[HEADERS + 26 : HEADERS + 34], "little") + base
                out[HEADERS + 26 : HEADERS + 34] = acked.to_bytes(8, "little")
            yield time, bytes(out), wire

    assert facts(rewritten(CAPTURE, tmp_path / "far.pcap", moved)) == facts(CAPTURE) != []
