"""What watches the target: its process, its log, its memory.

Whether it answers is asked by the engine, for every target.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import time
from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from netdissect.fuzz.crashes import Crash, CrashReader, without_numbers
from netdissect.fuzz.drivers import Driver
from netdissect.fuzz.folder import open_new
from netdissect.fuzz.target import Journal, Target
from netdissect.model.errors import UsageError, reason
from netdissect.model.text import quoted
from netdissect.system.interrupt import undisturbed

__all__ = [
    "NO_ANSWER",
    "CpuMonitor",
    "LatencyMonitor",
    "LogMonitor",
    "MemoryMonitor",
    "Monitor",
    "Monitors",
    "ProcessMonitor",
    "Verdict",
    "Watched",
]

NO_ANSWER = "no-answer"
"""Kind of failure of a target that says nothing more."""
TAIL_OCTETS = 64 * 1024
"""Bytes of a log that a failure keeps."""
_STOP_SECONDS = 3.0
"""Time that a process has to end after SIGTERM."""
_MOMENT = 0.5
"""Time that it has after SIGTERM also where the run is over."""
EXIT_SECONDS = 2.0
"""Time that a process has to end after it was found silent: writing a dump takes a while."""
_LINE_LIMIT = 1 << 16
_MEBI = 1 << 20
_BEFORE, _BEHIND = 2, 60
"""Lines around a line that matches in which a trace is looked for."""
_READ_OCTETS = 1 << 20
"""Bytes of output that are read at once."""
_TRACING = {"UBSAN_OPTIONS": "print_stacktrace=1", "RUST_BACKTRACE": "1", "PYTHONFAULTHANDLER": "1"}
"""What makes programs print traces, where the user's environment says nothing else."""
_QUIET_SECONDS = 1.0
"""Silence after which a trace counts as complete."""
_NAMES_SECONDS = 10.0
"""The same for a sanitizer, which first reads all that the program's debug information says."""
_TURN_SECONDS = 0.02  # between two looks at what a process prints
_IN_A_ROW = 3
"""Measurements on end that have to be beyond a limit: one alone may be this machine's fault."""
_CPU_WINDOW = 1.0
"""Seconds over which the use of the processor is measured."""
_CPU_FIELDS = (13, 14)
"""utime and stime, counted from 0. Source: proc(5)."""
_LAST_WORDS = 8 * 1024
"""Bytes of output at most between a trace and the end of the process that it explains."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A failure of the target."""

    kind: str
    """`exit`, `report` (a trace of a process that goes on), `rule` (an answer that breaks the
    protocol's rules), `log`, `memory`, `cpu`, `latency` or `no-answer`."""
    detail: str
    """One sentence: what was seen."""
    place: str = ""
    """What tells it from other failures: the fault and where it happened, or how the process ended;
    empty where the sentence is all that is known."""

    @property
    def signature(self) -> str:
        """Return what equal failures have in common."""
        return f"{self.kind}: {self.place or without_numbers(self.detail)}"

    @property
    def fatal(self) -> bool:
        """Return whether the target has to be started anew."""
        return self.kind not in ("report", "rule")


class Watched(Protocol):
    """What is watched, as far as monitors ask: a `Watch`."""

    driver: type[Driver]
    dialect: str
    target: Target
    journal: Journal
    timed: list[Callable[[float], None]]


class Monitor(ABC):  # noqa: B024 - every method has a default: a monitor does what it can
    """One watcher."""

    def start(self) -> None:  # noqa: B027 - nothing to do for most
        """Begin to watch; called before the first case and after every failure."""

    def settled(self) -> None:  # noqa: B027 - nothing to do for most
        """Take note that the target has started up: it lets sessions in."""

    def check(self) -> Verdict | None:
        """Return the failure seen since the last call, None where all is well."""
        return None

    def attach(self, watch: Watched) -> None:  # noqa: B027 - nothing to do for most
        """Get to know what is watched; called once, before `start`."""

    def log_tail(self) -> bytes:
        """Return the end of the target's log, if this monitor knows one."""
        return b""

    def stop(self) -> None:  # noqa: B027 - nothing to do for most
        """End the watch, and the process if this monitor started it."""

    def close(self) -> None:  # noqa: B027 - nothing to do for most
        """Let go of files; nothing is watched after that."""


