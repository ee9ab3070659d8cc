"""Turns whatever ended a command into a message and the documented exit status."""

from __future__ import annotations

import errno
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
from netdissect.system.memory import TOO_LITTLE, lacks_memory

_LONGEST_WORD = 200
"""Maximum length of a word in a message; longer ones are cut."""
_NO_FOLDER = "No usable temporary directory"
"""What `tempfile` says, even if it is files that are lacking."""


class ClosedOutputError(Exception):
    """Standard output was closed by its reader (EPIPE)."""


class LenientText(io.TextIOWrapper):
    """A text stream that ignores write errors.

    Used for standard error: a closed terminal or a full disk must not change what a command does.
    """

    def write(self, text: str, /) -> int:
        """Write the text if possible."""
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the buffer if possible."""
        with suppress(OSError):
            super().flush()

    def close(self) -> None:
        """Close the stream, even if the buffer cannot be written."""
        with suppress(OSError):
            super().close()


class EXIT:
    """The documented exit statuses."""

    DONE = 0
    FAILURE = 1
    USAGE = 2
    NO_CAPTURE = 3
    """Also any other error of the system on a file: disk full, permission denied, too many open."""
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


def report_failure(error: BaseException, *, debug: bool, live: bool = False) -> int:
    """Print what went wrong on standard error, if anything did, and return the exit status.

    Args:
        error: the exception that ended the command.
        debug: print the traceback of an unexpected failure.
        live: the capture arrives on standard input, where Ctrl-C is the usual end.

    """
    error = _unwrapped(error)
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, (ClosedOutputError, BrokenPipeError)):
        # Not a failure; without this, Python would complain at exit.
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
    else:
        _say(_reason(error))
    return EXIT.NO_CAPTURE if isinstance(error, OSError) else EXIT.FAILURE


def _reason(error: BaseException) -> str:
    """Return the message for an exception that is not ours."""
    if lacks_memory(error):
        return TOO_LITTLE
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        # Whichever file it was, as it was the last one. `tempfile` tries every folder instead.
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            return f"{reason}: the limit is too low ('ulimit -n' shows it)"
        if reason.startswith(_NO_FOLDER):
            return f"no temporary file can be made: Too many open files, or n{reason[1:]}"
        return f"{error.filename or quoted('')}: {reason}" if error.filename is not None else reason
    return f"unexpected failure: {type(error).__name__}: {error} (--debug prints the traceback)"


def _unwrapped(error: BaseException) -> BaseException:
    """Return the KeyboardInterrupt that CPython before 3.12 wraps in a RuntimeError if it occurs
    while a class is created. Source: CPython, type_new_set_names.
    """
    return error.__cause__ if isinstance(error.__cause__, KeyboardInterrupt) else error


def _say(text: str) -> None:
    click.echo(f"netdissect: {safe(_short(text))}", err=True)


def _show(error: click.ClickException) -> None:
    """Print click's message, which may quote arbitrary words of the user."""
    shown = io.StringIO()
    error.show(shown)
    text = shown.getvalue().replace("valid integer range.", "valid integer.")
    for line in _short(text).splitlines():
        click.echo(safe(line), err=True)


def _short(text: str) -> str:
    """Return a message with overlong words cut: it may quote anything the user gave."""
    return re.sub(rf"\S{{{_LONGEST_WORD},}}", lambda word: f"{word[0][:_LONGEST_WORD]}…", text)


def _point(error: FilterError) -> None:
    """Print the filter with carets under the error."""
    from netdissect.render.console import cells  # noqa: PLC0415 - rarely needed

    # Only 100 characters around the error: a filter may be a page long.
    start = max(0, error.start - 50)
    shown = safe(error.text[start : start + 100])
    before = safe(error.text[start : error.start])
    marked = safe(error.text[error.start : min(error.end, start + 100)])
    click.echo(f"    {shown}", err=True)
    click.echo(f"    {' ' * cells(before)}{'^' * max(1, cells(marked))}", err=True)


def _flush_stdout() -> None:
    """Flush standard output; discard it if that fails, as it would fail at exit as well."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()


def _discard_stdout() -> None:
    """Redirect standard output to /dev/null, so that the interpreter's flush at exit succeeds."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return
