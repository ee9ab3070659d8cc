"""How often Python looks for cyclic garbage while packets pass."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

__all__ = ["FEW", "RareCollections", "rare_collections"]

_ALLOCATIONS: Final = 1_000_000
FEW: Final = 10_000
"""As many new objects, and what they hold, are searched in 20 to 40 ms."""


class RareCollections:
    """Counts the runs that want rare collections: they end in any order, and on any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs = 0
        self._usual = (0, 0, 0)

    @contextmanager
    def __call__(self, *, brief: bool = False) -> Iterator[None]:
        """Look for cyclic garbage a thousand times less often than usual, until the last run ends.

        Units, events and whole connections are freed by reference counting; every search walks all
        units that wait for their acknowledgement, and finds nothing.

        Args:
            brief: nobody may wait for a search: only what is new is walked, `FEW` objects at once.

        """
        with self._lock:
            if not self._runs:
                self._usual = gc.get_threshold()
                if brief:
                    gc.set_threshold(FEW, _ALLOCATIONS, _ALLOCATIONS)
                else:
                    gc.set_threshold(max(_ALLOCATIONS, self._usual[0]), *self._usual[1:])
            self._runs += 1
        try:
            yield
        finally:
            with self._lock:
                self._runs -= 1
                if not self._runs:
                    gc.set_threshold(*self._usual)


rare_collections: Final = RareCollections()
