"""Captures and writes in a process that does nothing else: neither slow parsing nor a terminal that
does not read costs a packet of the file.

It is a copy of this process, made when the interface is open, the rights are given up and the file
exists. It ends by itself when this process has ended, and the file is whole then.
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

__all__ = ["Recorder"]

@dataclass(slots=True)
class _Outcome:
    """What the process says at its end."""

    info: CaptureInfo
    counts: Counts
    fault: str | None
    error: Exception | None
    written: int


class Recorder:
    """The same to its users as a `Pump`."""

    def __init__(
        self, source: LiveSource, *, sink: FileSink | None, autostop: Autostop, show: bool
    ) -> None:
        """Take where frames come from and go to; see `Pump`."""
        self.queue = SharedQueue()
        self.error: Exception | None = None
        """What ended the capture before its time."""
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
        """Begin; the process calls `shed` to give up the rights that it does not need."""
        result, told = os.pipe()
        # What is in the buffers would be written by both processes.
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
            # Neither the traceback nor the exit handlers of a forked copy are anybody's business.
            os._exit(status)

    def _work(self, told: int) -> None:
        """Capture to the end, and say what happened."""
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
            pickle.loads(data)  # noqa: S301 - our own: it may be written and yet not be read
        except Exception:  # noqa: BLE001 - an error may hold anything
            outcome.error = NetdissectError(f"{type(pump.error).__name__}: {pump.error}")
            data = pickle.dumps(outcome)
        with os.fdopen(told, "wb") as pipe:
            pipe.write(data)

    def is_alive(self) -> bool:
        """Return whether the end has not been waited for."""
        return self._pid != 0

    def join(self) -> None:
        """Wait for the end, and take over what the process found out."""
        # Read before the wait: what is more than the pipe holds would keep the writer for ever.
        with os.fdopen(self._result, "rb") as pipe:
            data = pipe.read()
        os.waitpid(self._pid, 0)
        self._pid = 0
        self.queue.leave()
        if not data:
            self.error = NetdissectError("the process that captures has failed")
            return
        # The bytes come from a process of our own, over a pipe that nobody else holds.
        outcome: _Outcome = pickle.loads(data)  # noqa: S301
        self.error, self.written = outcome.error, outcome.written
        self._source.fault = outcome.fault
        _become(self._source.info, outcome.info)
        _become(self._source.counts, outcome.counts)


def _become(mine: Any, theirs: Any) -> None:
    for field in fields(theirs):
        setattr(mine, field.name, getattr(theirs, field.name))
