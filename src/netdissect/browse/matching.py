"""The rows that match a filter, which is applied in the background."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from typing import Final

from netdissect.browse.backend import Backend

_WAIT_S: Final = 0.02
_DRAWN_S: Final = 1.0
"""Interval at which new matches are drawn."""


class Matching:
    """What matches a filter so far."""

    def __init__(self) -> None:
        self.rows = array("I")
        self.connections = set[int]()
        """Numbers of the connections that these rows belong to."""
        self.running = True
        """Whether the filter may find more."""
        self._drawn, self._due = 0, 0.0

    def has_more_to_draw(self) -> bool:
        """Return whether there are rows that are not drawn yet; at most once a second."""
        now = time.monotonic()
        if not self.running or len(self.rows) == self._drawn or now < self._due:
            return False
        self._drawn, self._due = len(self.rows), now + _DRAWN_S
        return True

    def look(self, text: str, backend: Backend, wanted: Callable[[], bool]) -> None:
        """Add what matches a filter, as long as it is wanted."""
        try:
            self._look(text, backend, wanted)
        finally:
            self.running = False

    def _look(self, text: str, backend: Backend, wanted: Callable[[], bool]) -> None:
        index = backend.index
        for frame, nth in backend.select(text):
            if not wanted():
                break
            # Filters may read faster than rows are listed.
            while not (backend.loaded.done or (index.rows and index.keys[index.rows - 1] > frame)):
                time.sleep(_WAIT_S)
            # If a row is listed later, the filter is applied again.
            row = index.row_of(frame)
            if row is not None and row + nth < index.rows and index.frames[row + nth] == frame:
                self.rows.append(row + nth)
                party = index.party(row + nth)
                if party.connection is not None:
                    self.connections.add(party.connection)
