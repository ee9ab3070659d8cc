"""Runs several workers in processes of their own, each with its own target and a shared corpus."""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from netdissect.fuzz.report import FuzzReport
from netdissect.model.errors import NetdissectError

__all__ = ["run_workers"]

_TELL_SECONDS = 0.5
"""Interval at which a worker sends its report."""
_HEAD = 4

Run = Callable[[int, Callable[[FuzzReport], None]], FuzzReport]
"""Runs worker N and calls the given function with the report so far."""


@dataclass(slots=True)
class _Worker:
    """A forked process and the pipe on which it sends reports."""

    pid: int
    pipe: int
    rest: bytearray = field(default_factory=bytearray)
    report: FuzzReport | None = None
    error: str | None = None
    done: bool = False

    def read(self) -> bool:
        """Read what has arrived; return False at the end of the pipe."""
        data = os.read(self.pipe, 1 << 16)
        self.rest += data
        while len(self.rest) >= _HEAD:
            size = int.from_bytes(self.rest[:_HEAD], "big")
            if len(self.rest) < _HEAD + size:
                break
            # Safe to unpickle: it comes from our own process, over a pipe that nobody else has
            # open.
            found = pickle.loads(bytes(self.rest[_HEAD : _HEAD + size]))  # noqa: S301
            del self.rest[: _HEAD + size]
            self.done, self.report, self.error = found[0], found[1] or self.report, found[2]
        return bool(data)


def run_workers(
    count: int, run: Run, progress: Callable[[FuzzReport], None] = lambda _report: None
) -> FuzzReport:
    """Run workers 0 to `count` - 1; return their combined report.

    Raises:
        NetdissectError: a worker failed to run; the others are stopped.
    """
    workers = [_start(number, run) for number in range(count)]
    chooser = selectors.DefaultSelector()
    for each in workers:
        chooser.register(each.pipe, selectors.EVENT_READ, each)
    try:
        while chooser.get_map():
            try:
                _take(chooser, workers, progress)
            except KeyboardInterrupt:
                # A signal from the keyboard has reached them already; another one does no harm.
                _end(workers)
    finally:
        _end(workers)
        chooser.close()
        for each in workers:
            os.close(each.pipe)
            os.waitpid(each.pid, 0)
    failed = next((each for each in workers if each.error or not each.done), None)
    if failed is not None:
        raise NetdissectError(failed.error or "a worker ended without an account")
    return _sum(workers)


def _take(
    chooser: selectors.BaseSelector,
    workers: list[_Worker],
    progress: Callable[[FuzzReport], None],
) -> None:
    for key, _events in chooser.select(_TELL_SECONDS):
        worker: _Worker = key.data
        if not worker.read():
            chooser.unregister(worker.pipe)
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
    receive, send = os.pipe()
    # Buffered output would be written by both processes.
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(send)
        return _Worker(pid, receive)
    status = 1
    try:
        os.close(receive)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _work(number, run, send, parent)
        status = 0
    finally:
        # A forked copy must run no exit handlers and print no traceback.
        os._exit(status)


def _work(number: int, run: Run, send: int, parent: int) -> None:
    told = 0.0

    def progress(report: FuzzReport) -> None:
        nonlocal told
        # The parent is gone: nobody reads the report.
        if os.getppid() != parent:
            raise KeyboardInterrupt
        if time.monotonic() - told >= _TELL_SECONDS:
            told = time.monotonic()
            _tell(send, (False, report, None))

    try:
        row: tuple[bool, FuzzReport | None, str | None] = (True, run(number, progress), None)
    except NetdissectError as error:
        row = (True, None, f"worker {number}: {error}")
    except KeyboardInterrupt:
        row = (True, None, f"worker {number}: interrupted before its first case")
    _tell(send, row)


def _tell(send: int, row: Any) -> None:
    data = pickle.dumps(row)
    data = len(data).to_bytes(_HEAD, "big") + data
    while data:
        data = data[os.write(send, data) :]
