"""Measures `netdissect browse` in a real pseudo-terminal: first rows, the answer to a key while the
capture is loading, and memory until all of it is read, and until it is filtered.

    python bench/make_capture.py --protocol riptide --datagrams 1000000 --out big.pcap
    python bench/browse.py big.pcap --filter msg.resend
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from itertools import cycle
from pathlib import Path

KEYS = 100
QUIET_S = 0.05
"""A screen that sends nothing for so long is drawn."""
PAUSE_S = 0.1
TITLE = 400
"""Bytes before the names of the views in which the title says how far it has read."""


def begin(words: list[str], columns: int, rows: int) -> tuple[int, int]:
    """Start the program in a terminal of its own; return its process and its terminal."""
    pid, terminal = pty.fork()
    if not pid:
        os.environ["TERM"] = "xterm-256color"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.execv(sys.executable, [sys.executable, "-m", "netdissect", "browse", *words])  # noqa: S606
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    return pid, terminal


def begun(
    words: list[str], columns: int, rows: int, *, ended: bool = False
) -> tuple[int, int, float]:
    """Start the program; return its process, its terminal, and after how many seconds its first
    row stood there. With `ended`, it is ended then.

    pip compiles what it installs to byte code; where that was not done, the first start does it,
    and takes twice as long.
    """
    began = time.perf_counter()
    pid, terminal = begin(words, columns, rows)
    seen = b""
    while "▌".encode() not in seen and time.perf_counter() - began < 60:
        seen += os.read(terminal, 1 << 16)
    took = time.perf_counter() - began
    if ended:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return pid, terminal, took


def drawn(terminal: int, limit_s: float) -> bytes:
    """Return what comes until the screen is quiet."""
    found = b""
    while select.select([terminal], [], [], limit_s)[0]:
        found += os.read(terminal, 1 << 16)
        limit_s = QUIET_S
    return found


def memory(pid: int) -> int:
    """Return the most memory that the process has had, bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    return 0


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def latencies(terminal: int, key: bytes, count: int) -> list[float]:
    """Return how long each key waited for the first byte of its answer, seconds, sorted."""
    found = []
    for _ in range(count):
        drawn(terminal, PAUSE_S)
        began = time.perf_counter()
        os.write(terminal, key)
        select.select([terminal], [], [], 5)
        found.append(time.perf_counter() - began)
    return sorted(found)


def wait_until_read(terminal: int) -> None:
    """Wait until the title no longer says that the capture is being read. Keys, for which reading
    waits, are pressed only when the screen stays as it is.
    """
    seen = b""
    for key in cycle((b"1", b"2")):
        while found := drawn(terminal, 2):
            seen = (seen + found)[-(1 << 20) :]
        os.write(terminal, key)  # changes the title, which is drawn again
        seen = (seen + drawn(terminal, 5))[-(1 << 20) :]
        before, views, _ = seen.rpartition(b"1 Conn")
        if views and b"so far" not in before[-TITLE:]:
            return


def wait_until_filtered(terminal: int, text: str) -> None:
    """Filter, and wait for the message about how many datagrams match."""
    os.write(terminal, f"/{text}\r".encode())
    seen = b""
    while b"datagrams match" not in seen:
        seen = seen[-TITLE:] + drawn(terminal, 5)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--filter", help="use this filter in the end")
    parser.add_argument("--columns", type=int, default=160)
    parser.add_argument("--rows", type=int, default=50)
    given = parser.parse_args()
    begun([given.file], given.columns, given.rows, ended=True)  # compiles what is imported
    pid, terminal, took = begun([given.file], given.columns, given.rows)
    began = time.perf_counter() - took
    try:
        print(f"first rows {took:.2f} s, {cpu_s(pid):.2f} CPU-s", flush=True)
        os.write(terminal, b"2")
        for name, key in (("j", b"j"), ("PgDn", b"\x1b[6~")):
            found = latencies(terminal, key, KEYS)
            middle, most = found[KEYS // 2], found[KEYS * 95 // 100]
            said = f"median {1e3 * middle:.0f}, p95 {1e3 * most:.0f}, max {1e3 * found[-1]:.0f} ms"
            print(f"{name}: {said}", flush=True)
        wait_until_read(terminal)
        print(f"memory {memory(pid) / 1e6:.0f} MB after {time.perf_counter() - began:.0f} s")
        if given.filter:
            began = time.perf_counter()
            wait_until_filtered(terminal, given.filter)
            took = time.perf_counter() - began
            print(f"memory {memory(pid) / 1e6:.0f} MB with a filter, which took {took:.0f} s")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
