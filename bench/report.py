"""What a report costs: to make, to carry, to open.

    python bench/report.py                          100,000 datagrams of every protocol that has any
    python bench/report.py --datagrams 1000000 --protocol riptide
    python bench/report.py game.pcap

Prints CPU seconds and peak memory of `netdissect report`, the size of the file, and, where Chromium
and Selenium are installed, how long a browser takes to open it and to answer a click. Ends with 1
where a figure is beyond its limit, measured on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import browser as chromium  # noqa: E402 - a module of the tests

PROTOCOLS = ("riptide", "teeworlds", "knet", "eoudp")
MAX_BYTES = 2_000_000
MAX_OPEN_MS = 300
MAX_CPU_S = 2.0
"""For 100,000 datagrams, compiled; what a start costs is in it."""

_TIMING = """
const [entry] = performance.getEntriesByType('navigation');
const paint = performance.getEntriesByName('first-contentful-paint')[0];
return [entry.domComplete, paint ? paint.startTime : null];
"""
_SORT = """
const before = performance.now();
const button = document.querySelector('table.sorts th button');
if (button) button.click();
const sorted = performance.now();
const zoom = document.querySelector('.zoomtools button');
if (zoom) zoom.click();
return [sorted - before, performance.now() - sorted];
"""


def made(capture: Path, report: Path) -> tuple[float, float]:
    """Write a report; return CPU seconds and peak memory in MB."""
    command = [sys.executable, "-m", "netdissect", "report", str(capture), "-o", str(report), "-q"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 6):
        sys.exit(f"netdissect report ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def opened(report: Path, folder: Path) -> tuple[float, float | None, float, float, float]:
    """Return ms until a page is complete and first painted, of a sort and of a zoom, and the CPU
    time in ms of the thread that opens it, which other programs do not lengthen.
    """
    window = chromium.Browser(folder)
    try:
        window.size(1440, 900)
        window.open(report)
        window.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        window.open(report)
        complete, painted = window.run(_TIMING)
        told = window.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        cpu = next(1e3 * one["value"] for one in told if one["name"] == "TaskDuration")
        sort, zoom = window.run(_SORT)
    finally:
        window.close()
    return complete, painted, sort, zoom, cpu


def shown(name: str, capture: Path, folder: Path) -> bool:
    """Measure one capture, print the figures, and return whether all are within their limits."""
    report = folder / "report.html"
    cpu, memory = made(capture, report)
    size = report.stat().st_size
    text = f"{name:<12} {cpu:6.2f} CPU-s {memory:6.0f} MB  {size / 1000:7,.0f} kB"
    good = size <= MAX_BYTES and cpu <= MAX_CPU_S
    reason = chromium.missing()
    if reason is None:
        profile = Path(tempfile.mkdtemp(dir=folder))
        complete, painted, sort, zoom, cpu_ms = opened(report, profile)
        first = "-" if painted is None else f"{painted:.0f}"
        text += (
            f"  open {complete:.0f} ms ({cpu_ms:.0f} CPU-ms), painted {first} ms, "
            f"sort {sort:.0f} ms, zoom {zoom:.0f} ms"
        )
        good = good and complete <= MAX_OPEN_MS
    else:
        text += f"  not opened: {reason}"
    print(text + ("" if good else "  BEYOND A LIMIT"), flush=True)
    return good


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("capture", nargs="?", type=Path)
    parser.add_argument("--datagrams", type=int, default=100_000)
    parser.add_argument("--protocol", choices=PROTOCOLS)
    asked = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if asked.capture is not None:
            return 0 if shown(asked.capture.name[:12], asked.capture, folder) else 1
        for protocol in [asked.protocol] if asked.protocol else PROTOCOLS:
            capture = folder / f"{protocol}.pcap"
            maker = [
                sys.executable,
                str(ROOT / "bench" / "make_capture.py"),
                "--protocol",
                protocol,
            ]
            words = ["--datagrams", str(asked.datagrams), "--out", str(capture)]
            subprocess.run([*maker, *words], check=True, stdout=subprocess.DEVNULL)
            good = shown(protocol, capture, folder) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
