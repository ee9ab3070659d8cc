"""How often Python looks for cyclic garbage while packets pass."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["rare_collections"]

_ALLOCATIONS: Final = 1_000_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for cyclic garbage a thousand times less often than usual.

    Units, events and whole connections are freed by reference counting; every search walks all
    units that wait for their acknowledgement, and finds nothing.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(_ALLOCATIONS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
