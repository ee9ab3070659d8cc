"""Type names of Teeworlds' messages by what `scan` finds at their start.

*Source:* docs/protocols/teeworlds.md.
"""

from __future__ import annotations

from functools import cache

from netdissect.wire.teeworlds import message_rows, uuid_rows

__all__ = [
    "message_types",
    "uuid_types",
]


@cache
def message_types(family: str) -> dict[int, str]:
    """Return the type names of a family by the first number of a message."""
    return {head: row.type for head, row in message_rows(family).items()}


@cache
def uuid_types() -> dict[bytes, tuple[int, str]]:
    """Return (first number, type name) of the messages named by UUID."""
    return {uuid: (row.head, row.type) for uuid, row in uuid_rows().items()}
