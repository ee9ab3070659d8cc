"""Shows long output on a terminal through a pager.

The pager is started before the capture is read, because the sandbox then allows no new programs.
"""

from __future__ import annotations

import errno
import io
import os
import shlex
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from netdissect.cli.errors import EXIT
from netdissect.system import interrupt

if TYPE_CHECKING:
    from netdissect.system.programs import Program

_F = TypeVar("_F", bound=Callable[..., Any])
_NONE = frozenset({"", "cat"})
"""Values of PAGER that switch the pager off."""
_LESS = "FRX"
"""Default options of `less`: quit if one screen suffices, pass colours, keep the screen at exit."""


class _PagerOutput(io.TextIOWrapper):
    """Standard output while a pager shows it."""

    def isatty(self) -> bool:
        """Return True, so that colours and width are those of the terminal."""
        return True


class DeferredError(io.StringIO):
    """Standard error while a pager has the screen: the text is printed after the pager exits."""

    def __init__(self, terminal: io.TextIOBase) -> None:
        """Take the real stream, where progress is shown immediately."""
        super().__init__()
        self.terminal = terminal


def paged(function: _F) -> _F:
    """Show what a command prints on a terminal through a pager, and add `--no-pager` to it."""

    @wraps(function)
    def wrapper(*args: Any, no_pager: bool, **options: Any) -> Any:
        plain = no_pager or options.get("as_json") or "-" in (options.get("file"), *args)
        pager = None if plain else _start()
        if pager is None:
            return function(*args, **options)
        return _through(pager, lambda: function(*args, **options))

    option = click.option("--no-pager", is_flag=True, help="Do not use a pager.")
    return cast("_F", option(wrapper))


def _start() -> Program | None:
    """Start the pager; return None if output is not to a terminal in the foreground."""
    try:
        # The terminal would stop a pager in the background.
        if not sys.stdout.isatty() or os.tcgetpgrp(sys.stdout.fileno()) != os.getpgrp():
            return None
    except (OSError, ValueError):
        return None
    from netdissect.system import programs  # noqa: PLC0415 - only where a pager starts

    words = _words(os.environ.get("PAGER", "less"))
    if words is None or os.environ.get("TERM", "dumb") == "dumb":
        return None
    # Pass nothing else: LESSOPEN, for example, names a program that less runs for each file.
    kept = {name: os.environ[name] for name in ("TERM", "COLORTERM") if name in os.environ}
    safety = {"LESS": os.environ.get("LESS", _LESS), "LESSSECURE": "1", "LESSCHARSET": "utf-8"}
    try:
        return programs.start_in_front(words, {**kept, **safety})
    except OSError:
        return None


def _words(pager: str) -> list[str] | None:
    """Return the absolute path of the pager and its arguments; None if no trusted one is found."""
    try:
        words = shlex.split(pager)
    except ValueError:
        return None
    if not words or words[0] in _NONE:
        return None
    from netdissect.system import programs  # noqa: PLC0415 - only where a pager starts

    # Search system folders for the name only: the path in PAGER may not be trustworthy.
    path = programs.find(os.path.basename(words[0]))  # noqa: PTH119 - a text
    if path is None:
        return None
    # Even if LESS is set without it: the output has colours.
    colours = ["-R"] if path.endswith("/less") else []
    return [path, *colours, *words[1:]]


def _through(pager: Program, run: Callable[[], Any]) -> Any:
    """Run a command with its output in a pager; wait until the user quits the pager."""
    out, err = sys.stdout, sys.stderr
    later = DeferredError(cast("io.TextIOBase", err)) if err.isatty() else None
    sys.stdout = shown = _PagerOutput(
        cast("io.BufferedWriter", pager.stdin), encoding="utf-8", errors="backslashreplace"
    )
    sys.stderr = later or err
    try:
        status = run()
        shown.flush()
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        status = EXIT.DONE  # the user quit the pager early
    finally:
        sys.stdout, sys.stderr = out, err
        _wait(pager, shown)
        if later is not None:
            err.write(later.getvalue())
    return status


def _wait(pager: Program, shown: io.TextIOWrapper) -> None:
    """Flush the output and wait for the pager, which handles Ctrl-C from now on."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupt.resting()
        with suppress(OSError):  # the pager has exited already
            shown.close()
        pager.wait()
    finally:
        signal.signal(signal.SIGINT, before)
