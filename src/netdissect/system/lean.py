"""Imports Scapy without its tables of network card makers and Bluetooth companies, and without the
library `cryptography`. No layer needs them, and loading them takes a quarter of the time of a short
run, and 28 MB.
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

_MODULE = "scapy.data"
"""The module that reads the tables when it is imported."""
_SETTINGS = "scapy.config"
"""The module that imports `cryptography`, to find out whether TLS can be decrypted."""
_FILE = "wireshark/manuf"
"""End of the path of the table that Wireshark installs."""
_TABLES: dict[str, Any] = {"scapy.libs.manuf": "", "scapy.libs.bluetoothids": {}}
"""Module with a table -> its content for an empty table."""


def lean() -> None:
    """Make the next import of Scapy skip all of this, if this process is one of our commands."""
    asked = any(isinstance(each, _Finder) for each in sys.meta_path)  # called before
    if permitted() and _MODULE not in sys.modules and not asked:
        sys.meta_path.insert(0, _Finder())


# No base classes here and below: `importlib.abc` would import 14 modules.
class _Finder:
    """Replaces the loaders of the two modules, once each."""

    def __init__(self) -> None:
        self._left = {_MODULE: _WithoutTables, _SETTINGS: _WithoutCryptography}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of one of the two modules; None for any other module."""
        del path, target
        without = self._left.pop(name, None)
        if without is None:
            return None
        from importlib.util import find_spec  # noqa: PLC0415 - only where Scapy is imported

        if not self._left:
            sys.meta_path.remove(self)
        found = find_spec(name)
        if found is not None and found.loader is not None:
            loader: Any = without(found.loader)
            found.loader = loader
        return found


class _Loader:
    """Executes a module as its usual loader does."""

    def __init__(self, usual: Any) -> None:
        self._usual = usual

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None, so that Python creates the module object."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module."""
        self._usual.exec_module(module)


class _WithoutCryptography(_Loader):
    """Executes the module as if `cryptography` was not installed."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module."""
        if "cryptography" in sys.modules:
            self._usual.exec_module(module)
            return
        hidden: Any = None  # an import of it raises ImportError
        sys.modules["cryptography"] = hidden
        try:
            self._usual.exec_module(module)
        finally:
            del sys.modules["cryptography"]


class _WithoutTables(_Loader):
    """Executes the module while the tables are hidden."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module."""
        main: Any = import_module("scapy.main")
        folder, exists = getattr(main, "SCAPY_CACHE_FOLDER", None), os.path.exists
        main.SCAPY_CACHE_FOLDER = None  # it has tables that were read before
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
