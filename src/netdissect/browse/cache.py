"""Results that background threads make of a connection: its history and its lanes."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable
from typing import TypeAlias

from netdissect.browse.backend import Backend
from netdissect.browse.background import Background
from netdissect.browse.connections import lanes
from netdissect.plot.history import History
from netdissect.render.console import Line

_LanesKey: TypeAlias = tuple[int, int, tuple[int, int] | None]
"""Number of the connection, columns of the screen, and the span that is shown (None = all)."""

Frames: TypeAlias = Callable[[], Iterable[int]] | None
"""Returns the frames that match the filter; None = there is no filter."""

MAX_HISTORIES = 8
"""Histories that are kept."""
_MIN_AGE_S = 3.0
_AGE_FACTOR = 10
"""While a capture runs, a history is made again after _MIN_AGE_S, or after this many times as long
as making it took.
"""


class ResultCache:
    """Returns the newest result that there is, and has it made again if the capture has grown."""

    def __init__(
        self, backend: Backend, background: Background, rows_of: Callable[[int], array[int]]
    ) -> None:
        """Take what makes the results, and the function that returns the rows of a connection."""
        self._backend = backend
        self._background = background
        self._rows_of = rows_of
        self._histories: dict[tuple[int, str], tuple[float, History | None]] = {}
        """(number of a connection, filter) -> (monotonic time at which it is outdated, history)."""
        self._pending: set[tuple[int, str]] = set()
        """Those whose histories are being made."""
        self._lanes: tuple[_LanesKey, int, list[Line]] = ((0, 0, None), -1, [])
        """Key, version of the capture, and lanes; the last ones that were requested."""

    @property
    def busy(self) -> bool:
        """Whether a history is being made."""
        return bool(self._pending)

    def history(self, number: int, expression: str = "", frames: Frames = None) -> History | None:
        """Return the history of a connection, or that of the `frames` which match a filter; None if
        it is still being made.
        """
        loaded, key = self._backend.loaded, (number, expression)
        due, found = self._histories.get(key, (0.0, None))
        outdated = key not in self._histories or (loaded.live and time.monotonic() > due)
        if outdated and key not in self._pending and loaded.ready:
            self._pending.add(key)
            self._background.run(lambda: self._make_history(key, frames))
        return found

    def _make_history(self, key: tuple[int, str], frames: Frames) -> Callable[[], None]:
        began = time.monotonic()
        found = self._backend.history(key[0], None if frames is None else frames())
        now = time.monotonic()

        def keep() -> None:
            self._pending.discard(key)
            self._histories[key] = now + max(_MIN_AGE_S, _AGE_FACTOR * (now - began)), found
            if len(self._histories) > MAX_HISTORIES:
                del self._histories[next(iter(self._histories))]

        return keep

    def lanes(self, number: int, width: int, part: tuple[int, int] | None = None) -> list[Line]:
        """Return the lanes of a connection, or of a part of its time; [] while they are made."""
        loaded = self._backend.loaded
        if not loaded.ready:
            return []
        key, version = (number, width, part), loaded.version
        known, known_version, lines = self._lanes
        # Lanes of another span stay until the new ones are made, those of another connection do
        # not.
        if known[:2] != key[:2]:
            lines = []
        if (known, known_version) != (key, version):
            self._lanes = key, version, lines
            self._background.run(lambda: self._make_lanes(key, version))
        return lines

    def _make_lanes(self, key: _LanesKey, version: int) -> Callable[[], None]:
        number, width, part = key
        lines = lanes(self._backend.index, self._rows_of(number), width, part)

        def keep() -> None:
            if self._lanes[0] == key:
                self._lanes = key, version, lines

        return keep