class ProcessMonitor(Monitor):
    """Runs the target, sees it exit, and starts it again."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        """Prepare to run `command`, its output going to the file `log`."""
        self.command = list(command)
        self.log = log
        self._log: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        """How often the process was started."""
        self.exit_seconds = EXIT_SECONDS
        """Time that it has to end after it was found silent."""
        self.end = math.inf
        """Monotonic time after which it is not waited for any more."""
        self._crashes = CrashReader()
        self._at = 0
        self._found: list[Crash] = []
        self._latest: tuple[Crash, int] | None = None
        self._survives = False
        self._grew = 0.0
        self.environment: dict[str, str] = {}
        """Variables that the process is given besides ours."""

    @property
    def pid(self) -> int | None:
        """Return the process id, None while it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process unless it runs.

        Raises:
            UsageError: the command cannot be run.
        """
        if self._process is not None and self._process.poll() is None:
            return
        try:
            if self._log is None:
                self._log = open_new(self.log)
        except OSError as error:
            raise UsageError(f"cannot make {self.log}: {error.strerror}") from error
        self._at = os.fstat(self._log).st_size
        try:
            with undisturbed():
                self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=subprocess.STDOUT,
                    env={**_TRACING, **os.environ, **self.environment},
                )
        except OSError as error:
            raise UsageError(f"cannot run {quoted(self.command[0])}: {error.strerror}") from error
        self._crashes, self._found, self._latest = CrashReader(), [], None
        self.starts += 1

    def check(self) -> Verdict | None:
        """Return an `exit` verdict when the process has ended, `report` for a trace of one that
        goes on; one a call.
        """
        if self._process is None:
            return None
        ended = self._process.poll() is not None
        self._read(final=ended)
        # Meanwhile it answers nothing, which is not what is wrong with it.
        while not (ended or self._survives) and (crash := self._crashes.open) and crash.ends:
            ended = self._wait(_TURN_SECONDS)
            self._read(final=ended or self._left() <= 0)
        # A trace that ends a process is printed before the end: wait, so that both are one
        # failure.
        if not (ended or self._survives) and (ends := [one for one in self._found if one.ends]):
            # A sanitizer goes on with the stacks of who gave the memory, and who freed it.
            named = any(one.looks_up for one in ends)
            self._survives = not self._wait(_NAMES_SECONDS if named else self.exit_seconds)
            return self.check()
        # Of a process that has ended, the last trace is the reason, and told with its exit.
        if len(self._found) > ended:
            crash = self._found.pop(0)
            return Verdict("report", crash.text, crash.kind)
        return self._exit() if ended else None

    def died(self) -> Verdict | None:
        """Return the same, waiting a moment for a process that is about to end."""
        if self._process is not None:
            self._wait(self.exit_seconds)
        return self.check()

    def _wait(self, seconds: float) -> bool:
        """Give the process time to end; return whether it has."""
        if self._process is not None:
            try:
                self._process.wait(min(seconds, max(0.0, self._left())))
            except subprocess.TimeoutExpired:
                return False
        return True

    def _left(self) -> float:
        return self.end - time.monotonic()

    def _read(self, *, final: bool) -> None:
        """Look for traces in what was printed since the last time."""
        try:
            with self.log.open("rb") as log:
                log.seek(self._at)
                new = log.read(_READ_OCTETS)
                while final and (more := log.read(_READ_OCTETS)):
                    # Only the end tells why it ended.
                    self._at += len(new)
                    new = more
        except OSError:
            return
        self._at += len(new)
        now = time.monotonic()
        self._grew = now if new else self._grew
        # Finding the names of a stack takes time: a trace goes on until nothing was added for long.
        crash = self._crashes.open
        quiet = _NAMES_SECONDS if crash is not None and crash.looks_up else _QUIET_SECONDS
        closed = final or now - self._grew > quiet
        for crash in self._crashes.feed(new, final=closed):
            self._latest = (crash, self._at)
            if crash.counts or final:
                self._found.append(crash)

    def _exit(self) -> Verdict | None:
        """Return how the process ended, and why if it said so."""
        if self._process is None or self._process.returncode is None:
            return None
        how = _how(self._process.returncode)
        crash = self._found.pop(0) if self._found else None
        if crash is None and self._latest is not None:
            latest, at = self._latest
            crash = latest if self._at - at <= _LAST_WORDS else None
        if crash is not None:
            return Verdict("exit", f"{how}: {crash.text}", crash.kind)
        return Verdict("exit", f"{how}{_last_line(self.log_tail())}", how)

    def printed(self, at: int, limit: int) -> bytes:
        """Return up to `limit` bytes of the output of all processes so far, from `at` on."""
        return b"" if self._log is None else os.pread(self._log, limit, at)

    def log_tail(self) -> bytes:
        """Return the end of the process's output."""
        return _tail(self.log)

    def stop(self) -> None:
        """End the process: SIGTERM, and SIGKILL when that does not help."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(min(_STOP_SECONDS, max(_MOMENT, self._left())))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            os.close(self._log)
            self._log = None


class LogMonitor(Monitor):
    """Looks for a pattern in what is appended to a log file."""

    def __init__(self, path: Path, pattern: str) -> None:
        """Compile the pattern.

        Raises:
            UsageError: it is no regular expression.
        """
        try:
            self._pattern = re.compile(os.fsencode(pattern))
        except (re.error, OverflowError, RecursionError, UnicodeEncodeError) as error:
            raise UsageError(f"log pattern {quoted(pattern)}: {reason(error)}") from error
        self.path = path
        self._at = 0
        self._rest = b""

    def start(self) -> None:
        """Ignore what the file holds already."""
        self._at = self.path.stat().st_size if self.path.exists() else 0
        self._rest = b""

    def check(self) -> Verdict | None:
        """Return a `log` verdict for the first new line that matches."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._at:
                    # Begun anew: by a rotation, or by a target that was started again.
                    self._at, self._rest = 0, b""
                file.seek(self._at)
                new = file.read(TAIL_OCTETS)
        except OSError:
            return None
        self._at += len(new)
        *lines, rest = (self._rest + new).split(b"\n")
        self._rest = rest[-_LINE_LIMIT:]
        for at, line in enumerate(lines):
            if self._pattern.search(line):
                around = b"\n".join(lines[max(0, at - _BEFORE) : at + _BEHIND]) + b"\n"
                crash = next(iter(CrashReader().feed(around, final=True)), None)
                place = "" if crash is None else crash.kind
                return Verdict("log", line.decode("utf-8", "replace")[:400], place)
        return None

    def log_tail(self) -> bytes:
        """Return the end of the log."""
        return _tail(self.path)


