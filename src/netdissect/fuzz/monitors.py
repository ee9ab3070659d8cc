"""Monitors of the target: its process, log, memory, processor time and answer times.

Whether the target still answers is checked by `Watch`, with or without monitors.
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

from netdissect.fuzz.crashes import Crash, CrashReader, last_line, without_numbers
from netdissect.fuzz.drivers import Driver
from netdissect.fuzz.folder import open_new
from netdissect.fuzz.processes import WORK_SECONDS, cpu_seconds, is_at_work, resident_octets
from netdissect.fuzz.target import Journal, Target
from netdissect.model.errors import UsageError, reason
from netdissect.model.text import quoted
from netdissect.system.interrupt import undisturbed
from netdissect.system.parent import tether

NO_ANSWER = "no-answer"
"""Kind of failure: the target has stopped answering."""
TAIL_OCTETS = 64 * 1024
"""Bytes at the end of a log that are saved with a failure."""
_STOP_SECONDS = 3.0
"""Time given to a process to end after SIGTERM ..."""
_MOMENT = 0.5
"""... and at least this much if the run is over."""
EXIT_SECONDS = 2.0
"""Time given to a process that stopped answering to end: writing a core dump takes a while."""
_DEAF_SECONDS = 60.0
"""More time for a process that has closed its port, as long as it is at work."""
_LINE_LIMIT = 1 << 16
_MEBI = 1 << 20
_BEFORE, _BEHIND = 2, 60
"""Lines before and after a matching line that are searched for a stack trace."""
_READ_OCTETS = 1 << 20
"""Bytes of output read at once."""
_TRACING = {"UBSAN_OPTIONS": "print_stacktrace=1", "RUST_BACKTRACE": "1", "PYTHONFAULTHANDLER": "1"}
"""Environment variables that make programs print stack traces; the user's own take precedence."""
_QUIET_SECONDS = 1.0
"""A stack trace counts as complete after this long without output."""
_NAMES_SECONDS = 10.0
"""The same for a sanitizer, which reads the program's debug information before it prints names."""
_SAME_SECONDS = 0.1
"""Time after a report of UBSan in which AddressSanitizer begins to report the same access."""
_TURN_SECONDS = 0.02  # between two reads of a process's output
_IN_A_ROW = 3
"""Consecutive measurements beyond a limit that make a failure: one may be due to this machine."""
_CPU_WINDOW = 1.0
"""Seconds over which processor usage is averaged."""
_LAST_WORDS = 8 * 1024
"""A stack trace explains the end of the process if at most this much output follows it, in bytes.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A failure of the target."""

    kind: str
    """`exit`, `report` (a stack trace of a process that keeps running), `rule` (an answer that
    breaks the protocol's rules), `log`, `memory`, `cpu`, `latency` or `no-answer`."""
    detail: str
    """One sentence: what was observed."""
    place: str = ""
    """Identifies the failure: the fault and where it happened, or how the process ended. Empty if
    nothing but `detail` is known."""

    @property
    def signature(self) -> str:
        """Return a text that is the same for all failures of one kind."""
        return f"{self.kind}: {self.place or without_numbers(self.detail)}"

    @property
    def fatal(self) -> bool:
        """Return whether the target has to be restarted."""
        return self.kind not in ("report", "rule")


class Watched(Protocol):
    """The attributes of `Watch` that monitors use."""

    driver: type[Driver]
    dialect: str
    target: Target
    journal: Journal
    timed: list[Callable[[float], None]]


class Monitor(ABC):  # noqa: B024 - every method has a default: a monitor does what it can
    """Watches one aspect of the target."""

    def start(self) -> None:  # noqa: B027 - nothing to do for most
        """Start watching; called before the first case and after each failure."""

    def settled(self) -> None:  # noqa: B027 - nothing to do for most
        """Note that the target has started up and accepts sessions."""

    def check(self) -> Verdict | None:
        """Return a failure observed since the last call, else None."""
        return None

    def attach(self, watch: Watched) -> None:  # noqa: B027 - nothing to do for most
        """Register with what is watched; called once, before `start`."""

    def log_tail(self) -> bytes:
        """Return the end of the target's log; empty if this monitor has none."""
        return b""

    def stop(self) -> None:  # noqa: B027 - nothing to do for most
        """Stop watching, and end the process if this monitor started it."""

    def close(self) -> None:  # noqa: B027 - nothing to do for most
        """Close files; nothing is watched after that."""


