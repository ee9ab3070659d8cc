"""How many instructions `connections` takes for a datagram or TCP segment, and for a short
connection: these counts repeat, times do not.

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

from netdissect.capture import open_capture
from netdissect.lookup import hot_path

HERE = Path(__file__).parent
FIGURES = HERE / "instructions.json"
BENCH = HERE.parent / "bench"
DATAGRAMS = 5000
SHORT = 20
"""Datagrams of a short connection: what each connection costs is nearly all of it."""
WITHIN = 0.03
COUNTED = (
    "CPyDef_decapsulate___Decapsulator___hand_over",
    "CPyDef_stages___Pipeline___finish",
    "CPyDef_json___renumbered",
    "CPyDef_track___intervals___Intervals___rows",
)
"""Everything between the bytes of the file and the lines of JSON, or the spans of `stats`; imports are left out. None may be
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
    check(tmp_path, protocol, datagrams(protocol))


@pytest.mark.slow
def test_instructions_of_a_segment(tmp_path):
    check(tmp_path, "netplay", ["make_tcp_capture.py", "--megabytes", "1"])


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["eoudp", "knet", "riptide", "teeworlds"])
def test_instructions_of_a_connection(tmp_path, protocol):
    check(tmp_path, protocol, [*datagrams(protocol), "--length", str(SHORT)], "connections")


def datagrams(protocol):
    """Return what makes a capture of one protocol over UDP."""
    return ["make_capture.py", "--protocol", protocol, "--datagrams", str(DATAGRAMS)]


# Of kNet, with several spaces a datagram, it was 1.70 when this was written: that it is no more.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "most"), [("eoudp", 1.5), ("knet", 1.75), ("riptide", 1.5), ("teeworlds", 1.5)]
)
def test_stats_take_little_more_than_connections(tmp_path, protocol, most):
    capture = made(tmp_path, datagrams(protocol))
    alone, _ = counted(tmp_path, capture, "connections")
    assert counted(tmp_path, capture, "stats")[0] <= most * alone


def check(tmp_path, protocol, maker, figures="instructions"):
    """Compare what is counted of replayed sessions, for each packet or connection."""
    known = json.loads(FIGURES.read_text())
    renew = bool(os.environ.get("NETDISSECT_RENEW"))
    before = known[figures].get(protocol)
    if not renew and (known["built"] != BUILT or before is None):
        pytest.skip(f"no figure of this Python: {known['renew']}")
    capture = made(tmp_path, maker)
    found, output = counted(tmp_path, capture, "connections")
    with open_capture(capture) as frames:
        packets = sum(1 for _ in frames)
    count = found / (len(output.splitlines()) if figures == "connections" else packets)
    assert count > 100, "nothing was counted: the functions have other names"
    if renew:
        known["built"] = BUILT
        known[figures][protocol] = round(count)
        FIGURES.write_text(json.dumps(known, indent=2) + "\n")
        return
    assert _off(count, before) <= WITHIN, f"{count:.0f} instructions, {before} before"


def made(tmp_path, maker):
    """Return a capture of replayed sessions."""
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    if hot_path() != "compiled":
        pytest.skip("the package is interpreted")
    capture = tmp_path / "slice.pcap"
    words = [str(BENCH / maker[0]), *maker[1:], "--out", str(capture)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    return capture


def counted(tmp_path, capture, command):
    """Return the instructions that a command takes, and its output."""
    # What Python compiles is not counted: it is in the cache by then.
    env = {
        **os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(tmp_path / "compiled"),
    }  # fmt: skip
    words = [sys.executable, "-m", "netdissect", command, "--json", str(capture)]
    subprocess.run(words, env=env, check=True, capture_output=True)
    run = subprocess.run(
        [
            "valgrind", "--tool=callgrind", f"--callgrind-out-file={tmp_path / 'out'}",
            *(f"--toggle-collect={name}" for name in COUNTED), *words,
        ],
        env=env, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return int(re.search(r"Collected : (\d+)", run.stderr)[1]), run.stdout


def _off(count: float, before: float) -> float:
    return abs(count - before) / before
