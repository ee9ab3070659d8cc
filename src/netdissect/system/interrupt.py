"""Handling of Ctrl-C and similar signals in commands: the handler sets a flag, which loops check
between two batches or two lines.

An exception raised by a signal handler may come anywhere: in the middle of a line of output, or in
compiled arithmetic, which mistakes it for a lack of memory. The handler therefore only remembers
the signal. Loops call `check`, code that waits for input calls `wait`, and code that only waits for
others uses `at_once`. If nobody checks within PATIENCE_S, an exception is raised after all; out of
the write of a `WholeWriter`, which waits for its reader, only after LAST_S.

Programs that use netdissect as a library and never call `install` keep their own handlers, and
nothing in this module has an effect.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE_S = 1.0
"""Seconds within which a command has to check the flag."""
AGAIN_S = 0.01
"""Seconds until the exception is raised again if Python could not propagate the first one."""
LAST_S = 5.0
"""Seconds for a write or the last output of an interrupted command: nobody may be reading."""


class Interrupted(KeyboardInterrupt):
    """A signal was received.

    Not a plain KeyboardInterrupt: if such an exception passes through `exec` of a string, as used
    by dataclasses, Python kills itself with SIGINT at its end. Source: CPython
    Python/pythonrun.c, run_eval_code_obj.
    """


class _State:
    """The state of signal handling in this process."""

    number: int | None = None
    """The first signal received."""
    until = 0.0
    """When an exception is raised out of a write, too; `time.monotonic()`."""
    eager = 0
    """Number of open blocks of `at_once`."""
    writing = 0
    """Number of writes of a `WholeWriter` in progress."""
    over = False
    """Whether the command is ending, so that further signals are ignored."""
    before: dict[int, Any] | None = None
    """The previous signal handlers; None while ours are not installed."""
    hook = staticmethod(sys.unraisablehook)
    """The previous `sys.unraisablehook`."""
    woken = -1
    """The end of a pipe that `wait` polls."""
    wake = -1
    """The other end, to which the handler writes."""


_state = _State()


class WholeWriter(io.BufferedWriter):
    """A stream whose writes a signal does not cut: of a write that ends with an exception, Python
    drops what is not yet written.
    """

    def write(self, octets: ReadableBuffer, /) -> int:
        """Write all of it, if anybody reads."""
        _state.writing += 1
        try:
            return super().write(octets)
        finally:
            _state.writing -= 1

    def flush(self) -> None:
        """Write what is buffered, if anybody reads."""
        _state.writing += 1
        try:
            super().flush()
        finally:
            _state.writing -= 1


def heard() -> tuple[signal.Signals, ...]:
    """Return the signals that end a command, without SIGHUP if `nohup` makes it ignored."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return SIGNALS[:2] if ignored else SIGNALS


def hang_up(descriptor: int = 1) -> bool:
    """Raise SIGHUP if the other end of the output was closed; return whether it was.

    A shell may not pass on SIGHUP when its terminal is closed, and a closed pipe is noticed only
    when something is written.
    """
    poll = select.poll()
    poll.register(descriptor, 0)
    gone = any(found & (select.POLLHUP | select.POLLERR) for _, found in poll.poll(0))
    if gone:
        signal.raise_signal(signal.SIGHUP)
    return gone


def install() -> None:
    """Install the handlers. Only in the main thread of one of our own programs."""
    if _state.before is None:
        _state.woken, _state.wake = os.pipe()
        for end in (_state.woken, _state.wake):
            os.set_blocking(end, False)
        _state.before = {each: signal.signal(each, _noted) for each in heard()}
        _state.before[signal.SIGALRM] = signal.signal(signal.SIGALRM, _unheard)
        _state.hook, sys.unraisablehook = sys.unraisablehook, _dropped


def uninstall() -> None:
    """Restore the previous handlers, and reset the flag."""
    if _state.before is not None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in _state.before.items():
            signal.signal(number, handler)
        sys.unraisablehook = _state.hook
        os.close(_state.woken)
        os.close(_state.wake)
        _state.number, _state.eager, _state.over = None, 0, False
        _state.before, _state.woken, _state.wake = None, -1, -1


