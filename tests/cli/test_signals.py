"""A command that is interrupted, whenever that is: its exit status, whole lines, no process left."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import pty
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

import forkserver
from fuzzing import free_target, server_command
from livetraffic import BACKENDS, needs_capture, payloads
from netdissect.capture import open_capture
from netdissect.cli import COMMANDS
from netdissect.cli.errors import EXIT, report_failure
from netdissect.system import interrupt
from netdissect.system.programs import find
from prefork import Prefork, Run

ROOT = Path(__file__).resolve().parents[2]
LOSSY = ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
LIMIT_S = 60
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER: whoever a command leaves becomes our child. Source: prctl(2)."""
_HANDLED = sum(1 << (number - 1) for number in SIGNALS)
_DROPPED = re.compile(rb"\b[1-9][0-9,]* (?:dropped )?by (?:kernel|netdissect)")
_PIPE_OCTETS = 1 << 16
"""What a pipe holds. Source: pipe(7)."""


def grown(path: Path, datagrams: int) -> Path:
    """Write a capture that holds another one again and again, each time later."""
    head, body = LOSSY.read_bytes()[:24], LOSSY.read_bytes()[24:]
    with path.open("wb") as file:
        file.write(head)
        count, later = 0, 0
        while count < datagrams:
            at = 0
            while at < len(body):
                seconds, micro, size, wire = struct.unpack_from("<IIII", body, at)
                file.write(struct.pack("<IIII", seconds + later, micro, size, wire))
                file.write(body[at + 16 : at + 16 + size])
                at += 16 + size
                count += 1
            later += 100
    return path


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return grown(tmp_path_factory.mktemp("signals") / "long.pcap", 2_000)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a capture for which several processes pay."""
    return grown(tmp_path_factory.mktemp("signals") / "large.pcap", 320_000)


@pytest.fixture(autouse=True)
def orphans() -> Iterator[None]:
    """See to it that a process that a command leaves is found, and fail where there is one."""
    if sys.platform != "linux":
        pytest.skip("only Linux tells whose processes are left")
    # `nohup` makes it ignored, which commands obey.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    library = ctypes.CDLL(None)
    library.prctl(_SUBREAPER, 1, 0, 0, 0)
    forkserver.python()  # stays with the tests
    before = children()
    yield
    end = time.monotonic() + LIMIT_S / 4
    while left := children() - before:
        for pid in left:
            with_zombies = os.waitpid(pid, os.WNOHANG)
            del with_zombies
        assert time.monotonic() < end, [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]
        time.sleep(0.01)
    library.prctl(_SUBREAPER, 0, 0, 0, 0)


def children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        found.update(map(int, (task / "children").read_text().split()))
    return found


def ready(process: subprocess.Popen[bytes] | Run) -> None:
    """Wait until the command has its signal handlers: the interpreter itself starts before."""
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return
        # nohup has one of them ignored.
        masks = re.findall(r"^Sig(?:Cgt|Ign):\t(\w+)$", status, re.MULTILINE)
        if masks and sum(int(mask, 16) & _HANDLED for mask in masks) == _HANDLED:
            return
        time.sleep(0.001)


def start(words: list[str], pool: Prefork | None) -> subprocess.Popen[bytes] | Run:
    if pool is not None:
        return pool.start(words)
    return subprocess.Popen(
        [sys.executable, "-m", "netdissect", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip


def interrupted(
    words: list[str], delay_s: float, number: int, pool: Prefork | None = None
) -> tuple[int, bytes, bytes]:
    """Run a command and send it a signal after a while; return how it ended and what it said."""
    with start(words, pool) as process:
        ready(process)
        time.sleep(delay_s)
        process.send_signal(number)
        out, said = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, said


def failure(folder: Path) -> str:
    """Write the folder of a failure that takes a while to send again; return its path."""
    found = folder / "failure"
    found.mkdir(exist_ok=True)
    facts = {"kind": "exit", "protocol": "riptide", "dialect": "riptide-2.2", "transport": "udp"}
    (found / "failure.json").write_text(json.dumps(facts))
    step = {"octets": "02", "type": "Connect", "sent": "02", "stage": "connected"}
    crash = {**step, "octets": "00" * 2000, "sent": "00" * 2000}
    (found / "steps.jsonl").write_text(f"{json.dumps(step)}\n" * 9 + json.dumps(crash) + "\n")
    return str(found)


def commands(capture: Path, folder: Path) -> dict[str, list[str]]:
    """Return a run of every command but `browse`; `connections` of several processes."""
    file = str(capture)
    rows = {
        "anomalies": ["--content"], "connections": ["--json"], "follow": ["1", "--json"],
        "info": [], "ladder": ["1"], "read": ["--json"], "show": ["1500"],
        "stats": ["--interval", "1s"], "timeline": ["--json"], "verify": [], "diagnose": [],
        "diff": [file], "merge": [file, "-w", str(folder / "both.pcapng")],
        "slice": ["--connection", "1", "-w", str(folder / "part.pcap")],
        "join": [file, "--json"], "report": ["-o", str(folder / "report.html")],
        "export": ["--pcapng-notes", str(folder / "noted.pcapng")],
    }  # fmt: skip
    found = {name: [name, file, *more] for name, more in rows.items()}
    found["lines"] = ["read", file]
    found["plot"] = ["plot", "rtt", file]
    found["survey"] = ["survey", file, "--out", str(folder / "dataset"), "--workers", "1"]
    found["doctor"] = ["doctor"]
    found["fields"] = ["fields"]
    found["anonymise"] = ["anonymise", file, "-o", str(folder / "public.pcap")]
    found["config"] = ["config", "show"]
    found["completion"] = ["completion", "bash"]
    found["decode"] = ["decode", "riptide", "--dialect", "2.2", "11 00 10 00 00"]
    found["encode"] = ["encode", "riptide", "Reliable", "sequence_id=7"]
    found["explain"] = ["explain"]
    found["man"] = ["man", "read"]
    found["new-protocol"] = ["new-protocol", "mygame", str(folder / "mygame")]
    found["protocols"] = ["protocols"]
    found["schema"] = ["schema"]
    found["sniff-file"] = ["sniff", "-r", file, "-w", str(folder / "out.pcapng")]
    found["sniff"] = ["sniff", "-i", "lo", "-f", "udp port 9", "-a", "duration:30"]
    for backend in WRITERS:
        out = str(folder / f"{backend}.pcapng")
        found[f"sniff-{backend}"] = [*found["sniff"], "--backend", backend, "-w", out, "--all"]
    target = free_target()
    found["fuzz"] = [
        "fuzz", "riptide", "--target", str(target), "--cases", "100000", "--rate", "0",
        "--out", str(folder / "run"), "--monitor", server_command("riptide", target),
    ]  # fmt: skip
    # The planted bug is what the last step of the failure makes the server die of.
    server = ["--target", str(target), "--monitor", server_command("riptide", target, "length")]
    found["replay"] = ["replay", failure(capture.parent), *server]
    found["minimise"] = ["minimise", failure(capture.parent), "--trials", "3", *server]
    found["send"] = ["send", "riptide", "Heartbeat", "ping_id=9", "--no-session", "--target", str(target)]
    return found


WRITERS = {str(each.values[0]): each.marks for each in BACKENDS}
"""What captures -> the mark that skips its tests where it cannot."""
ALONE = (*(name for name in COMMANDS if name != "browse"), "lines", "sniff-file")
NAMES = (*ALONE, *(pytest.param(f"sniff-{each}", marks=marks) for each, marks in WRITERS.items()))
LIVE = {"sniff", "sniff-file", *(f"sniff-{each}" for each in WRITERS)}
UNENDING = LIVE - {"sniff-file"} | {"fuzz"}
"""Commands that go on until somebody ends them."""
VARIES = {"fuzz", "replay", "minimise", "send", "doctor", "survey"}
"""Commands that do not say the same each time."""
FRESH = 25
"""Signals that are sent to a Python which has just begun to import the command."""
USUAL = {"replay": 7}
"""Commands that do not end with 0 when they are left alone."""
FEW = (
    "connections", "read", "timeline", "sniff", "fuzz", "join", "plot", "report", "export",
    "diagnose", "slice", "merge", "diff", "survey", "anonymise", "replay",
)  # fmt: skip
"""Commands of which one signal each is sent on every change."""


def clear(folder: Path) -> None:
    """Remove what a command has written: some do not write over it."""
    for left in folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()


def judge(
    name: str, words: list[str], whole: bytes, delay_s: float, folder: Path, number: int,
    pool: Prefork | None,
) -> None:  # fmt: skip
    clear(folder)
    status, out, said = interrupted(words, delay_s, number, pool)
    # On a busy machine, a live capture may have dropped packets.
    dropped = name in LIVE & UNENDING and status == EXIT.CUT_SHORT and _DROPPED.search(said)
    assert (
        status == 128 + number
        or (status == USUAL.get(name, 0) and (name in LIVE | VARIES or out == whole))
        or dropped
    ), (status, said)
    assert b"Traceback" not in said, said.decode()
    assert b"fatal" not in said
    assert out in {b"", whole} or out.endswith(b"\n"), out[-200:]
    if name not in LIVE | VARIES:
        assert whole.startswith(out)
    for path in folder.glob("*.pcap*"):
        if path.stat().st_size:
            with open_capture(path) as reader:
                assert sum(map(len, reader.batches())) == reader.info.frames
                assert reader.damage is None, (path, reader.damage)
    if "--json" in words:
        for line in out.splitlines():
            json.loads(line)


def whole_output(name: str, words: list[str], pool: Prefork | None) -> tuple[bytes, float]:
    """Return what a command prints when it is left alone, and how long that takes, seconds."""
    if name in UNENDING:
        return b"", 2.0
    begin = time.monotonic()
    with start(words, pool) as process:
        ready(process)
        begin = time.monotonic()
        out, _ = process.communicate(timeout=10 * LIMIT_S)
    assert process.returncode == USUAL.get(name, 0)
    return out, time.monotonic() - begin


def many(name: str, capture: Path, folder: Path, count: int) -> None:
    if name == "verify" and find("tshark") is None:
        pytest.skip("takes tshark")
    words = commands(capture, folder)[name]
    chance = random.Random(name)
    with (
        traffic() if name in LIVE & UNENDING else nullcontext(),
        nullcontext() if count <= FRESH else Prefork(ROOT) as prefork,
    ):
        for pool, signals in ((None, min(count, FRESH)), (prefork, count - FRESH)):
            clear(folder)
            whole, takes_s = whole_output(name, words, pool) if signals > 0 else (b"", 0)
            for _ in range(signals):
                number = chance.choice(SIGNALS)
                judge(name, words, whole, chance.uniform(0, takes_s), folder, number, pool)


@contextmanager
def traffic() -> Iterator[None]:
    """Send what the live command captures, all the time."""
    ended = Event()

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not ended.is_set():
                for _, octets in payloads(LOSSY):
                    sender.sendto(octets, ("127.0.0.1", 9))
                    ended.wait(0.0005)

    thread = Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_every_command_is_signalled(capture: Path, tmp_path: Path) -> None:
    """`browse` takes a terminal and has tests of its own."""
    assert set(commands(capture, tmp_path)) == {*ALONE, *(f"sniff-{each}" for each in WRITERS)}


@needs_capture
@pytest.mark.parametrize("name", FEW)
def test_a_signal_ends_a_command_with_a_whole_line(
    name: str, capture: Path, tmp_path: Path
) -> None:
    many(name, capture, tmp_path, 1)


@needs_capture
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_two_hundred_signals(name: str, capture: Path, tmp_path: Path) -> None:
    many(name, capture, tmp_path, 200)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_workers_end_with_their_command(number: int, large: Path) -> None:
    words = ["connections", str(large), "--json"]
    chance = random.Random(number)
    for _ in range(10):
        status, _, said = interrupted(words, chance.uniform(0.2, 3), number)
        assert status == (-number if number == signal.SIGKILL else 128 + number), said


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("signals", "pause_s"), [(1, 0), (2, 0), (1, 1.5 * interrupt.PATIENCE_S)])
def test_what_waits_for_its_reader_is_not_cut_by_a_signal(
    unbuffered: str, signals: int, pause_s: float
) -> None:
    """Python loses the rest of a text whose write ends with an exception."""
    with subprocess.Popen(
        [sys.executable, "-m", "netdissect", "schema"],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        limit = time.monotonic() + LIMIT_S
        while unread(process.stdout.fileno()) < _PIPE_OCTETS:
            assert time.monotonic() < limit
            time.sleep(0.01)
        for number in SIGNALS[:signals]:
            process.send_signal(number)
            time.sleep(0.1)
        time.sleep(pause_s)
        out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + signal.SIGINT
    assert len(out) > _PIPE_OCTETS
    assert out.endswith(b"}\n")


def test_a_signal_ends_what_nobody_reads() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "netdissect", "schema"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        while unread(process.stdout.fileno()) < _PIPE_OCTETS:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 128 + signal.SIGTERM


def unread(descriptor: int) -> int:
    """Return how many bytes wait in a pipe."""
    return struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]


def test_a_command_that_waits_for_its_input_ends_at_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "netdissect", "connections", "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(LOSSY.read_bytes()[:2000])
        process.stdin.flush()
        ready(process)
        time.sleep(0.3)
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_S)
    assert time.monotonic() - begin < 5
    assert process.returncode in {0, 143}


RAISES = """
import random, signal, sys, time
from netdissect import analyze

