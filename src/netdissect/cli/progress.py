"""Progress of a long run, shown on standard error if that is a terminal."""

from __future__ import annotations

import os
import stat
import sys
import time
from typing import IO, Any

from netdissect.render.units import octets

_AFTER_SECONDS = 1.0
"""Seconds before progress is shown for the first time."""
_EVERY_SECONDS = 0.2
"""Seconds between updates."""
_BAR_COLUMNS = 30


class Progress:
    """Draws one line and clears it again."""

    def __init__(self, *, enabled: bool = True, stream: IO[str] | None = None) -> None:
        """Take the stream; nothing is drawn unless `enabled` and the stream is a terminal."""
        if stream is None:  # a pager defers standard error, but not the progress
            stream = getattr(sys.stderr, "terminal", sys.stderr)
        self.stream = stream
        self.enabled = enabled and self.stream.isatty()
        self._begin = self._since = time.monotonic()
        self._last = 0.0
        self._drawn = False

    def watch(self, reader: Any) -> Any:
        """Show the progress of a reader while it is read; return the reader."""
        if self.enabled:
            reader.on_batch(lambda: self.step(*reader.progress()))
        return reader

    def renew(self) -> None:
        """Clear the line, and start estimating the time left anew."""
        self.clear()
        self._since = time.monotonic()

    def step(self, done: int, total: int | None) -> None:
        """Redraw the line if it is due."""
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
        # A file that is still being written is longer than when it was opened.
        done = min(done, total)
        filled = _BAR_COLUMNS * done // total
        bar = "=" * filled + " " * (_BAR_COLUMNS - filled)
        return f"[{bar}] {100 * done // total}% of {octets(total)}"

    def clear(self) -> None:
        """Clear the line."""
        if self._drawn:
            self._drawn = False
            self.stream.write("\r\x1b[K")
            self.stream.flush()


def to_file() -> bool:
    """Return whether standard output is a file, so that progress does not garble it."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False


def _left(seconds: float, done: int, total: int | None) -> str:
    """Return the estimated time left, at the average speed so far."""
    if not total or not done:
        return ""
    left = round(seconds * max(0, total - done) / done)
    minutes, rest = divmod(left, 60)
    return f", {minutes} min {rest:02d} s left" if minutes else f", {rest} s left"
