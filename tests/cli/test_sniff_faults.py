"""What may go wrong while a capture runs: its file stays valid, and the terminal clean."""

from __future__ import annotations

import os
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

import console_docs
from livetraffic import BACKENDS, LIMIT_SECONDS, Pair, Sniff, needs_capture, payloads
from netdissect.capture import open_capture

LOSSY = console_docs.ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
SOME = [(number % 2, b"datagram %d" % number) for number in range(64)]
STARTED = b"capturing on "
LIVE = (sys.executable, "-m", "netdissect", "sniff")


def frames(path: Path) -> int:
    with open_capture(path) as reader:
        count = sum(map(len, reader.batches()))
        assert reader.damage is None, reader.damage
    return count


def _network_of_ones_own() -> bool:
    """Return whether a network namespace and a pair of interfaces in it can be made here."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    words = ["unshare", "-n", "ip", "link", "add", "game0", "type", "veth", "peer", "name", "game1"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _file_system_of_ones_own() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    words = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


# -- the end of a process --------------------------------------------------------------------------


@contextmanager
def capturing(backend: str, path: Path) -> Iterator[tuple[Pair, Sniff]]:
    """Capture into a file, and give control once SOME datagrams are shown."""
    with Pair() as pair, Sniff(
        "--backend", backend, "-f", pair.filter, "-w", str(path), "--all"
    ) as sniff:  # fmt: skip
        sniff.until(STARTED)
        pair.send(SOME)
        for _ in SOME:  # each is in the file before it is shown
            sniff.line()
        yield pair, sniff


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_killed_capture_leaves_a_valid_file_and_no_process(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    with capturing(backend, path) as (_, sniff):
        children = Path(f"/proc/{sniff.process.pid}/task/{sniff.process.pid}/children")
        below = [int(pid) for pid in children.read_text().split()]
        waits = [os.pidfd_open(pid) for pid in below]
        status, _, _ = sniff.ended(signal.SIGKILL)
    assert status == -signal.SIGKILL
    assert frames(path) == len(SOME)
    for wait in waits:
        assert select.select([wait], [], [], LIMIT_SECONDS)[0], "the capture program goes on"
        os.close(wait)


@pytest.mark.parametrize("backend", [each for each in BACKENDS if each.values[0] != "af_packet"])
def test_a_capture_ends_whose_keeper_was_killed(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    with capturing(backend, path) as (pair, sniff):
        kept = family(sniff.process.pid)
        keepers = [pid for pid, words in kept.items() if b"keeper.py" in words]
        programs = [os.pidfd_open(pid) for pid, words in kept.items() if words.startswith(b"/usr/")]
        assert programs
        for pid in keepers:
            os.kill(pid, signal.SIGKILL)
        # tcpdump changes its user, which frees it of the signal: it ends with its next packet.
        alone = backend == "tcpdump"
        status, _, _ = sniff.ended(signal.SIGINT if alone else None)
        pair.send(SOME)
    assert status == (0 if alone else 5)
    assert frames(path) == len(SOME)
    for program in programs:
        assert select.select([program], [], [], LIMIT_SECONDS)[0], "the capture program goes on"
        os.close(program)


def family(pid: int) -> dict[int, bytes]:
    """Return the words of each process below one."""
    found: dict[int, bytes] = {}
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        found |= {child: Path(f"/proc/{child}/cmdline").read_bytes(), **family(child)}
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_closed_output_ends_a_capture_and_its_file(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    with Pair() as pair, Sniff(
        "--backend", backend, "-f", pair.filter, "-w", str(path), "--all"
    ) as sniff:  # fmt: skip
        sniff.until(STARTED)
        sniff.process.stdout.close()
        sniff.process.stdout = None
        pair.send(SOME)
        _, said = sniff.process.communicate(timeout=LIMIT_SECONDS)
        sniff.process.stdout = open(os.devnull, "rb")  # noqa: SIM115, PTH123
    assert sniff.process.returncode == 0
    assert b"dropped by kernel" in said
    assert b"Traceback" not in said
    assert 0 < frames(path) <= len(SOME)


@pytest.mark.parametrize("backend", BACKENDS)
def test_its_time_being_over_ends_a_capture_under_traffic(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    with Pair() as pair, Sniff(
        "--backend", backend, "-f", pair.filter, "-w", str(path), "-a", "duration:0.4", "--all"
    ) as sniff:  # fmt: skip
        sniff.until(STARTED)
        while sniff.process.poll() is None:
            pair.send(SOME[:1])
            select.select([sniff.process.stdout], [], [], 0.01)
            os.read(sniff.process.stdout.fileno(), 1 << 16)
        status, _, said = sniff.ended()
    # A busy machine may lose what came last, and is told so.
    assert status == (6 if "not complete: " in said else 0), said
    assert f"{frames(path):,} packet" in said


# -- nowhere to write ------------------------------------------------------------------------------


@needs_capture
def test_a_file_that_may_not_grow_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    with Pair() as pair, Sniff(
        "-f", pair.filter, "-w", str(path), "--backend", "dumpcap", preexec_fn=limit
    ) as sniff:  # fmt: skip
        sniff.until(STARTED)
        pair.send([(0, bytes(100))] * 200)
        status, _, said = sniff.ended()
    assert status == 3
    assert "File too large; everything written before is intact" in said
    assert frames(path) < 200


@needs_capture
@pytest.mark.skipif(not _file_system_of_ones_own(), reason="takes root and unshare")
@pytest.mark.parametrize("name", ["out.pcapng", "out.pcap"])
def test_a_full_disk_leaves_a_valid_file(name: str, tmp_path: Path) -> None:
    """On a file system of 16 KiB; its file is copied out at the end."""
    disk, copy = tmp_path / "disk", tmp_path / name
    disk.mkdir()
    script = f'mount -t tmpfs -o size=16k none {disk}; "$@"; s=$?; cp {disk}/{name} {copy}; exit $s'
    with Pair() as pair, Sniff(
        "-f", pair.filter, "-w", str(disk / name), before=("unshare", "-m", "sh", "-c", script, "sh")
    ) as sniff:  # fmt: skip
        sniff.until(STARTED)
        pair.send([(0, bytes(500))] * 100)
        status, _, said = sniff.ended()
    assert status == 3
    assert "No space left on device; everything written before is intact" in said
    assert "Traceback" not in said
    assert 20 < frames(copy) < 32
    assert copy.stat().st_size <= 16 * 1024


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="takes /dev/full")
@pytest.mark.parametrize("words", [("-w", "/dev/full"), ("-w", "-"), ()])
def test_a_full_device_is_named_and_nothing_else_is_said(words: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        command = [*LIVE, "-r", str(LOSSY), *words]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    said = result.stderr.decode()
    assert result.returncode == 3
    assert "No space left on device" in said
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    assert all(word in said for word in words[1:] if word != "-")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="takes /dev/full")
def test_a_full_terminal_log_does_not_harm_the_file(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        command = [*LIVE, "-r", str(LOSSY), "-w", str(path)]
        status = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert status.returncode == 3
    assert frames(path) > 0


# -- a lost interface ------------------------------------------------------------------------------

_REMOVED = """
ip link set lo up
ip link add game0 type veth peer name game1
ip link set game1 up; ip link set game0 up
ip addr add 10.9.9.1/24 dev game0
"$@" & child=$!
read go
ip neigh add 10.9.9.2 lladdr 02:00:00:00:00:02 dev game0
for number in 1 2 3 4 5; do printf x > /dev/udp/10.9.9.2/9999; done
read go
ip link del game0
wait $child
"""


@pytest.mark.skipif(not _network_of_ones_own(), reason="takes root, unshare and veth")
@pytest.mark.skipif(shutil.which("bash") is None, reason="takes bash")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_removed_interface_ends_a_capture_and_its_file(backend: str, tmp_path: Path) -> None:
    """In a network of its own, with a pair of interfaces of which the script removes one."""
    path = tmp_path / "out.pcapng"
    with Sniff(
        "--backend", backend, "-w", str(path), "-f", "udp port 9999",
        before=("unshare", "-n", "bash", "-c", _REMOVED, "bash"),
        stdin=subprocess.PIPE, interface="game0",
    ) as sniff:  # fmt: skip
        sniff.until(STARTED)
        sniff.process.stdin.write(b"go\n")
        sniff.process.stdin.flush()
        limit = time.monotonic() + LIMIT_SECONDS
        while frames(path) < 5:
            assert time.monotonic() < limit, "nothing captured"
        sniff.process.stdin.write(b"go\n")
        sniff.process.stdin.close()
        sniff.process.stdin = None
        status, _, said = sniff.ended()
    assert status == 5
    assert "5 packets, 0 dropped by kernel" in said
    assert "capture on game0 ended: " in said
    assert frames(path) == 5


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="takes root and unshare"
)
def test_an_interface_that_goes_down_ends_a_capture_and_its_file(tmp_path: Path) -> None:
    """In a network of its own, whose loopback goes down."""
    path = tmp_path / "out.pcapng"
    script = 'ip link set lo up; "$@" & child=$!; read go; ip link set lo down; wait $child'
    with Sniff(
        "--backend", "af_packet", "-w", str(path),
        before=("unshare", "-n", "sh", "-c", script, "sh"), stdin=subprocess.PIPE,
    ) as sniff:  # fmt: skip
        sniff.until(STARTED)
        sniff.process.stdin.write(b"go\n")
        sniff.process.stdin.close()
        sniff.process.stdin = None
        status, _, said = sniff.ended()
    assert status == 5
    assert "capture on lo ended: Network is down" in said
    assert frames(path) == 0


# -- on a terminal ---------------------------------------------------------------------------------

in_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="takes tmux")
ENDS = {"C-c": 0, signal.SIGTERM: 0, signal.SIGHUP: 0, signal.SIGKILL: 137}
"""What ends a capture -> its exit status, as a shell says it."""


@needs_capture
@in_tmux
@pytest.mark.parametrize("end", ENDS)
def test_the_dashboard_gives_the_terminal_back(end: str | signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    if end == signal.SIGKILL and os.geteuid() == 0:
        pytest.skip("nobody, whom root becomes, may not run every Python")
    with Pair() as pair, Terminal(
        tmp_path, "-i", "lo", "--live", "-f", f"'{pair.filter}'", "-w", str(path)
    ) as terminal:  # fmt: skip
        terminal.shows("no connection of a known protocol yet")
        pair.send(payloads(LOSSY)[:200])
        terminal.shows("riptide")
        terminal.resize(70, 20)
        terminal.shows("q quit")
        assert max(map(len, terminal.picture().splitlines())) <= 70
        terminal.end(end)
        terminal.is_clean(ENDS[end])
        assert "q quit" not in terminal.picture()
    assert frames(path) == 200


@needs_capture
@in_tmux
@pytest.mark.parametrize("words", [["--live"], [], ["-w"]], ids=" ".join)
def test_a_capture_ends_with_its_terminal(words: list[str], tmp_path: Path) -> None:
    """Also where the shell keeps the hang-up to itself, as this one does."""
    path = tmp_path / "out.pcapng"
    with (
        Pair() as pair,
        Terminal(tmp_path, "-i", "lo", *words, *([str(path)] * ("-w" in words)), "-f", f"'{pair.filter}'")
        as terminal,
    ):  # fmt: skip
        terminal.shows("no connection of a known protocol yet" if "--live" in words else "capturing")
        pair.send(payloads(LOSSY)[:9])
        terminal.shows("riptide" if "--live" in words else "Welcome")
        child = terminal.child()
    gone(child)
    assert "-w" not in words or frames(path) == 9


@needs_capture
@in_tmux
@pytest.mark.parametrize("prefix", ["", "nohup"])
def test_a_capture_that_is_only_written_survives_its_terminal(prefix: str, tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    with Pair() as pair:
        words = ("-i", "lo", "-q", "-w", str(path), "-f", f"'{pair.filter}'")
        with Terminal(tmp_path, *words, before=f"cd {tmp_path}", prefix=prefix) as terminal:
            terminal.until(lambda: path.exists() and path.stat().st_size > 0)
            child = terminal.child()
        pair.send(payloads(LOSSY)[:9])
        time.sleep(0.5)
        os.kill(child, signal.SIGTERM)
        gone(child)
    assert frames(path) == 9


def gone(child: int) -> None:
    """Wait until a process has ended."""
    limit = time.monotonic() + LIMIT_SECONDS
    while (
        Path(f"/proc/{child}").exists()
        and "State:\tZ" not in Path(f"/proc/{child}/status").read_text()
    ):
        assert time.monotonic() < limit
        time.sleep(0.05)


@needs_capture
@in_tmux
@pytest.mark.parametrize("late", [False, True])
def test_the_dashboard_shows_what_matches(late: bool, tmp_path: Path) -> None:
    """With a filter on what comes later, records wait for it."""
    wanted = "msg.rtt > 0 and msg.type == Welcome" if late else "msg.type == Welcome"
    with Pair() as pair, Terminal(
        tmp_path, "-i", "lo", "--live", "-f", f"'{pair.filter}'", "-Y", f"'{wanted}'"
    ) as terminal:  # fmt: skip
        terminal.shows("no connection of a known protocol yet")
        pair.send(payloads(LOSSY)[:60])
        terminal.shows("riptide")
        terminal.shows(" 60 packets ")
        terminal.shows("Welcome")
        assert not re.search(" (Reliable|Notify) +[0-9]", terminal.picture())
        terminal.end("C-c")
        terminal.is_clean(0)


@in_tmux
def test_the_last_picture_stays_when_the_dashboard_is_gone(tmp_path: Path) -> None:
    with Terminal(tmp_path, "-r", str(LOSSY), "--live") as terminal:
        terminal.is_clean(0)
        picture = terminal.picture()
        assert re.search(r" 1 .*127\.0\.0\.1:\d+ +closed ", picture)
        assert "1,073 packets " in picture.splitlines()[0]
        assert "q quit" not in picture


@needs_capture
@in_tmux
def test_the_dashboard_gives_the_terminal_back_when_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    with Pair() as pair, Terminal(
        tmp_path, "-i", "lo", "--live", "-f", f"'{pair.filter}'", "-w", str(path),
        before="ulimit -f 8",
    ) as terminal:  # fmt: skip
        terminal.shows("no connection of a known protocol yet")
        pair.send(payloads(LOSSY)[:200])
        terminal.shows("everything written before is intact")
        terminal.is_clean(3)
    assert 0 < frames(path) < 200


@in_tmux
@pytest.mark.skipif(not _network_of_ones_own(), reason="takes root, unshare and veth")
@pytest.mark.parametrize("view", ["--live", "--all"])
def test_a_removed_interface_leaves_a_clean_terminal(view: str, tmp_path: Path) -> None:
    path, told, script = tmp_path / "out.pcapng", tmp_path / "told", tmp_path / "net.sh"
    os.mkfifo(told)
    script.write_text(
        "ip link add game0 type veth peer name game1\n"
        "ip link set game1 up; ip link set game0 up\n"
        f'(read go < {told}; ip link del game0) &\nexec "$@"\n'
    )
    with Terminal(
        tmp_path, "-i", "game0", view, "-w", str(path), prefix=f"unshare -n sh {script}"
    ) as terminal:
        terminal.shows("known protocol yet" if view == "--live" else "capturing on game0")
        told.write_text("go\n")
        terminal.shows("capture on game0 ended")
        terminal.is_clean(5)
    frames(path)  # whole, however few came


@needs_capture
@in_tmux
@pytest.mark.parametrize("end", ENDS)
def test_lines_follow_the_window_and_leave_it_clean(
    end: str | signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "out.pcapng"
    datagrams = payloads(LOSSY)
    with Pair() as pair, Terminal(
        tmp_path, "-i", "lo", "-f", f"'{pair.filter}'", "-w", str(path)
    ) as terminal:  # fmt: skip
        terminal.shows("capturing on lo")
        pair.send(datagrams[:40])
        terminal.shows("  40 ")
        for columns in (60, 150):
            terminal.resize(columns, 40)
            pair.send(datagrams[40:80] if columns == 60 else datagrams[80:120])
            terminal.shows("  80 " if columns == 60 else "  120 ")
            newest = terminal.picture("-J").rstrip().splitlines()[-20:]
            assert max(map(len, newest)) <= columns, "\n".join(newest)
        assert max(map(len, newest)) > 100, "the wider window is used"
        terminal.end(end)
        terminal.is_clean(ENDS[end])
    assert frames(path) == 120


class Terminal:
    """A terminal in tmux that runs one capture and then says its status; gone when the context is
    left.
    """

    def __init__(self, folder: Path, *words: str, before: str = "", prefix: str = "") -> None:
        self._tmux = ["tmux", "-f", os.devnull, "-S", str(folder / "socket")]
        self._folder = folder
        script = folder / "run.sh"
        script.write_text(
            f"unset COLUMNS LINES\necho $$ > {folder}/shell\ntrap : INT HUP\n({before}\nexec {' '.join([prefix, *LIVE, *words])})\n"
            f"echo $? > {folder}/status\nexec cat\n"
        )
        self._run("new-session", "-d", "-s", "t", "-x", "120", "-y", "40", f"sh {script}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._run("kill-server")

    def _run(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=False)
        return done.stdout

    def picture(self, *words: str) -> str:
        return self._run("capture-pane", "-p", *words, "-t", "t")

    def shows(self, text: str) -> None:
        self.until(lambda: text in self.picture("-J"))

    def resize(self, columns: int, rows: int) -> None:
        self._run("resize-window", "-t", "t", "-x", str(columns), "-y", str(rows))
        terminal = self._run("display-message", "-p", "-t", "t", "#{pane_tty}").strip()
        with open(terminal, "rb") as opened:  # noqa: PTH123
            self.until(lambda: os.get_terminal_size(opened.fileno()) == (columns, rows))

    def end(self, how: str | signal.Signals) -> None:
        if isinstance(how, str):
            self._run("send-keys", "-t", "t", how)
            return
        os.kill(self.child(), how)

    def child(self) -> int:
        """Return the process that the shell runs."""
        shell = (self._folder / "shell").read_text().strip()
        return int(Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0])

    def is_clean(self, status: int) -> None:
        """Check that the shell is back, on the normal screen, with a cursor and its echo."""
        self.until((self._folder / "status").exists)
        self.until(lambda: (self._folder / "status").read_text().strip() == str(status))
        flags = ("display-message", "-p", "-t", "t", "#{alternate_on} #{cursor_flag}")
        self.until(lambda: self._run(*flags).split() == ["0", "1"])
        self._run("send-keys", "-t", "t", "typed", "Enter")
        self.shows("typed\ntyped")

    def until(self, holds: Callable[[], bool]) -> None:
        limit = time.monotonic() + LIMIT_SECONDS
        while not holds():
            assert time.monotonic() < limit, self.picture()
            time.sleep(0.02)  # what is awaited needs the processor more