class ProcessMonitor(Monitor):
    """Runs the target, notices when it exits, and restarts it."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        """Prepare to run `command`; its output will go to the file `log`."""
        self.command = list(command)
        self.log = log
        self._log: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        """Number of times the process was started."""
        self.exit_seconds = EXIT_SECONDS
        """See `EXIT_SECONDS`."""
        self.end = math.inf
        """Monotonic time after which nothing waits for the process."""
        self._crashes = CrashReader()
        self._at = 0
        self._found: list[Crash] = []
        self._latest: tuple[Crash, int] | None = None
        self._survives = False
        self._grew = 0.0
        self.environment: dict[str, str] = {}
        """Additional environment variables of the process."""

    @property
    def pid(self) -> int | None:
        """Return the process id; None before the first start."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process unless it is running.

        Raises:
            UsageError: the command cannot be run.
        """
        if self._process is not None and self._process.poll() is None:
            return
        try:
            if self._log is None:
                self._log = open_new(self.log)
        except OSError as error:
            raise UsageError(f"cannot create {self.log}: {error.strerror}") from error
        self._at = os.fstat(self._log).st_size
        try:
            with undisturbed():
                self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=subprocess.STDOUT,
                    env={**_TRACING, **os.environ, **self.environment},
                    # Else it would keep its port from a run that is resumed.
                    preexec_fn=tether(),  # noqa: PLW1509 - it only calls prctl
                )
        except OSError as error:
            raise UsageError(f"cannot run {quoted(self.command[0])}: {error.strerror}") from error
        self._crashes, self._found, self._latest = CrashReader(), [], None
        self.starts += 1

    def check(self) -> Verdict | None:
        """Return an `exit` verdict if the process has ended, or a `report` verdict for a stack
        trace of one that keeps running; one verdict per call.
        """
        if self._process is None:
            return None
        ended = self._process.poll() is not None
        self._read(final=ended)
        if not ended and self._found and not self._found[-1].ends and self._found[-1].looks_up:
            # AddressSanitizer may begin to say the same only now.
            ended = self._wait(_SAME_SECONDS)
            self._read(final=ended)
        # A process that is printing a fatal trace does not answer; the trace is the failure.
        while not (ended or self._survives) and (crash := self._crashes.open) and crash.ends:
            ended = self._wait(_TURN_SECONDS)
            self._read(final=ended or self._left() <= 0)
        # A fatal trace is printed before the process ends: wait, so that both are one failure.
        if not (ended or self._survives) and (ends := [one for one in self._found if one.ends]):
            # A sanitizer goes on to print where the memory was allocated and freed.
            named = any(one.looks_up for one in ends)
            self._survives = not self._wait(_NAMES_SECONDS if named else self.exit_seconds)
            return self.check()
        # The last trace of a process that has ended is the reason, reported with its exit.
        if len(self._found) > ended:
            crash = self._found.pop(0)
            return Verdict("report", crash.text, crash.kind)
        return self._exit() if ended else None

    def died(self, *, deaf: bool = False) -> Verdict | None:
        """Return the same as `check`, after waiting for a process that is about to end; longer if
        it is `deaf` and at work, since a busy machine may let it end only after many seconds.
        """
        now = time.monotonic()
        limit, end = now + _DEAF_SECONDS, now + self.exit_seconds
        while not self._wait(_TURN_SECONDS) and self._left() > 0:
            now = time.monotonic()
            if deaf and is_at_work(self.pid):
                end = max(end, min(now + WORK_SECONDS, limit))
            if now >= end:
                break
        return self.check()

    def _wait(self, seconds: float) -> bool:
        """Wait for the process to end; return whether it has."""
        if self._process is not None:
            try:
                self._process.wait(min(seconds, max(0.0, self._left())))
            except subprocess.TimeoutExpired:
                return False
        return True

    def _left(self) -> float:
        return self.end - time.monotonic()

    def _read(self, *, final: bool) -> None:
        """Search the output since the last call for stack traces."""
        try:
            with self.log.open("rb") as log:
                log.seek(self._at)
                new = log.read(_READ_OCTETS)
                while final and (more := log.read(_READ_OCTETS)):
                    # Only the last part explains why the process ended.
                    self._at += len(new)
                    new = more
        except OSError:
            return
        self._at += len(new)
        now = time.monotonic()
        self._grew = now if new else self._grew
        # Symbol look-up takes time: the trace is complete when no output has come for long enough.
        crash = self._crashes.open
        quiet = _NAMES_SECONDS if crash is not None and crash.looks_up else _QUIET_SECONDS
        closed = final or now - self._grew > quiet
        for crash in self._crashes.feed(new, final=closed):
            self._latest = (crash, self._at)
            before = self._found[-1] if self._found else None
            if before and crash.ends > before.ends and crash.frames == before.frames != ():
                # UBSan has named the access for which AddressSanitizer ends the process.
                self._found.remove(before)
            if crash.counts or final:
                self._found.append(crash)

    def _exit(self) -> Verdict | None:
        """Return how the process ended, with its last stack trace or line."""
        if self._process is None or self._process.returncode is None:
            return None
        how = _exit_text(self._process.returncode)
        crash = self._found.pop(0) if self._found else None
        if crash is None and self._latest is not None:
            latest, at = self._latest
            crash = latest if self._at - at <= _LAST_WORDS else None
        if crash is not None:
            return Verdict("exit", f"{how}: {crash.text}", crash.kind)
        return Verdict("exit", f"{how}{last_line(self.log_tail())}", how)

    def printed(self, at: int, limit: int) -> bytes:
        """Return up to `limit` bytes of the log, which all restarts share, from offset `at`."""
        return b"" if self._log is None else os.pread(self._log, limit, at)

    def log_tail(self) -> bytes:
        """Return the end of the log."""
        return _tail(self.log)

    def stop(self) -> None:
        """End the process by SIGTERM, and by SIGKILL if it does not end in time."""
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
    """Searches what is appended to a log file for a pattern."""

    def __init__(self, path: Path, pattern: str) -> None:
        """Compile the pattern.

        Raises:
            UsageError: it is not a regular expression.
        """
        try:
            self._pattern = re.compile(os.fsencode(pattern))
        except (re.error, OverflowError, RecursionError, UnicodeEncodeError) as error:
            raise UsageError(f"log pattern {quoted(pattern)}: {reason(error)}") from error
        self.path = path
        self._at, self._rest = 0, b""

    def start(self) -> None:
        """Skip what the file already holds."""
        self._at = self.path.stat().st_size if self.path.exists() else 0
        self._rest = b""

    def check(self) -> Verdict | None:
        """Return a `log` verdict for the first new line that matches."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._at:
                    # The file was truncated: by a rotation, or by a target that was restarted.
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
    """Watches the growth of a process's resident memory."""

    def __init__(self, growth_mib: int, process: ProcessMonitor | int) -> None:
        """Watch a process that another monitor runs, or the one with a given id."""
        self._limit = growth_mib * _MEBI
        self._process = process
        self._base: int | None = None

    def start(self) -> None:
        """Wait for the target to start up, which takes memory, before measuring."""
        self._base = None

    def settled(self) -> None:
        """Measure the memory from which growth is counted."""
        # Only once: otherwise each new session would hide the growth until then.
        if self._base is None:
            self._base = resident_octets(_pid(self._process))

    def check(self) -> Verdict | None:
        """Return a `memory` verdict if the process has grown by more than the limit."""
        now = resident_octets(_pid(self._process))
        if now is None or self._base is None or now - self._base <= self._limit:
            return None
        return Verdict("memory", f"resident memory grew by {(now - self._base) // _MEBI} MiB")


