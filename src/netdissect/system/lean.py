"""Scapy without the makers of all network cards and the companies of Bluetooth: no layer asks for
them, and they are a sixth of the time of a short run, and 20 MB.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from netdissect.system.sandbox import permitted

__all__ = ["lean"]

_MODULE = "scapy.data"
"""What reads the tables while it is imported."""
_FILE = "wireshark/manuf"
"""End of the path of the one of them that Wireshark installs."""
_TABLES: dict[str, Any] = {"scapy.libs.manuf": "", "scapy.libs.bluetoothids": {}}
"""Module with one of them -> what it has when it is empty."""


def lean() -> None:
    """Have Scapy imported so from now on, where this process is a command of its own."""
    asked = any(isinstance(each, _Finder) for each in sys.meta_path)  # for another capture
    if permitted() and _MODULE not in sys.modules and not asked:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds the module where it is, once. It names no base: `importlib.abc` imports 14 modules."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where to find a module; None leaves that to others."""
        del path, target
        if name != _MODULE:
            return None
        from importlib.util import find_spec  # noqa: PLC0415 - only where Scapy is imported

        sys.meta_path.remove(self)
        found = find_spec(name)
        if found is not None and found.loader is not None:
            loader: Any = _Without(found.loader)
            found.loader = loader
        return found


class _Without:
    """Runs the module with its tables out of sight."""

    def __init__(self, usual: Any) -> None:
        self._usual = usual

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python to make the module object."""

    def exec_module(self, module: ModuleType) -> None:
        """Run it."""
        main: Any = import_module("scapy.main")
        folder, exists = getattr(main, "SCAPY_CACHE_FOLDER", None), os.path.exists
        main.SCAPY_CACHE_FOLDER = None  # of tables that were read before
        os.path.exists = lambda path: not str(path).endswith(_FILE) and exists(path)
        for name, table in _TABLES.items():
            sys.modules[name] = ModuleType(name)
            vars(sys.modules[name])["DATA"] = table
        try:
            self._usual.exec_module(module)
        finally:
            main.SCAPY_CACHE_FOLDER, os.path.exists = folder, exists
            for name in _TABLES:
                del sys.modules[name]
