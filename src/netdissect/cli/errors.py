"""The one place that turns what ended a command into a message and the exit status of the
contract.
"""

from __future__ import annotations

import io
import os
import re
import sys
import traceback
from contextlib import suppress

import click

from netdissect.model.errors import (
    AccessError,
    CaptureFileError,
    FilterError,
    NetdissectError,
    UsageError,
)
from netdissect.model.text import quoted
from netdissect.render.safe import safe
from netdissect.system import interrupt

__all__ = ["EXIT", "ClosedOutputError", "Unseen", "report"]


_LONGEST_WORD = 200
"""Characters of a word in a message at most."""


class ClosedOutputError(Exception):
    """Nobody reads standard output any more."""


class Unseen(io.TextIOWrapper):
    """Text for a person who may not see it: a terminal may go at any time, a disk be full. That
    changes nothing of what the command does, nor its exit status.
    """

    def write(self, text: str, /) -> int:
        """Write as far as that is possible."""
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is kept as far as that is possible."""
        with suppress(OSError):
            super().flush()

    def close(self) -> None:
        """Close it, written or not."""
        with suppress(OSError):
            super().close()


class EXIT:
    """Exit statuses of the contract."""

    DONE = 0
    FAILURE = 1
    USAGE = 2
    NO_CAPTURE = 3
    """Also whatever the system refuses of a file: a full disk, no right, too many open ones."""
    BAD_FILTER = 4
    NO_ACCESS = 5
    CUT_SHORT = 6
    FOUND = 7


_STATUS: tuple[tuple[type[NetdissectError], int], ...] = (
    (UsageError, EXIT.USAGE),
    (CaptureFileError, EXIT.NO_CAPTURE),
    (FilterError, EXIT.BAD_FILTER),
    (AccessError, EXIT.NO_ACCESS),
)


def report(error: BaseException, *, debug: bool, live: bool = False) -> int:
    """Say on standard error what went wrong, if anything did, and return the exit status.

    Args:
        error: what ended the command.
        debug: print the trace of an unexpected failure.
        live: the capture arrives on standard input, where Ctrl-C is the usual end.

    """
    error = _meant(error)
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, (ClosedOutputError, BrokenPipeError)):
        # Who read the pipe has seen enough; Python itself would complain at its exit.
        _discard_stdout()
        return EXIT.DONE
    _flush_stdout()
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        if not live:
            _say("interrupted")
        return EXIT.DONE if live else interrupt.status()
    if isinstance(error, click.ClickException):
        _show(error)
        return error.exit_code
    if isinstance(error, NetdissectError):
        _say(str(error))
        if isinstance(error, FilterError):
            _point(error)
        return next((status for kind, status in _STATUS if isinstance(error, kind)), EXIT.FAILURE)
    if debug:
        traceback.print_exception(error)
    elif isinstance(error, OSError):
        reason = error.strerror or str(error)
        _say(f"{error.filename or quoted('')}: {reason}" if error.filename is not None else reason)
    else:
        _say(f"unexpected failure: {type(error).__name__}: {error} (--debug prints the trace)")
    return EXIT.NO_CAPTURE if isinstance(error, OSError) else EXIT.FAILURE


def _meant(error: BaseException) -> BaseException:
    """Return the interruption that Python calls a fault where it comes while a class is made.
    Source: CPython before 3.12, type_new_set_names.
    """
    return error.__cause__ if isinstance(error.__cause__, KeyboardInterrupt) else error


def _say(text: str) -> None:
    click.echo(f"netdissect: {safe(_short(text))}", err=True)


def _show(error: click.ClickException) -> None:
    """Print a message of click's, which may quote any word."""
    shown = io.StringIO()
    error.show(shown)
    for line in _short(shown.getvalue()).splitlines():
        click.echo(safe(line), err=True)


def _short(text: str) -> str:
    """Return a message in which no word fills the screen: it may quote what the user gave."""
    return re.sub(rf"\S{{{_LONGEST_WORD},}}", lambda word: f"{word[0][:_LONGEST_WORD]}…", text)


def _point(error: FilterError) -> None:
    """Print the filter with a caret under the fault, in a window that fits a terminal."""
    from netdissect.render.console import cells  # noqa: PLC0415 - rarely needed

    # A window of 100 characters: a filter may be a page long.
    start = max(0, error.start - 50)
    shown = safe(error.text[start : start + 100])
    before = safe(error.text[start : error.start])
    marked = safe(error.text[error.start : min(error.end, start + 100)])
    click.echo(f"    {shown}", err=True)
    click.echo(f"    {' ' * cells(before)}{'^' * max(1, cells(marked))}", err=True)


def _flush_stdout() -> None:
    """Write what waits; what cannot be written now could not be at the interpreter's exit."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()


def _discard_stdout() -> None:
    """Point standard output at nothing, so that the interpreter's own flush at exit stays
    silent.
    """
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return
