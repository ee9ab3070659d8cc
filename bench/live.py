"""Live capture on the loopback: whether anything is lost, and what the dashboard costs.

    python bench/live.py                              all of it, with every backend
    python bench/live.py loss --rate 100000 --seconds 30 --backend dumpcap
    python bench/live.py dashboard --rate 2000 --seconds 10
    python bench/live.py metrics --rate 20000 --seconds 10

Needs the right to capture on `lo` and sends to 127.0.0.1 only. Datagrams are those of a real
capture, sent again between two sockets, so that they are recognised, decoded and shown. A row says
what the sender really sent, in how many seconds: the rate that is asked for is reached only where
the machine has the time. Ends with 1 where a datagram is missing and nothing said so, or where one
is missing though the machine sent at the rate asked for.
"""

from __future__ import annotations

import argparse
import ctypes
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
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from netdissect.capture import open_capture
from netdissect.flow import Decapsulator

ROOT = Path(__file__).resolve().parents[1]
CAPTURE = ROOT / "captures" / "riptide" / "udp_2.2.1_seqwrap_clientleg.pcap"
BACKENDS = ("dumpcap", "tcpdump", "af_packet", "tshark")
RATES = (20_000, 50_000, 100_000, 200_000)
SHOWN = ("file", "lines", "dashboard")
"""What is done besides writing: nothing, lines to a pipe, the dashboard on a terminal."""
_START_SECONDS = 15
_BURST = 64
"""Datagrams of one system call at most."""
_CUT_SHORT = 6
_MODES = ("all", "loss", "dashboard", "metrics")
_REACHED = 0.95
"""Share of the rate asked for from which a sender counts as having reached it."""


def payloads() -> list[tuple[int, bytes]]:
    """Return (0 from the client, 1 from the server; payload) of the capture's datagrams."""
    found: list[tuple[int, bytes]] = []
    first = None
    with open_capture(CAPTURE) as reader:
        for packet in Decapsulator().packets(reader):
            first = packet[3] if first is None else first
            found.append((int(packet[3] != first), packet[4]))
    return found


class _Vector(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))


class _Message(ctypes.Structure):
    """struct mmsghdr of a connected socket: no address, no control data."""

    _fields_ = (
        ("name", ctypes.c_void_p), ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)), ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int), ("sent", ctypes.c_uint),
    )  # fmt: skip


class Pair:
    """Two bound sockets that talk to each other. Nobody reads: what was sent is what the system
    says it took, and what its receivers had no room for is captured all the same.
    """

    def __init__(self) -> None:
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for one in self.sockets:
            one.bind(("127.0.0.1", 0))
        self.sockets[0].connect(self.sockets[1].getsockname())
        self.sockets[1].connect(self.sockets[0].getsockname())
        self.port = self.sockets[1].getsockname()[1]
        self._library = ctypes.CDLL(None, use_errno=True)
        self._runs = _runs(payloads())

    def send(self, count: int, rate: float) -> tuple[int, float]:
        """Send `count` datagrams at `rate` a second; return how many the system took, and the
        seconds it took.
        """
        begin = time.monotonic()
        sent = at = 0
        while sent < count:
            due = min(count, int((time.monotonic() - begin) * rate) + 1)
            while sent < due:
                side, messages, size = self._runs[at]
                size = min(size, due - sent)
                done = self._library.sendmmsg(self.sockets[side].fileno(), messages, size, 0)
                if done < 0:
                    raise OSError(ctypes.get_errno(), "sendmmsg")
                sent += done
                at = (at + 1) % len(self._runs)
            time.sleep(0.0005)
        return sent, time.monotonic() - begin


def _runs(datagrams: list[tuple[int, bytes]]) -> list[tuple[int, ctypes.Array[_Message], int]]:
    """Return runs of datagrams that go the same way: (side, what `sendmmsg` takes, how many)."""
    runs: list[list[tuple[int, bytes]]] = []
    # In long runs: a system call for each would measure the sender.
    for side in (0, 1):
        one_way = [each for each in datagrams if each[0] == side]
        runs += [one_way[at : at + _BURST] for at in range(0, len(one_way), _BURST)]
    found = []
    for run in runs:
        messages = (_Message * len(run))()
        for message, (_, octets) in zip(messages, run, strict=True):
            message.vectors = ctypes.pointer(_Vector(octets, len(octets)))
            message.vector_count = 1
        found.append((run[0][0], messages, len(run)))
    return found


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


@dataclass(frozen=True, slots=True)
class Row:
    """One run."""

    backend: str
    shown: str
    rate: int
    sent: int
    seconds: float
    written: int
    not_shown: int
    status: int
    cpu_s: float
    said: str

    @property
    def good(self) -> bool:
        """Return whether nothing is missing, or it was said and the machine could not do it."""
        missing = self.sent - self.written
        reached = self.sent / self.seconds >= _REACHED * self.rate
        return not missing or (self.status == _CUT_SHORT and not reached)

    def __str__(self) -> str:
        return (
            f"{self.backend:<9} {self.shown:<9} {self.rate:>9,} {self.sent / self.seconds:>9,.0f} "
            f"{self.sent:>11,} {self.written:>11,} {self.sent - self.written:>10,} "
            f"{self.not_shown:>10,} {self.status:>6} {self.cpu_s:>6.1f}  {load()}"
        )


HEAD = (
    f"{'backend':<9} {'besides':<9} {'asked /s':>9} {'sent /s':>9} {'sent':>11} {'in file':>11} "
    f"{'missing':>10} {'not shown':>10} {'status':>6} {'CPU s':>6}"
)