class MemoryMonitor(Monitor):
    """Watches the resident memory of a process grow."""

    def __init__(self, growth_mib: int, process: ProcessMonitor | int) -> None:
        """Watch a process that another monitor runs, or the one with a given id."""
        self._limit = growth_mib * _MEBI
        self._process = process
        self._base: int | None = None

    def start(self) -> None:
        """Measure anew, once the target has started up: that alone takes memory."""
        self._base = None

    def settled(self) -> None:
        """Measure what the growth is counted from."""
        # Only once: sessions let in later would hide what it has grown since.
        if self._base is None:
            self._base = self._resident()

    def check(self) -> Verdict | None:
        """Return a `memory` verdict when the process has grown by more than the limit."""
        now = self._resident()
        if now is None or self._base is None or now - self._base <= self._limit:
            return None
        return Verdict("memory", f"resident memory grew by {(now - self._base) // _MEBI} MiB")

    def _resident(self) -> int | None:
        pid = _pid(self._process)
        return None if pid is None else resident_octets(pid)


class CpuMonitor(Monitor):
    """Watches how much of one processor a process takes, in windows of a second."""

    def __init__(self, percent: int, process: ProcessMonitor | int) -> None:
        """Watch a process that another monitor runs, or the one with a given id."""
        self._limit = percent
        self._process = process
        self._last: tuple[int, float, float] | None = None
        self._over = 0

    def settled(self) -> None:
        """Begin to measure: starting up takes time of its own."""
        self._last, self._over = None, 0

    def check(self) -> Verdict | None:
        """Return a `cpu` verdict when the process was above the limit in three windows on end."""
        pid, now = _pid(self._process), time.monotonic()
        used = None if pid is None else cpu_seconds(pid)
        if pid is None or used is None:
            self._last = None
        elif self._last is None or self._last[0] != pid:
            self._last, self._over = (pid, now, used), 0
        elif now - self._last[1] >= _CPU_WINDOW:
            share = 100 * (used - self._last[2]) / (now - self._last[1])
            self._last = (pid, now, used)
            self._over = self._over + 1 if share > self._limit else 0
            if self._over >= _IN_A_ROW:
                self._over = 0
                text = f"took {share:.0f}% of a processor, more than {self._limit}%"
                return Verdict("cpu", text, f"above {self._limit}%")
        return None


