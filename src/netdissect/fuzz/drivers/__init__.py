"""Sessions with real targets, one module a protocol."""

from __future__ import annotations

from importlib import import_module

from netdissect.fuzz.drivers.base import Driver, Key
from netdissect.model.errors import UsageError

__all__ = ["DRIVERS", "Driver", "Key", "driver_class"]

DRIVERS: dict[str, dict[str, tuple[str, str]]] = {
    "eoudp": {"udp": ("eoudp", "EoudpDriver")},
    "knet": {"udp": ("knet", "KnetDriver"), "tcp": ("knet_tcp", "KnetTcpDriver")},
    "netplay": {"tcp": ("netplay", "NetplayDriver")},
    "riptide": {"udp": ("riptide", "RiptideDriver"), "tcp": ("riptide_tcp", "RiptideTcpDriver")},
    "teeworlds": {"udp": ("teeworlds", "TeeworldsDriver")},
}
"""Protocol -> transport -> (module, class); the first is the usual one."""


def driver_class(
    protocol: str, transport: str | None = None, dialect: str | None = None
) -> type[Driver]:
    """Return the driver of a protocol.

    Args:
        protocol: name of the protocol.
        transport: `udp` or `tcp`; by default the one that the dialect has, else the usual one.
        dialect: name of a dialect, with or without the protocol's prefix.

    Raises:
        UsageError: there is none.
    """
    if protocol not in DRIVERS:
        raise UsageError(f"no driver for {protocol!r}; there are: {', '.join(DRIVERS)}")
    rows = DRIVERS[protocol]
    if transport is not None and transport not in rows:
        raise UsageError(f"no driver for {protocol} over {transport}, only: {', '.join(rows)}")
    found = [_load(rows[each]) for each in ([transport] if transport else rows)]
    names = (dialect, f"{protocol}-{dialect}")
    return next((each for each in found if {*names} & {*each.dialects}), found[0])


def _load(row: tuple[str, str]) -> type[Driver]:
    module, name = row
    driver: type[Driver] = getattr(import_module(f"netdissect.fuzz.drivers.{module}"), name)
    return driver
