"""The Scapy classes: one file or package a protocol; `fields_desc` is *the* format.

Nothing is bound to a port at import; `bind()` does it when asked.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

__all__ = ["PROTOCOLS", "bind"]

PROTOCOLS = tuple(part.name for part in pkgutil.iter_modules(__path__) if part.ispkg)
"""Names of the layer packages beside this file, which are their protocols' names."""


def bind(*protocols: str) -> None:
    """Bind the layers of `protocols` (default: all here) to their usual UDP and TCP ports in Scapy.

    This changes Scapy's global tables, so it happens only when called. Each layer module has its
    own
    `bind()` with the ports and their source.
    """
    for name in protocols or PROTOCOLS:
        import_module(f"netdissect.layers.{name}").bind()