def loss(backend: str, shown: str, rate: int, seconds: float, folder: Path) -> Row:
    """Capture into a file at a rate and return what became of the datagrams."""
    pair = Pair()
    path = folder / f"{backend}.pcapng"
    path.unlink(missing_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = sniff("--backend", backend, "-f", f"udp port {pair.port}", "-w", str(path))
    reader = terminal = None
    if shown == "dashboard":
        terminal, out = pty.openpty()
        words.append("--live")
        reader = subprocess.Popen(["cat"], stdin=terminal, stdout=subprocess.DEVNULL)
    else:
        out = os.open(os.devnull, os.O_WRONLY)
        words += ["-q"] if shown == "file" else []
        # Quiet leaves out the lines; what is said at the end is wanted, so it is asked of the file.
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "50"}
    process = subprocess.Popen(words, stdin=out, stdout=out, stderr=subprocess.PIPE, env=environ)
    os.close(out)
    if shown == "file":
        _grown(path)
    else:
        started(process)
    sent, took = pair.send(int(rate * seconds), rate)
    process.send_signal(signal.SIGINT)
    _, heard = process.communicate()
    if reader is not None and terminal is not None:
        os.close(terminal)
        reader.terminate()
        reader.wait()
    said = heard.decode().strip()
    with open_capture(path) as capture:
        written = sum(map(len, capture.batches()))
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime
    counted = re.search(r"([\d,]+) by netdissect", said)
    not_shown = int(counted[1].replace(",", "")) if counted else 0
    return Row(
        backend, shown, rate, sent, took, written, not_shown, process.returncode, cpu, said
    )  # fmt: skip


def _grown(path: Path) -> None:
    """Wait for the file of a quiet capture: it is made when the interface is open."""
    end = time.monotonic() + _START_SECONDS
    while not path.exists() or not path.stat().st_size:
        if time.monotonic() > end:
            raise SystemExit("no capture")
        time.sleep(0.01)
    time.sleep(0.2)


def dashboard(rate: float, seconds: float) -> bool:
    """Show the dashboard on a terminal of its own and say what it costs of a core."""
    pair = Pair()
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
    pair.send(int(rate), rate)  # imports and the first pictures are not counted
    used = _cpu_seconds(process.pid)
    _, took = pair.send(int(rate * seconds), rate)
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


def metrics(rate: int, seconds: float) -> bool:
    """Scrape as fast as it goes while datagrams pass; say how long a scrape takes, and whether each
    datagram was counted, or its loss was.
    """
    pair = Pair()
    words = sniff("-f", f"udp port {pair.port}", "--metrics", "127.0.0.1:0")
    words += ["-d", f"udp.port=={pair.port},riptide"]  # many of one side first are no proof of it
    with subprocess.Popen(words, stderr=subprocess.PIPE) as process:
        said = ""
        while not (found := re.search(r"http://\S+", said)) or "capturing on" not in said:
            line = process.stderr.readline().decode() if process.stderr is not None else ""
            if not line:
                raise SystemExit(f"no capture: {said}")
            said += line
        sender = ThreadPoolExecutor(1).submit(pair.send, int(rate * seconds), rate)
        took = [0.0]
        known = dropped = seen = least = 0.0
        series = 0
        end = time.monotonic() + seconds + _START_SECONDS
        while time.monotonic() < end and not (sender.done() and seen == sender.result()[0]):
            begin = time.monotonic()
            with urllib.request.urlopen(found[0], timeout=_START_SECONDS) as answer:  # noqa: S310
                lines = answer.read().decode().splitlines()
            took.append(time.monotonic() - begin)
            rows = [line for line in lines if not line.startswith("#")]
            known, dropped = (
                sum(float(row.rsplit(" ", 1)[1]) for row in rows if row.startswith(name))
                for name in ("netdissect_datagrams_total", "netdissect_dropped_packets_total")
            )
            seen = known + dropped
            if seen < least:
                print(f"metrics: counters went back from {least:,.0f} to {seen:,.0f}")
                return False
            least, series = seen, max(series, len(rows))
            time.sleep(0.05)
        sent, lasted = sender.result()
        for one in pair.sockets:
            one.close()
        process.send_signal(signal.SIGINT)
    print(
        f"metrics: {sent:,} datagrams at {sent / lasted:,.0f}/s, {known:,.0f} in figures of a "
        f"server, {dropped:,.0f} said to be dropped; {len(took) - 1} scrapes, the "
        f"slowest {1000 * max(took):.0f} ms, of {series} series at most; {load()}"
    )
    return seen == sent


def _cpu_seconds(pid: int) -> float:
    fields = re.sub(r"^.*\)", "", Path(f"/proc/{pid}/stat").read_text()).split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Run what is asked for and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=_MODES, default="all")
    parser.add_argument("--rate", type=int, action="append", help="repeatable")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--backend", choices=BACKENDS, action="append", help="repeatable")
    parser.add_argument("--shown", choices=SHOWN, action="append", help="repeatable")
    options = parser.parse_args()
    good = True
    if options.what in {"all", "loss"}:
        print(HEAD)
        with tempfile.TemporaryDirectory() as folder:
            for backend in options.backend or BACKENDS[:3]:
                for shown in options.shown or SHOWN[:2]:
                    for rate in options.rate or RATES:
                        row = loss(backend, shown, rate, options.seconds, Path(folder))
                        print(row, flush=True)
                        if not row.good:
                            print("    " + row.said.replace("\n", "\n    "))
                        good &= row.good
    if options.what in {"all", "dashboard"}:
        good &= dashboard((options.rate or [2_000])[0], options.seconds)
    if options.what in {"all", "metrics"}:
        good &= metrics((options.rate or [20_000])[0], options.seconds)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
