"""Keeps workers small."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from typing import Any


def do_without_pandas() -> None:
    """Keep pyarrow from importing pandas, which it does with the first list that it converts: no
    list of ours holds anything of pandas, and it takes 35 MB. Only for a process of our own.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa  # noqa: PLC0415 - an extra

    hides: Any = _HidesPandas()  # no base class: `importlib.abc` would import 14 modules
    sys.meta_path.insert(0, hides)
    try:
        pa.array([0])  # it looks once
    finally:
        sys.meta_path.remove(hides)


class _HidesPandas:
    """Has an import of pandas fail."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """Raise ImportError for pandas; return None for any other module, which others find."""
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def free_memory() -> None:
    """Free cycles, and return what is free to the system (with glibc)."""
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
