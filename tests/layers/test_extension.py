from __future__ import annotations

import subprocess
import sys

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
