"""Copies of this process that end with it, whatever ends it, and how many are worth their cost."""

from __future__ import annotations

import os
import signal
import sys
import threading

__all__ = ["Lifeline", "usable_cores"]

_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG. Source: prctl(2)."""


def usable_cores() -> int:
    """Return how many processors this process may use; where the system does not say, all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Lifeline:
    """Made before a fork; the copy calls `depend`, this process `keep`."""

    def __init__(self, *, by_signal: bool = sys.platform == "linux") -> None:
        """Prepare the way that the system offers.

        Args:
            by_signal: whether the kernel sends a signal when the parent is gone; otherwise a thread
                of the copy waits for the end of a pipe that only the parent holds.

        """
        from ctypes import CDLL  # noqa: PLC0415 - few processes have children

        self._parent = os.getpid()
        # The library is opened here: the copy may have no descriptor left.
        self._prctl = CDLL(None).prctl if by_signal else None
        self._ends = None if by_signal else os.pipe()

    def keep(self) -> None:
        """Hold the line, in the parent."""
        if self._ends is not None:
            os.close(self._ends[0])

    def cut(self) -> None:
        """Let go of the line, in the parent: the copy ends."""
        if self._ends is not None:
            os.close(self._ends[1])

    def depend(self) -> None:
        """End this copy when its parent is gone, and leave Ctrl-C to the parent."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._prctl is not None:
            self._prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != self._parent:  # it was gone before
                os._exit(1)
        elif self._ends is not None:
            os.close(self._ends[1])
            threading.Thread(target=_wait_for_end, args=self._ends[:1], daemon=True).start()


def _wait_for_end(line: int) -> None:
    os.read(line, 1)
    os._exit(1)
