"""How often Python's garbage collector runs while packets are processed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

_ALLOCATIONS: Final = 1_000_000
"""Allocations between two collections; by default Python starts one after 700."""
FEW: Final = 10_000
"""Allocations between two collections of the youngest generation if `brief`. Such a collection was
measured to take 20 to 40 ms.
"""


class RareCollections:
    """Counts the blocks that need rare collections. They may end in any order and on any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs = 0
        self._usual = (0, 0, 0)

    @contextmanager
    def __call__(self, *, brief: bool = False) -> Iterator[None]:
        """Collect garbage a thousand times less often than usual, until the last block ends.

        Units, events and whole connections are freed by reference counting. Each collection would
        visit all outstanding units and find nothing.

        Args:
            brief: avoid long pauses: collect only the youngest generation, after `FEW` allocations.

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
