"""Reads single key presses from a terminal without echo."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import tty
from contextlib import suppress
from typing import Any, Final

_READ_OCTETS: Final = 256
_NAMES: Final = {
    "\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down", "\x1b": "escape",
    "\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace",
}  # fmt: skip
_KEY: Final = re.compile(r"\x1b(?:\[[0-9;]*[ -/]*[@-~]|O[A-Z])|.", re.DOTALL)
"""A control sequence that a key sends, or one character. Source: ECMA-48, 5.4."""


class Keyboard:
    """The keyboard of the terminal on standard input, or else, if standard output is a terminal, of
    the controlling terminal. Ctrl-C remains a signal. Without a terminal no key is ever pressed.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        self._own: int | None = None
        if sys.stdin is not None and sys.stdin.isatty():
            self._file = sys.stdin.fileno()
        elif sys.stdout is not None and sys.stdout.isatty():  # `tcpdump -w - | netdissect sniff`
            with suppress(OSError):
                self._file = self._own = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)
        self._before: list[Any] = []

    @property
    def there(self) -> bool:
        """Return whether there is a terminal."""
        return self._file is not None

    def open(self) -> None:
        """Switch the terminal to single key presses without echo."""
        if self._file is not None:
            self._before = termios.tcgetattr(self._file)
            tty.setcbreak(self._file, termios.TCSANOW)

    def close(self) -> None:
        """Restore the terminal."""
        if self._file is not None and self._before:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def pressed(self) -> list[str]:
        """Return the keys pressed since the last call, without waiting: characters, or the names
        `up`, `down`, `enter`, `escape` and `backspace`.
        """
        if self._file is None or not select.select([self._file], [], [], 0)[0]:
            return []
        octets = b""
        with suppress(OSError):
            octets = os.read(self._file, _READ_OCTETS)
        if not octets:
            self._file = None  # the terminal is gone
        keys = _KEY.findall(octets.decode(errors="replace"))
        return [_NAMES.get(key, key) for key in keys if key in _NAMES or len(key) == 1]