def check() -> None:
    """Raise Interrupted if a signal was received."""
    if _state.number is not None and not _state.over:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Interrupted


def pending() -> bool:
    """Return whether a signal was received. The caller then has to finish and call `check`."""
    if _state.number is not None:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return _state.number is not None


def take() -> bool:
    """Return whether a signal was received, and reset the flag. The caller has to react to it."""
    told = _state.number is not None
    _state.number = None
    if told:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return told


def wait(fd: int) -> None:
    """Wait until a descriptor is readable; raise Interrupted if a signal is received before."""
    if _state.before is None:
        return  # reading itself will wait
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.register(_state.woken, select.POLLIN)
    while True:
        check()
        ready = {found for found, _ in poll.poll()}
        if fd in ready:
            return
        with suppress(BlockingIOError):  # another process may have emptied the shared pipe
            os.read(_state.woken, 1)


@contextmanager
def at_once() -> Iterator[None]:
    """Within the block, raise Interrupted at once, for code that only waits and prints nothing."""
    check()
    _state.eager += 1
    try:
        yield
    finally:
        _state.eager -= 1


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay signals until the end of the block, also within `at_once`. For code that creates
    something that has to be cleaned up, such as a process.
    """
    eager, _state.eager = _state.eager, 0
    try:
        yield
    finally:
        _state.eager = eager
    if eager:
        check()


def ending() -> None:
    """Note that the command is ending, so that further signals do not disturb its last output."""
    if _state.before is None:
        return
    _state.over = True
    if _state.number is not None:
        signal.setitimer(signal.ITIMER_REAL, LAST_S)


def resting() -> None:
    """Note that a signal was seen and that the program now only waits for its user."""
    if _state.before is not None:
        signal.setitimer(signal.ITIMER_REAL, 0)


def ended(code: int) -> None:
    """Note that all output is written, and block signals while the interpreter shuts down: it
    restores the default handlers, with which a signal would change the exit status.

    If a signal was received, the process exits here with status `code`.
    """
    if _state.before is None:
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    # Threads that are left, such as Dask's, do not block them. What is ignored stays ignored.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if _state.number is None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    else:
        _leave(code)


def _leave(code: int) -> NoReturn:
    """Exit like the interpreter, but without finalising modules.

    The signal may have come during an import, and extension modules that are half initialised
    crash when they are finalised. Exit functions run (they remove temporary files and end
    processes) if they do not take longer than LAST_S.
    """
    with suppress(BaseException):
        atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing does
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):
            stream.flush()
    os._exit(code)


def status() -> int:
    """Return the exit status of an interrupted command: 128 plus the number of the signal."""
    return 128 + (signal.SIGINT if _state.number is None else _state.number)


def _noted(number: int, frame: FrameType | None) -> None:
    del frame
    again = _state.number is not None
    if not again:
        _state.number, _state.until = number, time.monotonic() + LAST_S
        with suppress(OSError):
            os.write(_state.wake, b"!")
    if not (_state.over or _state.writing) and (again or _state.eager):
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Interrupted
    if not again:
        signal.setitimer(signal.ITIMER_REAL, LAST_S if _state.over else PATIENCE_S, PATIENCE_S)


def _unheard(number: int, frame: FrameType | None) -> None:
    """End a command that has not checked the flag, or that cannot write its last output."""
    del number, frame
    if _state.over:
        os._exit(status())
    if not _state.writing or time.monotonic() >= _state.until:
        raise Interrupted


def _dropped(what: sys.UnraisableHookArgs) -> None:
    """Raise Interrupted again later if it was raised in a callback (of a weak reference or of an
    import lock) that cannot propagate exceptions.
    """
    if not issubclass(what.exc_type, Interrupted):
        _state.hook(what)
    elif not _state.over:
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S, PATIENCE_S)
