"""Times netdissect beside tshark on the same file: whole processes, in turn, medians and ratios.

    python bench/make_capture.py --protocol riptide --datagrams 1000000 --out big.pcap
    python bench/compare.py connections big.pcap
    python bench/compare.py read big.pcap --runs 3
    python bench/compare.py help
    python bench/compare.py memory big.pcap bigger.pcap

Memory is measured twice: the largest process, as the kernel counted it, and all processes of the
command together (proportional set size, looked at 20 times a second), for a command that forks.

CPU seconds are user + system of the finished process as the kernel counted them. A ratio above 1
means that netdissect is faster. Output goes to a file that is thrown away, as by a redirection.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from netdissect.lookup import hot_path

NETDISSECT = [sys.executable, "-m", "netdissect"]
TSHARK = {
    "connections": ["-q", "-z", "conv,udp"],
    "tcp": ["-q", "-z", "conv,tcp"],
    "read": ["-T", "json"],
}
OURS = {
    "connections": ["connections", "--json"],
    "tcp": ["connections", "--json"],
    "read": ["read", "--json"],
}


@dataclass(frozen=True)
class Run:
    """One finished process."""

    cpu: float
    """User and system seconds."""
    wall: float
    """Seconds from start to end."""
    peak_kib: int
    """Largest resident size, KiB."""


def run(command: list[str]) -> Run:
    """Run a command to its end and return what it cost; exits where it fails."""
    with tempfile.TemporaryFile() as out:
        started = time.perf_counter()
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    return Run(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss)


def together(command: list[str]) -> int:
    """Run a command and return the peak of all its processes together, KiB."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        peak = 0
        while child.poll() is None:
            peak = max(peak, sum(_share_kib(pid) for pid in _family(child.pid)))
            time.sleep(0.05)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    return peak


def _family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for one in found:
        with suppress(OSError):
            found += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
    return found


def _share_kib(pid: int) -> int:
    """Return the memory of a process, what it shares counted in parts; 0 when it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def row(name: str, runs: list[Run]) -> None:
    """Print the medians of one command."""
    cpu = [item.cpu for item in runs]
    print(
        f"{name:<34} cpu {statistics.median(cpu):8.2f} s ({min(cpu):.2f} to {max(cpu):.2f})"
        f"   wall {statistics.median(item.wall for item in runs):8.2f} s"
        f"   peak {max(item.peak_kib for item in runs) / 1024:7.1f} MiB"
    )


def paired(what: str, file: str, runs: int) -> None:
    """Time our command and tshark's in turn, and print the ratio pair by pair."""
    tshark = shutil.which("tshark")
    if tshark is None:
        sys.exit("tshark is not installed: apt-get install tshark")
    ours_command = [*NETDISSECT, *OURS[what], file]
    theirs_command = [tshark, "-n", "-r", file, *TSHARK[what]]
    ours: list[Run] = []
    theirs: list[Run] = []
    for index in range(runs + 1):
        pair = (run(ours_command), run(theirs_command))
        if index:  # the first pair warms the file cache
            ours.append(pair[0])
            theirs.append(pair[1])
    row("netdissect " + " ".join(OURS[what]), ours)
    row("tshark " + " ".join(TSHARK[what]), theirs)
    ratios = [b.cpu / a.cpu for a, b in zip(ours, theirs, strict=True)]
    walls = [b.wall / a.wall for a, b in zip(ours, theirs, strict=True)]
    print(
        f"{'ratio (tshark / netdissect)':<34} cpu {statistics.median(ratios):8.2f} x"
        f" ({min(ratios):.2f} to {max(ratios):.2f})   wall {statistics.median(walls):8.2f} x"
    )


def memory(files: list[str]) -> None:
    """Print the peak memory of `connections` on each file."""
    for file in files:
        size = Path(file).stat().st_size / 1e6
        command = [*NETDISSECT, *OURS["connections"], file]
        row(f"connections, {size:.0f} MB", [run(command)])
        print(f"{'':<34} all processes together {together(command) / 1024:7.1f} MiB")


def main() -> None:
    """Read the command line and run one comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=[*OURS, "help", "memory"])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    print(f"hot path {hot_path()}")
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()},"
          f" load {load}")  # fmt: skip
    if options.what == "help":
        row("netdissect --help", [run([*NETDISSECT, "--help"]) for _ in range(options.runs)])
    elif options.what == "memory":
        memory(options.files)
    else:
        paired(options.what, options.files[0], options.runs)


if __name__ == "__main__":
    main()
