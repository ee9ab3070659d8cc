"""Live capture on the loopback: whether anything is lost, and what the dashboard costs.

    python bench/live.py                      all of it, with every backend
    python bench/live.py loss --rate 20000 --seconds 10 --backend dumpcap
    python bench/live.py dashboard --rate 2000 --seconds 10

Needs the right to capture on `lo` and sends to 127.0.0.1 only. Datagrams are those of a real
capture, sent again between two sockets, so that they are recognised, decoded and shown. Prints
figures and the load of the machine; ends with 1 where a datagram is missing.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from netdissect.capture import open_capture
from netdissect.flow import Decapsulator

ROOT = Path(__file__).resolve().parents[1]
CAPTURE = ROOT / "captures" / "riptide" / "udp_2.2.1_seqwrap_clientleg.pcap"
BACKENDS = ("dumpcap", "tcpdump", "af_packet")
_START_SECONDS = 15


def payloads() -> list[tuple[int, bytes]]:
    """Return (0 from the client, 1 from the server; payload) of the capture's datagrams."""
    found: list[tuple[int, bytes]] = []
    first = None
    with open_capture(CAPTURE) as reader:
        for packet in Decapsulator().packets(reader):
            first = packet[3] if first is None else first
            found.append((int(packet[3] != first), packet[4]))
    return found


class Pair:
    """Two bound sockets that talk to each other."""

    def __init__(self) -> None:
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for one in self.sockets:
            one.bind(("127.0.0.1", 0))
        self.sockets[0].connect(self.sockets[1].getsockname())
        self.sockets[1].connect(self.sockets[0].getsockname())
        self.port = self.sockets[1].getsockname()[1]

    def send(self, datagrams: list[tuple[int, bytes]], count: int, rate: float) -> float:
        """Send `count` datagrams at `rate` a second; return the seconds it took."""
        begin = time.monotonic()
        sent = 0
        while sent < count:
            due = min(count, int((time.monotonic() - begin) * rate) + 1)
            for index in range(sent, due):
                side, octets = datagrams[index % len(datagrams)]
                self.sockets[side].send(octets)
            sent = due
            time.sleep(0.0005)
        return time.monotonic() - begin


def sniff(*words: str) -> list[str]:
    """Return the command that captures on the loopback."""
    return [sys.executable, "-m", "netdissect", "sniff", "-i", "lo", *words]


def started(process: subprocess.Popen[bytes]) -> None:
    """Wait for the line that says that the capture runs."""
    said = b""
    while b"capturing on" not in said:
        heard = process.stderr
        ready = heard is not None and select.select([heard], [], [], _START_SECONDS)[0]
        piece = os.read(heard.fileno(), 4096) if heard is not None and ready else b""
        if not piece:
            raise SystemExit(f"no capture: {said.decode()}")
        said += piece


def load() -> str:
    """Return the load of the machine in words."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def loss(backend: str, rate: float, seconds: float, folder: Path) -> bool:
    """Capture into a file at a rate and say what is missing in it."""
    datagrams, pair = payloads(), Pair()
    count = int(rate * seconds)
    path = folder / f"{backend}.pcapng"
    words = sniff("--backend", backend, "-f", f"udp port {pair.port}", "-w", str(path))
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    started(process)
    before = load()
    took = pair.send(datagrams, count, rate)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    with open_capture(path) as reader:
        written = sum(map(len, reader.batches()))
        drops = reader.info.drops
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{backend}: sent {count:,} in {took:.1f} s ({count / took:,.0f}/s), in the file "
        f"{written:,}, lost {count - written:,}, file says {drops} dropped; {before} before, "
        f"{load()} after; CPU of children so far {usage.ru_utime + usage.ru_stime:.1f} s"
    )
    print("    " + said.decode().strip().splitlines()[-1])
    return written == count


def dashboard(rate: float, seconds: float) -> bool:
    """Show the dashboard on a terminal of its own and say what it costs of a core."""
    datagrams, pair = payloads(), Pair()
    terminal, behind = pty.openpty()
    process = subprocess.Popen(
        sniff("--live", "-f", f"udp port {pair.port}"),
        stdin=behind, stdout=behind, stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "50"},
    )  # fmt: skip
    os.close(behind)
    started(process)
    reader = subprocess.Popen(
        ["cat"], stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    pictures = subprocess.Popen(
        ["grep", "-a", "-c", "Ctrl-C ends"], stdin=reader.stdout, stdout=subprocess.PIPE
    )
    pair.send(datagrams, int(rate), rate)  # imports and the first pictures are not counted
    used = _cpu_seconds(process.pid)
    took = pair.send(datagrams, int(rate * seconds), rate)
    share = (_cpu_seconds(process.pid) - used) / took
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    os.close(terminal)
    count = int(pictures.communicate()[0] or 0)
    print(
        f"dashboard: {share:.1%} of a core at {rate * seconds / took:,.0f} datagrams/s, "
        f"{count / (took + 1):.1f} pictures/s; {load()}"
    )
    print("    " + said.decode().strip().splitlines()[-1])
    return share < 0.30


def _cpu_seconds(pid: int) -> float:
    fields = re.sub(r"^.*\)", "", Path(f"/proc/{pid}/stat").read_text()).split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Run what is asked for and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("all", "loss", "dashboard"), default="all")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--backend", choices=BACKENDS)
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        if options.what in {"all", "loss"}:
            for backend in [options.backend] if options.backend else BACKENDS:
                good &= loss(backend, options.rate or 20_000, options.seconds, Path(folder))
    if options.what in {"all", "dashboard"}:
        good &= dashboard(options.rate or 2_000, options.seconds)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
