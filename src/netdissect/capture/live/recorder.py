"""Captures and writes in a process that does nothing else, so that neither slow parsing nor a
blocked terminal loses a packet of the file.

The process is forked when the interface is open, the rights are given up and the file exists. It
ends by itself when the original process has ended, and the file is complete then.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from netdissect.capture.live.limits import Autostop
from netdissect.capture.live.pump import Pump
from netdissect.capture.live.shared import SharedQueue
from netdissect.capture.live.sink import FileSink
from netdissect.capture.live.source import Counts, LiveSource
from netdissect.model.errors import NetdissectError
from netdissect.model.reports import CaptureInfo
from netdissect.system import interrupt


@dataclass(slots=True)
class _Outcome:
    """What the process reports at its end."""

    info: CaptureInfo
    counts: Counts
    fault: str | None
    error: Exception | None
    written: int


class Recorder:
    """Runs a `Pump` in a forked process; it has the same interface as a `PumpThread`."""

    def __init__(
        self, source: LiveSource, *, sink: FileSink | None, autostop: Autostop, show: bool
    ) -> None:
        """Create a recorder; the arguments are those of `Pump`."""
        self.queue = SharedQueue()
        self.error: Exception | None = None
        """What ended the capture early."""
        self.written = 0
        """Packets in the file; known at the end."""
        self._source, self._sink = source, sink
        self._pump = Pump(source, sink=sink, autostop=autostop, show=show, queue=self.queue)
        self._pid = 0
        self._result = -1

    @property
    def packets(self) -> int:
        """Return how many packets were captured so far."""
        return self.queue.packets

    def start(self, shed: Callable[[], None] | None = None) -> None:
        """Start the process, which calls `shed` to give up rights that it does not need."""
        result, told = os.pipe()
        # Flush now, or both processes would write what is in the buffers.
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid:
            os.close(told)
            self._result = result
            self.queue.read_only()
            self._source.hand_over()
            if self._sink is not None:
                self._sink.hand_over()
            return
        status = 1
        try:
            os.close(result)
            if shed is not None:
                shed()
            self._work(told)
            status = 0
        finally:
            # A forked copy must neither print a traceback nor run exit handlers.
            os._exit(status)

    def _work(self, told: int) -> None:
        """Capture to the end, and report the outcome."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the other process ends the capture
        interrupt.take()
        self.queue.write_only()
        self._source.take_over()
        pump, source = self._pump, self._source
        pump.run()
        outcome = _Outcome(source.info, source.counts, source.fault, pump.error, pump.written)
        try:
            data = pickle.dumps(outcome)
            pickle.loads(data)  # noqa: S301 - our own data: checks that it can be unpickled
        except Exception:  # noqa: BLE001 - an error may hold any object
            outcome.error = NetdissectError(f"{type(pump.error).__name__}: {pump.error}")
            data = pickle.dumps(outcome)
        with os.fdopen(told, "wb") as pipe:
            pipe.write(data)

    def is_alive(self) -> bool:
        """Return whether `join` is still to be called."""
        return self._pid != 0

    def join(self) -> None:
        """Wait for the end of the process, and store its outcome."""
        # Read before waiting: a process blocked on a full pipe would never end.
        with os.fdopen(self._result, "rb") as pipe:
            data = pipe.read()
        os.waitpid(self._pid, 0)
        self._pid = 0
        self.queue.leave()
        if not data:
            self.error = NetdissectError("the process that captures has failed")
            return
        # Safe to unpickle: the pipe belongs to a process of our own.
        outcome: _Outcome = pickle.loads(data)  # noqa: S301
        self.error, self.written = outcome.error, outcome.written
        self._source.fault = outcome.fault
        _become(self._source.info, outcome.info)
        _become(self._source.counts, outcome.counts)


def _become(mine: Any, theirs: Any) -> None:
    for field in fields(theirs):
        setattr(mine, field.name, getattr(theirs, field.name))