class CpuMonitor(Monitor):
    """Watches the share of one processor that a process uses, in windows of one second."""

    def __init__(self, percent: int, process: ProcessMonitor | int) -> None:
        """Watch a process that another monitor runs, or the one with a given id."""
        self._limit = percent
        self._process = process
        self._last: tuple[int, float, float] | None = None
        self._over = 0

    def settled(self) -> None:
        """Start measuring now: start-up takes processor time, too."""
        self._last, self._over = None, 0

    def check(self) -> Verdict | None:
        """Return a `cpu` verdict if usage exceeded the limit in three consecutive windows."""
        pid, now = _pid(self._process), time.monotonic()
        used = cpu_seconds(pid)
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
                text = f"used {share:.0f}% of a processor, more than {self._limit}%"
                return Verdict("cpu", text, f"above {self._limit}%")
        return None


class LatencyMonitor(Monitor):
    """Watches how long the target takes to answer the probes of a session."""

    def __init__(self, milliseconds: int) -> None:
        self._limit = milliseconds
        self._over: list[float] = []

    def attach(self, watch: Watched) -> None:
        """Subscribe to answer times."""
        watch.timed.append(self._answered)

    def start(self) -> None:
        """Discard what the previous process did."""
        self._over.clear()

    def _answered(self, seconds: float) -> None:
        if 1000 * seconds > self._limit:
            self._over.append(seconds)
        # Three are kept until the next check.
        elif len(self._over) < _IN_A_ROW:
            self._over.clear()

    def check(self) -> Verdict | None:
        """Return a `latency` verdict if three consecutive answers exceeded the limit."""
        if len(self._over) < _IN_A_ROW:
            return None
        slowest = 1000 * max(self._over)
        self._over.clear()
        text = f"answered after {slowest:.0f} ms, later than {self._limit} ms"
        return Verdict("latency", text, f"later than {self._limit} ms")


