"""Processes that end when their parent does, however it ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG. Source: prctl(2)."""


def usable_cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_files(wanted: int) -> int:
    """Raise the limit on open files to `wanted` if it is lower and may be raised, and return it."""
    try:
        import resource  # noqa: PLC0415 - not on Windows, which has no such limit
    except ImportError:
        return wanted
    usable, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if usable >= wanted or usable == resource.RLIM_INFINITY:
        return wanted
    found = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (found, most))
    return found


def tether() -> Callable[[], None]:
    """Return what a new process is to call before it runs another program: it then ends with this
    one, even if that is killed, where the kernel sees to it.
    """
    if sys.platform != "linux":
        return lambda: None
    from ctypes import CDLL  # noqa: PLC0415 - few processes have children

    parent, prctl = os.getpid(), CDLL(None).prctl

    def depend() -> None:
        prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it had ended before the call
            os._exit(1)

    return depend


class Lifeline:
    """Ends a forked process with its parent. Created before the fork; afterwards the child calls
    `depend` and the parent `keep`.
    """

    def __init__(self, *, by_signal: bool = sys.platform == "linux") -> None:
        """Create a lifeline.

        Args:
            by_signal: whether the kernel can send a signal when the parent ends; otherwise a thread
                of the child waits for the end of a pipe that only the parent holds open.

        """
        from ctypes import CDLL  # noqa: PLC0415 - few processes have children

        self._parent = os.getpid()
        # Opened before the fork: the child may have no file descriptor left.
        self._prctl = CDLL(None).prctl if by_signal else None
        self._ends = None if by_signal else os.pipe()

    def keep(self) -> None:
        """Keep the lifeline open, in the parent."""
        if self._ends is not None:
            os.close(self._ends[0])

    def cut(self) -> None:
        """Close the lifeline in the parent, which ends the child."""
        if self._ends is not None:
            os.close(self._ends[1])

    def depend(self) -> None:
        """In the child: end with the parent, and leave the handling of Ctrl-C to it."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._prctl is not None:
            self._prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != self._parent:  # the parent had ended before the call
                os._exit(1)
        elif self._ends is not None:
            os.close(self._ends[1])
            threading.Thread(target=_wait_for_end, args=self._ends[:1], daemon=True).start()


def _wait_for_end(line: int) -> None:
    os.read(line, 1)
    os._exit(1)
