"""What `decode --json` prints of a whole payload, back into layers.

`decode` flattens what people read at one glance (a message's content beside its header) and names
some fields anew; a protocol's carrier undoes that. Values changed in between are built as they
stand, lengths and sizes included.
"""

from __future__ import annotations

import struct

from netdissect.craft.filling import Fields
from netdissect.craft.wrapping import carrier
from netdissect.model.errors import UsageError, reason

__all__ = ["can_rebuild", "rebuild"]


def can_rebuild(protocol: str) -> bool:
    """Return whether the payloads of a protocol hold more than one layer at their root."""
    return hasattr(carrier(protocol), "rebuild")


def rebuild(protocol: str, dialect: str, transport: str, fields: Fields) -> bytes:
    """Return the bytes of a payload.

    Args:
        protocol: one that `can_rebuild`.
        dialect: full name of its dialect.
        transport: `udp` or `tcp`.
        fields: the object `fields`.

    Raises:
        UsageError: a value is missing or does not fit.
    """
    try:
        octets: bytes = carrier(protocol).rebuild(dialect, transport, fields)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, struct.error) as error:
        raise UsageError(f"{protocol}: these fields are no payload: {reason(error)}") from error
    return octets
