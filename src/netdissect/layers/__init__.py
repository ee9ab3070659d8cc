"""The Scapy layers, one package per protocol. `fields_desc` is *the* description of a format.

Importing a layer package binds nothing to a port; its `bind()` does.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

__all__ = ["PROTOCOLS", "bind"]

PROTOCOLS = tuple(part.name for part in pkgutil.iter_modules(__path__) if part.ispkg)
"""Names of the packages in this folder. Each is the name of its protocol."""


def bind(*protocols: str) -> None:
    """Bind the layers of `protocols` (default: all) to their default UDP and TCP ports in Scapy.

    This changes Scapy's global tables. Each layer package has its own `bind(port, dialect)`.
    """
    for name in protocols or PROTOCOLS:
        import_module(f"netdissect.layers.{name}").bind()
