"""Tables with which the Lua dissector chooses layers; see `dissect/lua.py`."""

from __future__ import annotations

from typing import Any

from netdissect.layers import teeworlds
from netdissect.layers.teeworlds import controls, messages
from netdissect.wire import huffman

_ZEROS, _ONES, _ROOT = huffman.tree()
TABLES: dict[str, Any] = {
    "ROOTS": teeworlds.ROOTS,
    "MESSAGES": messages.MESSAGES,
    "UUID_MESSAGES": messages.UUID_MESSAGES,
    "CONNLESS": messages.CONNLESS,
    "CONTROLS": controls.CONTROLS,
    "tree": {
        "root": _ROOT,
        "zeros": {node: child for node, child in enumerate(_ZEROS) if child >= 0},
        "ones": {node: child for node, child in enumerate(_ONES) if child >= 0},
    },
}
