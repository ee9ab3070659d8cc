"""The fuzz driver against the real library."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdissect.fuzz import Target, fuzz_target
from netdissect_enet.rules import CRC, PLAIN

CAPTURES = Path(__file__).parents[1] / "captures"


@pytest.mark.parametrize("dialect", [PLAIN, CRC])
def test_the_library_takes_what_is_unchanged_and_survives_the_rest(
    dialect: str, peer: Path, port: int, tmp_path: Path
) -> None:
    options = " crc" if dialect == CRC else ""
    name = "lossy_crc" if dialect == CRC else "lossy"
    report = fuzz_target(
        "enet", Target("127.0.0.1", port), tmp_path / "run", dialect=dialect, cases=300, rate=400,
        captures=[CAPTURES / f"{name}_clientleg.pcap"] if dialect == CRC else [],
        monitors=[f"exec:{peer} server {port} 600{options}"],
    )  # fmt: skip
    assert report.cases == 300
    assert not report.findings
    assert (report.share("control") or 0) > 0.9
    assert report.reached["verify_connect", "connecting"] >= 1
