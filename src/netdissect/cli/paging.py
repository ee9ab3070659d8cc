"""Long output on a terminal goes through a pager, which is started before anything of the capture
is read: what reads it may start no program any more.
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

__all__ = ["paged"]

_F = TypeVar("_F", bound=Callable[..., Any])
_NONE = frozenset({"", "cat"})
"""Values of PAGER with which there is none."""
_LESS = "FRX"
"""Options of `less` where the user has set none: leave what fits one screen as it is, take colours
as they are, keep the screen at the end."""


class _Out(io.TextIOWrapper):
    """Standard output while a pager shows it: the terminal, by way of the pager."""

    def isatty(self) -> bool:
        """Return True: colours and width are those of the terminal."""
        return True


class Kept(io.StringIO):
    """Standard error while a pager has the screen: what is said is said behind it."""

    def __init__(self, terminal: io.TextIOBase) -> None:
        """Take where it goes in the end; progress goes there at once."""
        super().__init__()
        self.terminal = terminal


def paged(function: _F) -> _F:
    """Add `--no-pager` to a command, and a pager to what it prints for people on a terminal."""

    @wraps(function)
    def wrapper(*args: Any, no_pager: bool, **options: Any) -> Any:
        plain = no_pager or options.get("as_json") or "-" in (options.get("file"), *args)
        pager = None if plain else _start()
        if pager is None:
            return function(*args, **options)
        return _through(pager, lambda: function(*args, **options))

    option = click.option("--no-pager", is_flag=True, help="Do not page the output on a terminal.")
    return cast("_F", option(wrapper))


def _start() -> Program | None:
    """Start the pager; None where there is no terminal in front of us, or no pager."""
    try:
        # A pager behind `&` would be stopped by the terminal.
        if not sys.stdout.isatty() or os.tcgetpgrp(sys.stdout.fileno()) != os.getpgrp():
            return None
    except (OSError, ValueError):
        return None
    from netdissect.system import programs  # noqa: PLC0415 - only where a pager starts

    words = _words(os.environ.get("PAGER", "less"))
    if words is None or os.environ.get("TERM", "dumb") == "dumb":
        return None
    # Nothing else of the environment: LESSOPEN names a program that less runs for each file.
    kept = {name: os.environ[name] for name in ("TERM", "COLORTERM") if name in os.environ}
    safety = {"LESS": os.environ.get("LESS", _LESS), "LESSSECURE": "1", "LESSCHARSET": "utf-8"}
    try:
        return programs.start_in_front(words, {**kept, **safety})
    except OSError:
        return None


def _words(pager: str) -> list[str] | None:
    """Return the absolute path of a pager and its arguments; None where there is none to trust."""
    try:
        words = shlex.split(pager)
    except ValueError:
        return None
    if not words or words[0] in _NONE:
        return None
    from netdissect.system import programs  # noqa: PLC0415 - only where a pager starts

    # By name alone, in folders of the system: PAGER may come from a folder that is not the user's.
    path = programs.find(os.path.basename(words[0]))  # noqa: PTH119 - a text
    if path is None:
        return None
    # Also where LESS is set without it: what is printed has colours.
    colours = ["-R"] if path.endswith("/less") else []
    return [path, *colours, *words[1:]]


def _through(pager: Program, run: Callable[[], Any]) -> Any:
    """Run a command with its output in a pager; wait until the reader has left it."""
    out, err = sys.stdout, sys.stderr
    later = Kept(cast("io.TextIOBase", err)) if err.isatty() else None
    sys.stdout = shown = _Out(
        cast("io.BufferedWriter", pager.stdin), encoding="utf-8", errors="backslashreplace"
    )
    sys.stderr = later or err
    try:
        status = run()
        shown.flush()
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        status = EXIT.DONE  # the reader has left it before the end
    finally:
        sys.stdout, sys.stderr = out, err
        _wait(pager, shown)
        if later is not None:
            err.write(later.getvalue())
    return status


def _wait(pager: Program, shown: io.TextIOWrapper) -> None:
    """Hand on the rest, and wait; Ctrl-C is the pager's now."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupt.resting()
        with suppress(OSError):  # it is gone already
            shown.close()
        pager.wait()
    finally:
        signal.signal(signal.SIGINT, before)
