"""Bytes that are no datagram: one variable-length integer. For `decode`."""

from __future__ import annotations

from typing import Final

from netdissect.protocols.base import Fragment
from netdissect.wire.varint import KNET_7_7_16, KNET_7_8, KNET_15_16, VarintError

_SIZES: Final = (1, 2, 4)
"""Sizes of kNet's integers, bytes. No datagram has one of them. Source: docs/protocols/knet.md
section 3.
"""


def fragment(payload: bytes, *, packet: bool) -> Fragment | None:
    """Return the values of bytes that are no packet; see `Protocol.fragment`.

    Nothing on the wire tells the encoding: `value` is that of the first one that uses all bytes,
    `readings` has all of them.
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
