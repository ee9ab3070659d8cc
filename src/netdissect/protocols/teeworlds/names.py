"""Names and limits of Teeworlds that `scan`, recognition and the rules share.

*Source:* docs/protocols/teeworlds.md.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from netdissect.wire.teeworlds import connless_rows, message_rows, uuid_rows

__all__ = [
    "D06",
    "D065",
    "D07",
    "DDNET",
    "connless_types",
    "message_types",
    "uuid_types",
]

D06: Final = "teeworlds-0.6"
D065: Final = "teeworlds-0.6.5"
DDNET: Final = "teeworlds-ddnet-0.6"
D07: Final = "teeworlds-0.7"


@cache
def message_types(family: str) -> dict[int, str]:
    """Return the type names of a family by the first number of a message."""
    return {head: row.type for head, row in message_rows(family).items()}


@cache
def uuid_types() -> dict[bytes, tuple[int, str]]:
    """Return (first number, type name) of the messages named by UUID."""
    return {uuid: (row.head, row.type) for uuid, row in uuid_rows().items()}


@cache
def connless_types(family: str) -> dict[bytes, str]:
    """Return the type names of the connectionless messages of a family."""
    return {magic: row.type for magic, row in connless_rows(family).items()}
