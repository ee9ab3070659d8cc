"""Code of other distributions: how long one call may take, and what is remembered where it fails.

A plug-in that fails is disabled for the rest of the run: it is named once in the log, which the
command line prints on standard error, and `faults` keeps why.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

__all__ = ["CALL_SECONDS", "LOAD_SECONDS", "Overrun", "attempt", "disable", "fault_of", "faults"]

CALL_SECONDS: Final = 2.0
"""Processor time after which a call that reads one datagram counts as one that never ends."""
LOAD_SECONDS: Final = 30.0
"""The same for importing a plug-in: that may import Scapy."""
_TICK_SECONDS: Final = 0.25

_OTHERS: Final = frozenset({"netdissect", "scapy", *sys.stdlib_module_names})
"""Packages that a plug-in's call passes through: a fault is not looked for in them."""

_log = logging.getLogger("netdissect")
_faults: dict[str, str] = {}

faults = MappingProxyType(_faults)
"""Plug-in -> why it is disabled."""


class Overrun(BaseException):
    """A call of a plug-in does not end."""


def disable(name: str, reason: str) -> None:
    """Remember that a plug-in failed; the first time it is named in the log."""
    if name not in _faults:
        _faults[name] = reason
        _log.warning("protocol %s is disabled: %s", name, reason)


def fault_of(bug: BaseException) -> str:
    """Return why a call failed, in one line, with the place in the plug-in where it did."""
    text = f"{type(bug).__name__}: {bug}" if str(bug) else type(bug).__name__
    place, trace = "", bug.__traceback__
    while trace is not None:
        code, module = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in _OTHERS:
            place = f" ({os.path.basename(code.co_filename)}:{trace.tb_lineno})"  # noqa: PTH119
        trace = trace.tb_next
    return text + place


def attempt(call: Callable[..., Any], *args: Any, seconds: float = CALL_SECONDS) -> Any:
    """Return what a call of a plug-in returns.

    Raises:
        Overrun: it had used `seconds` of processor time and was still running. Only the main thread
            can be watched; elsewhere, and inside C code, a call takes what it takes.

    """
    watch = _WATCH
    watch.begin(seconds)
    try:
        return call(*args)
    finally:
        watch.left = 0


class _Watch:
    """A timer on the processor time of this process, which looks at the call that is running.

    The signal's handler runs between two steps of the main thread: it never interrupts anything
    but the call itself.
    """

    def __init__(self) -> None:
        self.left = 0
        """Ticks that the running call has left; 0 = none is running."""
        self._process = 0

    def begin(self, seconds: float) -> None:
        if self._process != os.getpid():
            self._arm()
        self.left = int(seconds / _TICK_SECONDS) + 1

    def _arm(self) -> None:
        """Start the timer: once in a process, as a forked one does not have its parent's."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._process = os.getpid()
        # Python gives up its handlers before it ends, and without one the signal kills.
        atexit.register(signal.setitimer, signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, self._tick)
        signal.setitimer(signal.ITIMER_VIRTUAL, _TICK_SECONDS, _TICK_SECONDS)

    def _tick(self, *_: object) -> None:
        if self.left:
            self.left -= 1
            if not self.left:
                raise Overrun("does not end")


_WATCH: Final = _Watch()
