"""Measures `netdissect survey`: throughput by number of workers, cost of small captures, memory.

    python bench/survey.py --captures 8 --datagrams 200000 --small 500

Run it on an idle machine: other load makes the figure for several workers meaningless.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SMALL = HERE.parent / "captures" / "riptide" / "udp_2.2.1_reject_custom.pcap"


def make(folder: Path, captures: int, datagrams: int, small: int) -> tuple[Path, Path, Path]:
    """Write large captures, small ones, and one small one; return their folders."""
    big, little, one = (folder / name for name in ("big", "little", "one"))
    for each in (big, little, one):
        each.mkdir()
    template = folder / "template.pcap"
    command = [sys.executable, str(HERE / "make_capture.py"), "--protocol", "riptide"]
    subprocess.run(
        [*command, "--datagrams", str(datagrams), "--out", str(template)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for index in range(captures):
        different(template, big / f"{index}.pcap", index)
    for index in range(small):
        different(SMALL, little / f"{index}.pcap", index)
    different(SMALL, one / "0.pcap", small)
    return big, little, one


def different(source: Path, target: Path, number: int) -> None:
    """Copy a capture, and make its content unique: its last four bytes are a number."""
    data = source.read_bytes()
    target.write_bytes(data[:-4] + number.to_bytes(4, "big"))


def survey(folder: Path, out: Path, workers: int) -> tuple[float, float]:
    """Return the wall-clock and the CPU seconds of a survey."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    words = ["survey", str(folder), "--out", str(out), "--workers", str(workers), "-q"]
    subprocess.run([sys.executable, "-m", "netdissect", *words], check=True)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--captures", type=int, default=8)
    parser.add_argument("--datagrams", type=int, default=200_000)
    parser.add_argument("--small", type=int, default=500)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores, load {os.getloadavg()[0]:.1f} before")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        big, little, one = make(folder, options.captures, options.datagrams, options.small)
        start, start_cpu = survey(one, folder / "out-one", 1)
        print(f"start, one small capture, stop: {start:.1f} s, {start_cpu:.1f} CPU-s")
        alone = 0.0
        for workers in range(1, cores + 1):
            seconds, cpu = survey(big, folder / f"out-{workers}", workers)
            rate = options.captures * options.datagrams / (seconds - start)
            alone = alone or rate
            print(
                f"{workers} workers: {rate:,.0f} datagrams/s, "
                f"{100 * rate / alone / workers:.0f}% of {workers} times one; "
                f"{1e6 * cpu / options.captures / options.datagrams:.1f} µs of CPU each"
            )
        seconds, cpu = survey(little, folder / "out-little", cores)
        each = 1000 / options.small
        print(
            f"{options.small} captures of {SMALL.stat().st_size:,} bytes: "
            f"{(seconds - start) * each:.1f} ms each, "
            f"{(cpu - start_cpu) * each:.1f} ms of CPU"
        )
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"largest process: {peak:.0f} MiB")


if __name__ == "__main__":
    main()
