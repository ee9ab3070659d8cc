"""Scapy layers of Riptide: every message of riptide-2.0, 2.1dev, 2.1 and 2.2, UDP and TCP.

The classes without a version in their name are those of 2.1 and 2.2, the releases in use.
"""

from __future__ import annotations

from typing import Any

from scapy.packet import bind_bottom_up

from netdissect.layers.base import Layer
from netdissect.layers.riptide import bits, octets
from netdissect.layers.riptide.bits import *  # noqa: F403 - the public names are the package's
from netdissect.layers.riptide.codes import CODES
from netdissect.layers.riptide.frames import RiptideFrame, RiptideFrame20
from netdissect.layers.riptide.octets import *  # noqa: F403
from netdissect.wire.bits import BitString

__all__ = [  # noqa: PLE0604 - the lists of the two modules are strings
    "CODES",
    "READERS",
    "BitString",
    "RiptideFrame",
    "RiptideFrame20",
    "bind",
    "message_layer",
    "root",
    *bits.__all__,
    *octets.__all__,
]

DEFAULT_PORT = 7777
"""All demos and guides. Source: docs/protocols/riptide.md section 5."""


def message_layer(data: bytes, dialect: str) -> type[Layer]:
    """Return the layer of the message in `data`; the dialect "riptide-2.1/2.2" counts as bits,
    "riptide-2.0/2.1dev" as 2.0.
    """
    if not data:
        return bits.RiptideEmpty
    if dialect in ("riptide-2.0", "riptide-2.0/2.1dev"):
        return octets.BYTE_LAYERS_20.get(data[0], octets.Riptide20Invalid)
    if dialect == "riptide-2.1dev":
        return octets.BYTE_LAYERS_21DEV.get(data[0], octets.Riptide21devInvalid)
    return bits.BIT_LAYERS.get(data[0] & 0xF, bits.RiptideInvalid)


def root(payload: bytes, request: Any) -> type[Layer]:
    """Return the layer that reads `payload`: a message, or a TCP frame that holds one."""
    if request.transport == "tcp" and not request.unframed:
        return RiptideFrame20 if request.dialect == "riptide-2.0" else RiptideFrame
    return message_layer(payload, request.dialect)


def bind(port: int = DEFAULT_PORT) -> None:
    """Let Scapy dissect UDP from and to `port` as Riptide 2.1/2.2, and TCP as its frames."""
    from scapy.layers.inet import TCP, UDP  # noqa: PLC0415 - slow import, wanted only here

    for direction in ("sport", "dport"):
        bind_bottom_up(UDP, bits.Riptide, {direction: port})
        bind_bottom_up(TCP, RiptideFrame, {direction: port})


_PASSED_OVER = ("data", "padding")
READERS: list[tuple[type[Layer], tuple[str, ...]]] = [
    (layer, _PASSED_OVER)
    for layer in (
        *octets.BYTE_LAYERS_20.values(),
        octets.Riptide20Invalid,
        *octets.BYTE_LAYERS_21DEV.values(),
        octets.Riptide21devInvalid,
        *bits.BIT_LAYERS.values(),
        bits.RiptideInvalid,
    )
]
"""Layers whose derived readers `protocols/riptide.py` calls: headers only."""
