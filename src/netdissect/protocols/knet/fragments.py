"""What bytes may be that are no datagram: one variable-length number. For `decode` alone."""

from __future__ import annotations

from typing import Final

from netdissect.protocols.base import Fragment
from netdissect.wire.varint import KNET_7_7_16, KNET_7_8, KNET_15_16, VarintError

__all__ = ["fragment"]

_SIZES: Final = (1, 2, 4)
"""Bytes of kNet's numbers. Source: docs/protocols/knet.md section 3."""


def fragment(payload: bytes, *, packet: bool) -> Fragment | None:
    """Return the number that the bytes are: by the first encoding that takes them all, and by all.

    Nothing on the wire says which encoding it is. A datagram has three bytes at least, and a whole
    one of four does not exist.
    """
    if packet or len(payload) not in _SIZES:
        return None
    values = {}
    for codec in (KNET_7_8, KNET_7_7_16, KNET_15_16):
        try:
            value, used = codec.read(payload, 0, len(payload))
        except VarintError:
            continue
        if used == len(payload):
            values[codec.name] = value
    if not values:
        return None
    first = next(iter(values.values()))
    return Fragment({"kind": "vle", "value": first, "bytes_used": len(payload), "readings": values})
