"""How far a long run is, on a standard error that is a terminal, from its second second on."""

from __future__ import annotations

import os
import stat
import sys
import time
from typing import IO, Any

from netdissect.render.units import octets

__all__ = ["Progress", "to_file"]

_AFTER_SECONDS = 1.0
_EVERY_SECONDS = 0.2
_BAR_COLUMNS = 30


class Progress:
    """Draws one line and clears it again."""

    def __init__(self, *, enabled: bool = True, stream: IO[str] | None = None) -> None:
        """Take whether to draw at all; never where the stream is no terminal."""
        if stream is None:  # while a pager has the screen, what is said otherwise waits
            stream = getattr(sys.stderr, "terminal", sys.stderr)
        self.stream = stream
        self.enabled = enabled and self.stream.isatty()
        self._begin = self._since = time.monotonic()
        self._last = 0.0
        self._drawn = False

    def watch(self, reader: Any) -> Any:
        """Make a reader report its progress while it is read; return it."""
        if self.enabled:
            reader.on_batch(lambda: self.step(*reader.progress()))
        return reader

    def renew(self) -> None:
        """Take the line away, and begin anew with what is read next."""
        self.clear()
        self._since = time.monotonic()

    def step(self, done: int, total: int | None) -> None:
        """Draw, if it is time to."""
        now = time.monotonic()
        if now - self._begin < _AFTER_SECONDS or now - self._last < _EVERY_SECONDS:
            return
        self._last = now
        self._drawn = True
        line = self._line(done, total) + _left(now - self._since, done, total)
        self.stream.write(f"\r{line}\x1b[K")
        self.stream.flush()

    @staticmethod
    def _line(done: int, total: int | None) -> str:
        if not total:
            return f"{done / 1e6:.0f} MB read"
        # A file that is being written is longer by now than it was when it was opened.
        done = min(done, total)
        filled = _BAR_COLUMNS * done // total
        bar = "=" * filled + " " * (_BAR_COLUMNS - filled)
        return f"[{bar}] {100 * done // total}% of {octets(total)}"

    def clear(self) -> None:
        """Take the line away."""
        if self._drawn:
            self._drawn = False
            self.stream.write("\r\x1b[K")
            self.stream.flush()


def to_file() -> bool:
    """Return whether standard output is a file: what is printed meets no progress there."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False


def _left(seconds: float, done: int, total: int | None) -> str:
    """Return how long the rest takes if it is read as fast as what is behind."""
    if not total or not done:
        return ""
    left = round(seconds * max(0, total - done) / done)
    minutes, rest = divmod(left, 60)
    return f", {minutes} min {rest:02d} s left" if minutes else f", {rest} s left"
