"""Tables with which the Lua dissector chooses layers; see `dissect/lua.py`."""

from __future__ import annotations

from typing import Any

from netdissect.layers.base import Layer
from netdissect.layers.knet.contents import chooser
from netdissect.layers.knet.datagrams import DATAGRAMS
from netdissect.layers.knet.spec import KnetSpecDatagram
from netdissect.layers.knet.streams import STREAMS
from netdissect.wire.knet import CONTROLS, SPECIFICATION
from netdissect.wire.varint import KNET_7_7_16

_SIZES = 10
"""Number of payload sizes in a table: every control message is shorter."""
_UNUSED_ID = 0x1FFFFFFF
"""A message ID that no dialect uses."""


def _contents(dialect: str) -> dict[int, Any]:
    """Return fragment flags -> message ID -> payload size -> layer."""
    choose = chooser(dialect)
    found: dict[int, Any] = {}
    for flags in range(8):
        fields = {
            "fragment": flags & 1, "fragment_start": flags >> 1 & 1, "reliable": flags >> 2 & 1,
        }  # fmt: skip

        def of(number: int, size: int, fields: dict[str, int] = fields) -> type[Layer]:
            return choose(fields, KNET_7_7_16.write(number) + bytes(size))

        rows: dict[Any, Any] = {
            number: {size: of(number, size) for size in range(_SIZES)}
            for number in CONTROLS[dialect]
        }
        other = of(_UNUSED_ID, 0)
        alike = all(layer is other for row in rows.values() for layer in row.values())
        found[flags] = other if alike else {**rows, "other": other}
    return found


TABLES: dict[str, Any] = {
    "DATAGRAMS": {**DATAGRAMS, SPECIFICATION: KnetSpecDatagram},
    "STREAMS": {dialect: layers[0] for dialect, layers in STREAMS.items()},
    "contents": {dialect: _contents(dialect) for dialect in CONTROLS},
}
