"""What a short run does not need is not imported: half of its time was imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CAPTURE = Path(__file__).resolve().parents[2] / "captures" / "riptide" / "udp_2.2.1_clean.pcap"
NEVER = {"email", "importlib.metadata", "statistics", "socket", "netdissect.capture.live", "rich"}


def _modules(*words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "netdissect", *words],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


@pytest.mark.parametrize(
    ("words", "never"),
    [
        (["--help"], NEVER | {"netdissect.pipeline", "netdissect.filters", "netdissect.protocols"}),
        (
            ["connections", "--json", str(CAPTURE)],
            NEVER | {"netdissect.filters", "netdissect.capture.tools", "scapy", "hashlib"},
        ),
        (["timeline", "--json", str(CAPTURE)], NEVER | {"netdissect.filters", "scapy"}),
        (["stats", "--json", str(CAPTURE)], {"netdissect.filters", "scapy", "rich"}),
        (["explain", "knet-header"], NEVER | {"scapy"}),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_a_command_imports_nothing_that_it_does_not_need(words: list[str], never: set[str]) -> None:
    assert not _modules(*words) & never


def test_what_makes_records_imports_no_scapy_before_one_is_decoded() -> None:
    code = "import netdissect.pipeline.index, sys; sys.exit('scapy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
