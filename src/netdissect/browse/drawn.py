"""What other threads make of a connection: its history, and its lanes."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from typing import TypeAlias

from netdissect.browse.backend import Backend
from netdissect.browse.connections import lanes
from netdissect.browse.errands import Errands
from netdissect.plot.history import History
from netdissect.render.console import Line

__all__ = ["Drawn"]

Asked: TypeAlias = tuple[int, int, tuple[int, int] | None]
"""Number, width, and the span that is shown; None = all."""

MAX_HISTORIES = 8
"""Connections whose units and pictures are kept."""
_ANEW_S = 3.0
"""A running capture is gone through again after so long, or ten times as long as that took."""


class Drawn:
    """Keeps what was made last, and has it made anew where the capture has grown."""

    def __init__(
        self, backend: Backend, errands: Errands, rows_of: Callable[[int], array[int]]
    ) -> None:
        """Take the capture, what runs work, and what tells the rows of a connection."""
        self._backend = backend
        self._errands = errands
        self._rows_of = rows_of
        self._histories: dict[int, tuple[float, History | None]] = {}
        """Number -> (when it is too old, history)."""
        self._asked: set[int] = set()
        self._lanes: tuple[Asked, int, list[Line]] = ((0, 0, None), -1, [])
        """(what was asked for, version, lanes)."""

    @property
    def busy(self) -> bool:
        """Whether a history is being made."""
        return bool(self._asked)

    def history(self, number: int) -> History | None:
        """Return what is drawn of a connection, as far as it is there."""
        loaded = self._backend.loaded
        due, found = self._histories.get(number, (0.0, None))
        stale = number not in self._histories or (loaded.live and time.monotonic() > due)
        if stale and number not in self._asked and loaded.ready:
            self._asked.add(number)
            self._errands.run(lambda: self._gathered(number))
        return found

    def _gathered(self, number: int) -> Callable[[], None]:
        began = time.monotonic()
        found = self._backend.history(number)
        now = time.monotonic()

        def keep() -> None:
            self._asked.discard(number)
            self._histories[number] = now + max(_ANEW_S, 10 * (now - began)), found
            if len(self._histories) > MAX_HISTORIES:
                del self._histories[next(iter(self._histories))]

        return keep

    def lanes(
        self, number: int, width: int, part: tuple[int, int] | None = None
    ) -> list[Line]:
        """Return the lanes of a connection, or of a part of its time, as far as they are there."""
        loaded = self._backend.loaded
        if not loaded.ready:
            return []
        asked, version = (number, width, part), loaded.version
        known, of, lines = self._lanes
        if known[:2] != asked[:2]:
            lines = []
        if (known, of) != (asked, version):
            self._lanes = asked, version, lines
            self._errands.run(lambda: self._laned(asked, version))
        return lines

    def _laned(self, asked: Asked, version: int) -> Callable[[], None]:
        number, width, part = asked
        lines = lanes(self._backend.index, self._rows_of(number), width, part)

        def keep() -> None:
            if self._lanes[0] == asked:
                self._lanes = asked, version, lines

        return keep
