"""How many instructions `connections` takes for a datagram, and for a short connection: these
counts repeat, times do not.

`instructions.json` holds what was counted last, and with which Python and compiler; with others the
counts differ, and nothing is compared. Its key `renew` says how to count anew.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from netdissect.lookup import hot_path

HERE = Path(__file__).parent
FIGURES = HERE / "instructions.json"
MAKER = HERE.parent / "bench" / "make_capture.py"
DATAGRAMS = 5000
SHORT = 20
"""Datagrams of a short connection: what each connection costs is nearly all of it."""
WITHIN = 0.03
COUNTED = (
    "CPyDef_decapsulate___Decapsulator___hand_over",
    "CPyDef_stages___Pipeline___finish",
    "CPyDef_json___renumbered",
)
"""Everything between the bytes of the file and the lines of JSON; imports are left out. None may be
called by another: that would turn the counting off.
"""
BUILT = f"{platform.python_implementation()} {platform.python_version()} {platform.machine()}, "
BUILT += platform.python_compiler()


def test_a_difference_is_told_by_its_share():
    """The comparison itself, wherever it runs."""
    assert _off(103.1, 100) > WITHIN > _off(102.9, 100)
    assert _off(96.9, 100) > WITHIN > _off(97.1, 100)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["eoudp", "knet", "riptide", "teeworlds"])
def test_instructions_of_a_datagram(tmp_path, protocol):
    check(tmp_path, protocol, [])


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["eoudp", "knet", "riptide", "teeworlds"])
def test_instructions_of_a_connection(tmp_path, protocol):
    check(tmp_path, protocol, ["--length", str(SHORT)], "connections")


def check(tmp_path, protocol, sessions, figures="instructions"):
    """Compare what is counted of replayed sessions, for each datagram or connection."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("valgrind is not installed")
    if hot_path() != "compiled":
        pytest.skip("the package is interpreted")
    known = json.loads(FIGURES.read_text())
    renew = bool(os.environ.get("NETDISSECT_RENEW"))
    before = known[figures].get(protocol)
    if not renew and (known["built"] != BUILT or before is None):
        pytest.skip(f"no figure of this Python: {known['renew']}")
    capture = tmp_path / "slice.pcap"
    made = ["--protocol", protocol, "--datagrams", str(DATAGRAMS), "--out", str(capture)]
    made += sessions
    subprocess.run([sys.executable, str(MAKER), *made], check=True, capture_output=True)
    run = subprocess.run(
        [
            valgrind, "--tool=callgrind", f"--callgrind-out-file={tmp_path / 'out'}",
            *(f"--toggle-collect={name}" for name in COUNTED),
            sys.executable, "-m", "netdissect", "connections", "--json", str(capture),
        ],
        env={**os.environ, "PYTHONHASHSEED": "0"}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    of = len(run.stdout.splitlines()) if figures == "connections" else DATAGRAMS
    count = int(re.search(r"Collected : (\d+)", run.stderr)[1]) / of
    assert count > 100, "nothing was counted: the functions have other names"
    if renew:
        known["built"] = BUILT
        known[figures][protocol] = round(count)
        FIGURES.write_text(json.dumps(known, indent=2) + "\n")
        return
    assert _off(count, before) <= WITHIN, f"{count:.0f} instructions, {before} before"


def _off(count: float, before: float) -> float:
    return abs(count - before) / before
