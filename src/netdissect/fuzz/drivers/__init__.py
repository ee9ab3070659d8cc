"""Drivers: sessions with real targets, one module per protocol."""

from __future__ import annotations

from netdissect.fuzz.drivers.base import Driver, Key
from netdissect.model.errors import UsageError
from netdissect.model.text import quoted
from netdissect.protocols import registry

__all__ = ["Driver", "Key", "driven", "driver_class"]


def driven() -> dict[str, tuple[str, ...]]:
    """Return protocol -> its transports, the default one first, for all protocols with a driver."""
    return {known.name: tuple(known.drivers) for known in registry.protocols() if known.drivers}


def driver_class(
    protocol: str, transport: str | None = None, dialect: str | None = None
) -> type[Driver]:
    """Return the driver of a protocol.

    Args:
        protocol: name of the protocol.
        transport: `udp` or `tcp`; None = that of the dialect, else the default one.
        dialect: name of a dialect, with or without the protocol's prefix.

    Raises:
        UsageError: there is no such driver.
    """
    rows = registry.get(protocol).drivers
    if not rows:
        raise UsageError(f"no driver for {quoted(protocol)}; there are: {', '.join(driven())}")
    if transport is not None and transport not in rows:
        raise UsageError(f"no driver for {protocol} over {transport}, only: {', '.join(rows)}")
    found: list[type[Driver]] = [
        registry.load(rows[each]) for each in ([transport] if transport else rows)
    ]
    names = (dialect, f"{protocol}-{dialect}")
    return next((each for each in found if {*names} & {*each.dialects}), found[0])
