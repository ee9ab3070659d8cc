from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
from scapy.config import conf
conf.exts.load("netdissect")
from scapy.contrib.riptide import RiptideConnect
import netdissect.layers.riptide as ours
assert RiptideConnect is ours.RiptideConnect
print(bytes(RiptideConnect()).hex())
"""


def test_a_scapy_shell_loads_the_layers() -> None:
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert out.stdout.strip() == "02"
    assert "cannot be loaded" not in out.stderr


def test_the_campaign_passes_as_scapy_runs_its_own() -> None:
    """UTscapy ends with 1 where a test fails. Source: scapy.tools.UTscapy."""
    campaign = Path(__file__).with_name("netdissect.uts")
    done = subprocess.run(
        [sys.executable, "-m", "scapy.tools.UTscapy", "-t", str(campaign), "-f", "text"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("=[passed]") == campaign.read_text().count("\n= ")
