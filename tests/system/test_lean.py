"""Commands that only read import Scapy without its tables of makers and without `cryptography`;
nobody else does.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from netdissect.cli import cli
from netdissect.system import lean

LOSSY = Path(__file__).resolve().parents[2] / "captures/riptide/udp_2.2.1_lossy_clientleg.pcap"

SCRIPT = """
import os, sys
from netdissect.system import lean, sandbox
if sys.argv[1] == "ours":
    sandbox.permit()
exists = os.path.exists
lean.lean()
lean.lean()  # a command that opens two captures asks twice
import scapy.config, scapy.data, scapy.main
print(len(scapy.data.MANUFDB.d) > 0, len(scapy.data.BLUETOOTH_CORE_COMPANY_IDENTIFIERS) > 0)
ours = [each for each in sys.meta_path if isinstance(each, lean._Finder)]
print(os.path.exists is exists, ours == [], scapy.data.ETH_P_IP)
import scapy.libs.manuf
print(len(scapy.libs.manuf.DATA) > 0, scapy.main.SCAPY_CACHE_FOLDER is not None)
print(scapy.config.conf.crypto_valid, "cryptography" in sys.modules)
import cryptography
"""


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_makers_and_cryptography_are_left_out_of_a_command_of_ours_alone(whose: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, whose], capture_output=True, text=True, check=True
    )
    there = str(whose == "theirs")
    assert done.stdout.splitlines() == [
        f"{there} {there}", "True True 2048", "True True", f"{there} {there}"
    ]  # fmt: skip


def test_browse_imports_scapy_like_that(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(lean, "lean", lambda: asked.append(True))
    assert CliRunner().invoke(cli, ["browse", str(LOSSY)]).exit_code == 0
    assert asked