class ExistingProcessMonitor(Monitor):
    """Notices when a process that somebody else started ends."""

    def __init__(self, pid: int) -> None:
        """Watch the process with id `pid`."""
        self.pid = pid

    def check(self) -> Verdict | None:
        """Return an `exit` verdict once the process no longer exists."""
        if resident_octets(self.pid) is None:
            return Verdict("exit", "the watched process is gone")
        return None


class Monitors:
    """All monitors of a run."""

    def __init__(self, monitors: Sequence[Monitor] = ()) -> None:
        self._all = list(monitors)
        self.process = next((each for each in self._all if isinstance(each, ProcessMonitor)), None)
        """The monitor that runs the target; None if the user runs it."""

    def attach(self, watch: Watched) -> None:
        """Attach all monitors."""
        for monitor in self._all:
            monitor.attach(watch)

    def start(self) -> None:
        """Start all monitors, that of the process first."""
        for monitor in self._all:
            monitor.start()

    def settled(self) -> None:
        """Note that the target accepts sessions."""
        for monitor in self._all:
            monitor.settled()

    def check(self, *, gone: bool = False, deaf: bool = False) -> Verdict | None:
        """Return the first failure that any monitor has observed.

        Args:
            gone: the target may be gone; give its process time to end.
            deaf: nobody listens at its port, not even for a new session.
        """
        if gone and self.process is not None:
            verdict = self.process.died(deaf=deaf)
            if verdict is not None:
                return verdict
        return next((found for each in self._all if (found := each.check()) is not None), None)

    def log_tail(self) -> bytes:
        """Return the end of the target's log."""
        return next((tail for tail in (each.log_tail() for each in self._all) if tail), b"")

    def restart(self) -> bool:
        """Restart the target; return False if no monitor runs it."""
        if self.process is None:
            return False
        self.process.stop()
        self.start()
        return True

    def stop(self) -> None:
        """Stop and close all monitors."""
        for monitor in reversed(self._all):
            monitor.stop()
            monitor.close()


def _pid(process: ProcessMonitor | int) -> int | None:
    return process if isinstance(process, int) else process.pid


def _exit_text(status: int) -> str:
    if status < 0:
        # Most real-time signals have no name.
        known = {each.value: each.name for each in signal.Signals}
        return f"killed by {known.get(-status, f'signal {-status}')}"
    return f"exited with status {status}"


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_OCTETS))
            return file.read()
    except OSError:
        return b""
