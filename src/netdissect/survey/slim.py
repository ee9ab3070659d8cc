"""Keeps workers small."""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
from contextlib import suppress
from threading import Event
from typing import Any

_used = Event()
"""Whether this process has run a task that needs a new one."""


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


def need_new_process() -> None:
    """Have Dask run this task in a new process if this one has run such a task: what that has freed
    lies in pieces between what is left, so that the next one takes more. Only where Dask starts
    workers anew that end.

    Raises:
        Reschedule: the task is to be run again; Dask knows this exception.

    """
    from distributed import Reschedule, get_worker  # noqa: PLC0415 - an extra

    try:
        worker: Any = get_worker()
    except ValueError:  # this is no worker
        return
    if not (worker.lifetime_restart and worker.nanny):
        return
    if _used.is_set():
        worker.loop.add_callback(_replace, worker)
        raise Reschedule
    _used.set()


async def _replace(worker: Any) -> None:
    """End a worker, which its keeper starts anew."""
    # Said before, Dask does not blame its tasks for it. `close_gracefully` would say it only if
    # another worker took over its results, which are nothing (see `shares`).
    how = {"expected": True, "close": False, "stimulus_id": "netdissect-new-process"}
    await worker.scheduler.unregister(address=worker.address, **how)
    logging.disable()  # it would report that connections end
    await worker.close(nanny=False)


def free_memory() -> None:
    """Free cycles, and return what is free to the system (with glibc)."""
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
