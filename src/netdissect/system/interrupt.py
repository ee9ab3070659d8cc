"""Ctrl-C and its kin, for commands: a flag that the loops look at between two batches or two lines.

An exception out of a signal handler may come anywhere: half-way through a line of output, or where
compiled arithmetic takes it for a lack of memory. So the handler only notes the signal. Loops call
`check`, waits are `wait`, and what does nothing but wait for others says `at_once`. Where nobody
looks for PATIENCE_S, an exception ends the command after all.

Library users who never call `install` keep their own handlers, and nothing here does anything.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

__all__ = [
    "SIGNALS",
    "Interrupted",
    "at_once",
    "check",
    "ended",
    "ending",
    "hang_up",
    "heard",
    "install",
    "pending",
    "resting",
    "status",
    "take",
    "undisturbed",
    "uninstall",
    "wait",
]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE_S = 1.0
"""Seconds that a command has to look at the flag."""
AGAIN_S = 0.01
"""Seconds until an exception comes again where Python dropped the first one."""
LAST_S = 5.0
"""Seconds that it then has for its last output, which nobody may be reading."""


class Interrupted(KeyboardInterrupt):
    """A signal has come.

    A kind of its own, because Python kills itself with SIGINT at its end where a plain
    KeyboardInterrupt has passed through `exec` of a text, as dataclasses use it. Source: CPython
    Python/pythonrun.c, run_eval_code_obj.
    """


class _State:
    """What this process was told."""

    number: int | None = None
    """The first signal; None before it."""
    eager = 0
    """How many blocks of `at_once` are open."""
    over = False
    """Whether the command is ending: no signal disturbs that any more."""
    before: dict[int, Any] | None = None
    """Handlers to put back; None while none of ours is in place."""
    hook = staticmethod(sys.unraisablehook)
    """What else is told of exceptions that nobody can take."""
    woken = -1
    """What `wait` polls; the handler writes to the other end."""
    wake = -1


_state = _State()


def heard() -> tuple[signal.Signals, ...]:
    """Return the signals that end a command: not a hang-up that `nohup` keeps from it."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return SIGNALS[:2] if ignored else SIGNALS


def hang_up(descriptor: int = 1) -> bool:
    """Give this process the hang-up that it did not get where nobody is left at the other end of
    its output: a shell may keep to itself that its terminal was closed, and a pipe tells only who
    writes. Returns whether it has gone.
    """
    poll = select.poll()
    poll.register(descriptor, 0)
    gone = any(found & (select.POLLHUP | select.POLLERR) for _, found in poll.poll(0))
    if gone:
        signal.raise_signal(signal.SIGHUP)
    return gone


def install() -> None:
    """Let signals set the flag from now on. Only in the main thread of a program of ours."""
    if _state.before is None:
        _state.woken, _state.wake = os.pipe()
        for end in (_state.woken, _state.wake):
            os.set_blocking(end, False)
        _state.before = {each: signal.signal(each, _noted) for each in heard()}
        _state.before[signal.SIGALRM] = signal.signal(signal.SIGALRM, _unheard)
        _state.hook, sys.unraisablehook = sys.unraisablehook, _dropped


def uninstall() -> None:
    """Put the handlers back that were there before, and forget what came."""
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
    """Raise Interrupted where a signal has come."""
    if _state.number is not None and not _state.over:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Interrupted


def pending() -> bool:
    """Return whether a signal has come; who asks ends what runs, and `check` says it then."""
    if _state.number is not None:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return _state.number is not None


def take() -> bool:
    """Return whether a signal has come, and forget it: the caller does what it asks for."""
    told = _state.number is not None
    _state.number = None
    if told:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return told


def wait(fd: int) -> None:
    """Wait until there is something to read, or raise Interrupted where a signal comes."""
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
    """Let a signal raise Interrupted wherever it comes: for code that waits and prints
    nothing.
    """
    check()
    _state.eager += 1
    try:
        yield
    finally:
        _state.eager -= 1


@contextmanager
def undisturbed() -> Iterator[None]:
    """Have a signal wait for the end of the block, also within `at_once`: for what must be known to
    whoever cleans up, such as a process that is started.
    """
    eager, _state.eager = _state.eager, 0
    try:
        yield
    finally:
        _state.eager = eager
    if eager:
        check()


def ending() -> None:
    """Say that the command ends: further signals do not disturb its last output."""
    if _state.before is None:
        return
    _state.over = True
    if _state.number is not None:
        signal.setitimer(signal.ITIMER_REAL, LAST_S)


def resting() -> None:
    """Say that nothing is left to do but to wait for a person: no signal is overdue."""
    if _state.before is not None:
        signal.setitimer(signal.ITIMER_REAL, 0)


def ended(code: int) -> None:
    """Say that all output is out: a signal that comes while the interpreter goes changes nothing.

    The interpreter puts the system's handlers back before it ends, which would end it otherwise.
    Where a signal has come, this process ends here, with an exit status.
    """
    if _state.before is None:
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    if _state.number is None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    else:
        _leave(code)


def _leave(code: int) -> NoReturn:
    """End this process as the interpreter does, but without taking modules apart.

    The signal may have come while one was imported, and extension modules that are half there
    crash when they are taken apart. What was registered for the exit is done (temporary files,
    processes of others), as long as that does not take LAST_S.
    """
    with suppress(BaseException):
        atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing does
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):
            stream.flush()
    os._exit(code)


def status() -> int:
    """Return the exit status of an interrupted command: 128 and the number of the signal."""
    return 128 + (signal.SIGINT if _state.number is None else _state.number)


def _noted(number: int, frame: FrameType | None) -> None:
    del frame
    again = _state.number is not None
    if not again:
        _state.number = number
        with suppress(OSError):
            os.write(_state.wake, b"!")
    if not _state.over and (again or _state.eager):
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Interrupted
    if not again:
        signal.setitimer(signal.ITIMER_REAL, LAST_S if _state.over else PATIENCE_S, PATIENCE_S)


def _unheard(number: int, frame: FrameType | None) -> None:
    """End what did not look at the flag, or cannot write its last lines: nobody reads them."""
    del number, frame
    if _state.over:
        os._exit(status())
    raise Interrupted


def _dropped(what: sys.UnraisableHookArgs) -> None:
    """Raise Interrupted once more, where it came in a callback (of a weak reference, of an import's
    lock) out of which nothing can be raised; nobody is told of that.
    """
    if not issubclass(what.exc_type, Interrupted):
        _state.hook(what)
    elif not _state.over:
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S, PATIENCE_S)
