"""The names that filters of this run know: those of the shipped table, of plug-ins, and other
tools' spellings.
"""

from __future__ import annotations

from functools import cache

from netdissect.filters import Names

__all__ = ["names"]

_ALIASES = {
    "frame.time": "frame.time_epoch",
    "connection": "conn.id",
    "connection.id": "conn.id",
    "conn": "conn.id",
}
"""Common slip -> our name."""


@cache
def names() -> Names:
    """Return the names; the table is read once."""
    from netdissect import lookup  # noqa: PLC0415

    return Names(
        lookup.field_table(),
        {**_ALIASES, **lookup.field_aliases()},
        {"protocol": lookup.protocol_names, "dialect": _dialects, "anomaly": lookup.catalogue},
    )


def _dialects() -> list[str]:
    from netdissect import lookup  # noqa: PLC0415

    return [one.name for protocol in lookup.loaded_protocols() for one in protocol.dialects]
