"""Tables by which the dissector for Wireshark chooses layers: see `dissect/lua.py`."""

from __future__ import annotations

from typing import Any

from netdissect.layers.eoudp.contents import content_layer
from netdissect.layers.eoudp.headers import HEADERS
from netdissect.wire.eoudp_names import COMMANDS, DOCUMENTS, command_name

__all__ = ["TABLES"]

_SIZES = 48
"""Sizes that are told apart; a larger one is read as the one that leaves as much when divided by
8."""


def _contents(dialect: str) -> dict[int, dict[int, Any]]:
    """Return command -> size of the content -> layer, by asking for each. The contents of the
    documents, which leave the order of bytes open, stay bytes.
    """
    found: dict[int, dict[int, Any]] = {}
    for command in COMMANDS if dialect not in DOCUMENTS else ():
        found[command] = {}
        for size in range(_SIZES):
            name = command_name(dialect, command, size)
            # Some programs write their number as digits, and other text is refused.
            filler = b"0" if name == "CONNECT_ACCEPT" else b"\0"
            found[command][size] = content_layer(dialect, name, filler * size).layer
    return found


TABLES: dict[str, Any] = {
    "HEADERS": HEADERS,
    "contents": {dialect: _contents(dialect) for dialect in HEADERS},
}
