"""Tables with which the Lua dissector chooses layers; see `dissect/lua.py`."""

from __future__ import annotations

from typing import Any

from netdissect.layers.eoudp.contents import content_layer
from netdissect.layers.eoudp.headers import HEADERS
from netdissect.wire.eoudp_names import COMMANDS, DOCUMENTS, command_name

_SIZES = 48
"""Number of sizes in a table. A larger size has the layer of a smaller one with the same remainder
modulo 8.
"""


def _contents(dialect: str) -> dict[int, dict[int, Any]]:
    """Return command -> size of the content -> layer; {} for a document, which leaves the byte
    order open.
    """
    found: dict[int, dict[int, Any]] = {}
    for command in COMMANDS if dialect not in DOCUMENTS else ():
        found[command] = {}
        for size in range(_SIZES):
            name = command_name(dialect, command, size)
            # v1.0 writes the index of CONNECT_ACCEPT in digits; nothing else would be legal.
            filler = b"0" if name == "CONNECT_ACCEPT" else b"\0"
            found[command][size] = content_layer(dialect, name, filler * size).layer
    return found


TABLES: dict[str, Any] = {
    "HEADERS": HEADERS,
    "contents": {dialect: _contents(dialect) for dialect in HEADERS},
}
