"""Tables with which the Lua dissector chooses layers; see `dissect/lua.py`."""

from __future__ import annotations

from typing import Any

from netdissect.layers.riptide import bits, octets
from netdissect.wire.riptide import SIZE_LIMIT_21

TABLES: dict[str, Any] = {
    "BIT_LAYERS": bits.BIT_LAYERS,
    "BYTE_LAYERS_20": octets.BYTE_LAYERS_20,
    "BYTE_LAYERS_21DEV": octets.BYTE_LAYERS_21DEV,
    "longest": SIZE_LIMIT_21,
}