class Stop(BaseException):
    # No Exception: that would be taken for a fault of a protocol, reported and passed over.
    pass

def handler(*_):
    raise Stop

signal.signal(signal.SIGALRM, handler)
chance, stopped = random.Random(1), 0
for _ in range(int(sys.argv[2])):
    try:
        # Once more after two seconds: what is raised within a callback of Python's own, such as that
        # of the lock of an import, Python drops.
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0005, 0.04), 2)
        while True:
            analyze(sys.argv[1])
    except Stop:
        signal.setitimer(signal.ITIMER_REAL, 0)
        stopped += 1
print(stopped)
"""


def raises(path: Path, count: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", RAISES, str(path), str(count)],
        capture_output=True, check=False, timeout=10 * LIMIT_S,
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, b"%d\n" % count), run.stderr.decode()


def test_a_handler_of_a_library_user_may_raise(capture: Path) -> None:
    raises(capture, 50)
    # Pauses of seconds, which periods of timers are compared with.
    raises(ROOT / "captures" / "knet" / "udp_burst_acks.pcap", 100)


@pytest.mark.slow
def test_a_handler_may_raise_a_thousand_times(capture: Path) -> None:
    raises(capture, 1000)
    for path in sorted((ROOT / "captures").glob("*/*.pcap*"))[::5]:
        raises(path, 50)


def browsing(
    capture: Path, delay_s: float, number: int, pool: Prefork | None
) -> tuple[int, bytes, bool]:
    """Signal `browse` in a pseudo-terminal; return its status, its last output and whether the
    terminal is again as it was.
    """
    ours, theirs = pty.openpty()
    usual = termios.tcgetattr(theirs)
    words = ["browse", str(capture)]
    seen = bytearray()

    def drain() -> None:
        with suppress(OSError):
            while octets := os.read(ours, 65_536):
                seen.extend(octets)

    with pool.start(words, theirs) if pool else subprocess.Popen(
        [sys.executable, "-m", "netdissect", *words], stdin=theirs, stdout=theirs, stderr=theirs,
        cwd=ROOT, start_new_session=True, env={**os.environ, "TERM": "xterm-256color"},
    ) as process:  # fmt: skip
        reader = Thread(target=drain, daemon=True)
        reader.start()
        ready(process)
        time.sleep(delay_s)
        process.send_signal(number)
        status = process.wait(LIMIT_S)
    restored = termios.tcgetattr(theirs)[3] == usual[3]
    os.close(theirs)
    reader.join(LIMIT_S)
    os.close(ours)
    return status, bytes(seen), restored


def browse_signalled(capture: Path, count: int, pool: Prefork | None = None) -> None:
    chance = random.Random("browse")
    for _ in range(count):
        number = chance.choice(SIGNALS)
        longest_s = 4 if pool is None else 2
        status, out, restored = browsing(capture, chance.uniform(0, longest_s), number, pool)
        assert status == 128 + number, (number, status, out[-400:])
        assert b"Traceback" not in out, out[-2000:]
        assert restored
        # The other screen is left again, if it was entered, and the mouse is let go.
        assert out.count(b"\x1b[?1049h") == out.count(b"\x1b[?1049l")
        assert out.count(b"\x1b[?1000h") <= out.count(b"\x1b[?1000l")


def test_a_signal_leaves_the_terminal_of_browse_as_it_was(capture: Path) -> None:
    browse_signalled(capture, 3)


@pytest.mark.slow
def test_two_hundred_signals_to_browse(capture: Path) -> None:
    browse_signalled(capture, FRESH)
    with Prefork(ROOT) as pool:
        browse_signalled(capture, 200 - FRESH, pool)


def test_browse_ends_with_its_terminal_whoever_hears_the_hang_up(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    # A shell that leads the session: it alone hears that the terminal was closed.
    status = tmp_path / "status"
    line = f"exec <{os.ttyname(theirs)}; trap : HUP; '{sys.executable}' -m netdissect browse '{LOSSY}'; echo $? >'{status}'"
    with subprocess.Popen(
        ["sh", "-c", line], stdin=theirs, stdout=theirs, stderr=theirs,
        cwd=ROOT, start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    ) as shell:  # fmt: skip
        os.close(theirs)
        seen = b""
        while b"\x1b[?1049h" not in seen:
            seen += os.read(ours, 65_536)
        os.close(ours)
        shell.wait(LIMIT_S)
    assert status.read_text() == "129\n"


def test_nohup_is_obeyed() -> None:
    with subprocess.Popen(
        ["nohup", sys.executable, "-m", "netdissect", "connections", "-", "--json"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    ) as process:  # fmt: skip
        ready(process)
        time.sleep(0.3)
        process.send_signal(signal.SIGHUP)
        out, said = process.communicate(LOSSY.read_bytes(), timeout=LIMIT_S)
    assert process.returncode == 0, said
    assert json.loads(out)["connection"] == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MemoryError(), 1),
        (OSError(errno.ENOMEM, "Cannot allocate memory", "in.pcap"), 3),
        (ImportError("x.so: failed to map segment from shared object"), 1),
        (ImportError("x.so: cannot allocate memory in static TLS block"), 1),
    ],
    ids=["python", "system", "library", "thread"],
)
def test_a_lack_of_memory_is_named(
    error: Exception, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_failure(error, debug=False) == status
    said = capsys.readouterr().err
    assert said == "netdissect: out of memory; if a limit is set (ulimit -v), 200 MB do for most captures\n"


def test_a_signal_while_python_shuts_down_changes_nothing() -> None:
    """A thread that is left, such as one of Dask's, took it, with the handler of the system."""
    code = """
import ctypes, threading
from netdissect.system import interrupt
interrupt.install()
threading.Thread(target=threading.Event().wait, daemon=True).start()
library = ctypes.CDLL(None)
library.__cxa_atexit(library.getchar, None, None)  # waits when the interpreter is gone
interrupt.ending()
print("done", flush=True)
interrupt.ended(0)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0


def test_a_lack_of_memory_to_begin_with_is_named() -> None:
    """The loader says so before anything of the command is there."""
    words = "raise ImportError('x.so: failed to map segment from shared object')"
    code = f"""
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "netdissect.cli": {words}
sys.meta_path.insert(0, Finder())
from netdissect.__main__ import run
run()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("netdissect: out of memory; ")
    assert done.stderr.count("\n") == 1


def test_what_python_makes_of_an_interruption_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Before 3.12, what is raised while a class gets its names comes as the cause of another."""
    made = RuntimeError("Error calling __set_name__ on 'Field' instance")
    made.__cause__ = interrupt.Interrupted()
    assert report_failure(made, debug=False) == interrupt.status()
    assert capsys.readouterr().err.strip() == "netdissect: interrupted"
