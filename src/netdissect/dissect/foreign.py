"""Calls into plug-ins: a time limit for each call, and the record of those that failed.

A plug-in that fails is disabled for the rest of the run. One line in the log names it, which the
command line prints on standard error; `faults` records the reason.
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

CALL_SECONDS: Final = 2.0
"""Limit of processor time for a call that reads one datagram."""
LOAD_SECONDS: Final = 30.0
"""Limit of processor time for importing a plug-in, which may import Scapy."""
_TICK_SECONDS: Final = 0.25
"""Processor time between two checks of the limit."""

_OTHERS: Final = frozenset({"netdissect", "scapy", *sys.stdlib_module_names})
"""Packages whose frames in a traceback are not the plug-in's own."""

_log = logging.getLogger("netdissect")
_faults: dict[str, str] = {}

faults = MappingProxyType(_faults)
"""Disabled plug-in -> reason."""


class Overrun(BaseException):
    """A call into a plug-in has exceeded its time limit."""


def disable(name: str, reason: str) -> None:
    """Disable a plug-in, and log the reason the first time."""
    if name not in _faults:
        _faults[name] = reason
        _log.warning("protocol %s is disabled: %s", name, reason)


def fault_of(bug: BaseException) -> str:
    """Return one line about an exception, with the innermost line of the plug-in's own code."""
    text = f"{type(bug).__name__}: {bug}" if str(bug) else type(bug).__name__
    place, trace = "", bug.__traceback__
    while trace is not None:
        code, module = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in _OTHERS:
            place = f" ({os.path.basename(code.co_filename)}:{trace.tb_lineno})"  # noqa: PTH119
        trace = trace.tb_next
    return text + place


def attempt(call: Callable[..., Any], *args: Any, seconds: float = CALL_SECONDS) -> Any:
    """Call into a plug-in, and return what it returns.

    Raises:
        Overrun: the call has used `seconds` of processor time. There is no limit in other threads
            than the main one, nor inside C code.

    """
    watch = _WATCH
    watch.begin(seconds)
    try:
        return call(*args)
    finally:
        watch.left = 0


class _Watch:
    """A timer on the processor time of this process, which limits the running call.

    Python runs the signal handler in the main thread, so it can only interrupt the call itself.
    """

    def __init__(self) -> None:
        self.left = 0
        """Ticks until the limit of the running call; 0 = no call is running."""
        self._process = 0
        """Process in which the timer runs."""

    def begin(self, seconds: float) -> None:
        if self._process != os.getpid():
            self._arm()
        self.left = int(seconds / _TICK_SECONDS) + 1

    def _arm(self) -> None:
        """Start the timer, once per process: a forked one does not inherit it."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._process = os.getpid()
        # At exit Python removes its handlers before the process ends; the signal would kill it.
        atexit.register(signal.setitimer, signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, self._tick)
        signal.setitimer(signal.ITIMER_VIRTUAL, _TICK_SECONDS, _TICK_SECONDS)

    def _tick(self, *_: object) -> None:
        if self.left:
            self.left -= 1
            if not self.left:
                raise Overrun("does not end")


_WATCH: Final = _Watch()
