"""The field names that filters accept: shipped ones, those of plug-ins, other tools' spellings."""

from __future__ import annotations

from functools import cache

from netdissect.filters import Names

_ALIASES = {
    "frame.time": "frame.time_epoch",
    "connection": "conn.id",
    "connection.id": "conn.id",
    "conn": "conn.id",
}
"""Common misspelling -> field name."""


@cache
def filter_names() -> Names:
    """Return the names; the table is loaded once per process."""
    from netdissect import lookup  # noqa: PLC0415

    return Names(
        lookup.field_table(),
        {**_ALIASES, **lookup.field_aliases()},
        {"protocol": lookup.protocol_names, "dialect": _dialects, "anomaly": lookup.catalogue},
    )


def _dialects() -> list[str]:
    from netdissect import lookup  # noqa: PLC0415

    return [one.name for protocol in lookup.loaded_protocols() for one in protocol.dialects]