class LatencyMonitor(Monitor):
    """Watches how long the target takes to answer what a session asks in between."""

    def __init__(self, milliseconds: int) -> None:
        self._limit = milliseconds
        self._over: list[float] = []

    def attach(self, watch: Watched) -> None:
        """Be told of answers."""
        watch.timed.append(self._answered)

    def start(self) -> None:
        """Forget the process before."""
        self._over.clear()

    def _answered(self, seconds: float) -> None:
        if 1000 * seconds > self._limit:
            self._over.append(seconds)
        # Three stay until somebody asks.
        elif len(self._over) < _IN_A_ROW:
            self._over.clear()

    def check(self) -> Verdict | None:
        """Return a `latency` verdict when three answers on end came too late."""
        if len(self._over) < _IN_A_ROW:
            return None
        slowest = 1000 * max(self._over)
        self._over.clear()
        text = f"answered after {slowest:.0f} ms, later than {self._limit} ms"
        return Verdict("latency", text, f"later than {self._limit} ms")


class ExistingProcessMonitor(Monitor):
    """Sees a process end that somebody else started."""

    def __init__(self, pid: int) -> None:
        """Watch the process with this id."""
        self.pid = pid

    def check(self) -> Verdict | None:
        """Return an `exit` verdict when there is no such process any more."""
        if resident_octets(self.pid) is None:
            return Verdict("exit", "the watched process is gone")
        return None


class Monitors:
    """All watchers of one run."""

    def __init__(self, monitors: Sequence[Monitor] = ()) -> None:
        self._all = list(monitors)
        self.process = next((each for each in self._all if isinstance(each, ProcessMonitor)), None)
        """The monitor that runs the target, None where the user runs it."""

    def attach(self, watch: Watched) -> None:
        """Tell all what is watched."""
        for monitor in self._all:
            monitor.attach(watch)

    def start(self) -> None:
        """Start all, the process first."""
        for monitor in self._all:
            monitor.start()

    def settled(self) -> None:
        """Tell all that the target lets sessions in."""
        for monitor in self._all:
            monitor.settled()

    def check(self, *, gone: bool = False) -> Verdict | None:
        """Return the first failure seen.

        Args:
            gone: nobody listens at the target's port any more: give its process time to end.
        """
        if gone and self.process is not None:
            verdict = self.process.died()
            if verdict is not None:
                return verdict
        return next((found for each in self._all if (found := each.check()) is not None), None)

    def log_tail(self) -> bytes:
        """Return the end of the target's log."""
        return next((tail for tail in (each.log_tail() for each in self._all) if tail), b"")

    def restart(self) -> bool:
        """Start the target anew; return False where nobody here can."""
        if self.process is None:
            return False
        self.process.stop()
        self.start()
        return True

    def stop(self) -> None:
        """Stop all for good."""
        for monitor in reversed(self._all):
            monitor.stop()
            monitor.close()


def resident_octets(pid: int) -> int | None:
    """Return the resident memory of a process in bytes, None where it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except OSError:
        return None
    octets = int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
    # A zombie has no pages left.
    return octets or None


def cpu_seconds(pid: int) -> float | None:
    """Return the processor time that a process has taken, None where it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # A name may hold anything but ends with the last parenthesis.
    fields = [b"", b"", *stat[stat.rfind(b")") + 1 :].split()]
    return sum(int(fields[at]) for at in _CPU_FIELDS) / os.sysconf("SC_CLK_TCK")


def _pid(process: ProcessMonitor | int) -> int | None:
    return process if isinstance(process, int) else process.pid


def _how(status: int) -> str:
    if status < 0:
        # Most of the real-time ones have no name.
        known = {each.value: each.name for each in signal.Signals}
        return f"killed by {known.get(-status, f'signal {-status}')}"
    return f"exited with status {status}"


def _last_line(log: bytes) -> str:
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    return f" after: {lines[-1].strip()[:200]}" if lines else ""


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_OCTETS))
            return file.read()
    except OSError:
        return b""
