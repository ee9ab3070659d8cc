"""Runs several workers in processes of their own, each with its own target and a shared corpus."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait

from netdissect.fuzz.report import FuzzReport
from netdissect.model.errors import NetdissectError
from netdissect.system.parent import tether

_TELL_SECONDS = 0.5
"""Interval at which a worker sends its report."""

Run = Callable[[int, Callable[[FuzzReport], None]], FuzzReport]
"""Runs worker N and calls the given function with the report so far."""


@dataclass(slots=True)
class _Worker:
    """A forked process and the pipe on which it sends reports."""

    pid: int
    pipe: Connection
    report: FuzzReport | None = None
    error: str | None = None
    done: bool = False

    def read(self) -> bool:
        """Read what has been sent; return False at the end of the pipe."""
        try:
            # Safe to unpickle: nobody but our own process has the pipe open.
            self.done, report, self.error = self.pipe.recv()
        except (EOFError, OSError):
            return False
        self.report = report or self.report
        return True


def run_workers(
    count: int, run: Run, progress: Callable[[FuzzReport], None] = lambda _report: None
) -> FuzzReport:
    """Run workers 0 to `count` - 1; return their combined report.

    Raises:
        NetdissectError: a worker failed to run; the others are stopped.
    """
    workers = [_start(number, run) for number in range(count)]
    left = {each.pipe: each for each in workers}
    try:
        while left:
            try:
                _take(left, workers, progress)
            except KeyboardInterrupt:
                # A signal from the keyboard has reached them already; another one does no harm.
                _end(workers)
    finally:
        _end(workers)
        for each in workers:
            each.pipe.close()
            os.waitpid(each.pid, 0)
    failed = next((each for each in workers if each.error or not each.done), None)
    if failed is not None:
        raise NetdissectError(failed.error or "a worker ended without an account")
    return _sum(workers)


def _take(
    left: dict[Connection, _Worker], workers: list[_Worker], progress: Callable[[FuzzReport], None]
) -> None:
    for worker in [left[pipe] for pipe in wait(list(left), _TELL_SECONDS)]:  # type: ignore[index]
        if not worker.read():
            del left[worker.pipe]
            if worker.error or not worker.done:
                _end(workers)
    if any(each.report for each in workers):
        progress(_sum(workers))


def _sum(workers: list[_Worker]) -> FuzzReport:
    reports = [each.report for each in workers if each.report is not None]
    whole = deepcopy(reports[0])
    for each in reports[1:]:
        whole.add(each)
    return whole


def _end(workers: list[_Worker]) -> None:
    """Stop all workers that are still running; they close their sessions and targets."""
    for each in workers:
        if not each.done:
            os.kill(each.pid, signal.SIGINT)


def _start(number: int, run: Run) -> _Worker:
    receive, send = Pipe(duplex=False)
    # Buffered output would be written by both processes.
    sys.stdout.flush()
    sys.stderr.flush()
    parent, depend = os.getpid(), tether()
    pid = os.fork()
    if pid:
        send.close()
        return _Worker(pid, receive)
    status = 1
    try:
        depend()
        receive.close()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _work(number, run, send, parent)
        status = 0
    finally:
        # A forked copy must run no exit handlers and print no traceback.
        os._exit(status)


def _work(number: int, run: Run, pipe: Connection, parent: int) -> None:
    told = 0.0

    def progress(report: FuzzReport) -> None:
        nonlocal told
        # The parent is gone: nobody reads the report.
        if os.getppid() != parent:
            raise KeyboardInterrupt
        if time.monotonic() - told >= _TELL_SECONDS:
            told = time.monotonic()
            pipe.send((False, report, None))

    try:
        row: tuple[bool, FuzzReport | None, str | None] = (True, run(number, progress), None)
    except NetdissectError as error:
        row = (True, None, f"worker {number}: {error}")
    except KeyboardInterrupt:
        row = (True, None, f"worker {number}: interrupted before its first case")
    pipe.send(row)
