"""Sessions with real targets, one module a protocol."""

from __future__ import annotations

from importlib import import_module

from netdissect.fuzz.drivers.base import Driver, Key
from netdissect.model.errors import UsageError

__all__ = ["DRIVERS", "Driver", "Key", "driver_class"]

DRIVERS: dict[str, str] = {
    "eoudp": "EoudpDriver",
    "knet": "KnetDriver",
    "netplay": "NetplayDriver",
    "riptide": "RiptideDriver",
    "teeworlds": "TeeworldsDriver",
}
"""Protocol -> name of its driver in the module of the same name."""


def driver_class(protocol: str) -> type[Driver]:
    """Return the driver of a protocol.

    Raises:
        UsageError: there is none.
    """
    if protocol not in DRIVERS:
        raise UsageError(f"no driver for {protocol!r}; there are: {', '.join(DRIVERS)}")
    module = import_module(f"netdissect.fuzz.drivers.{protocol}")
    driver: type[Driver] = getattr(module, DRIVERS[protocol])
    return driver
