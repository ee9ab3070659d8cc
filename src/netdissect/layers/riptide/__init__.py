# SPDX-License-Identifier: GPL-2.0-or-later
# scapy.contrib.description = Riptide 2.0 to 2.2
# scapy.contrib.status = loads

"""Scapy layers of Riptide: every message of riptide-2.0, 2.1dev, 2.1 and 2.2, UDP and TCP.

The classes without a version in their name are those of 2.1 and 2.2, the releases in use.
"""

from __future__ import annotations

from typing import Any

from netdissect.layers.base import Layer
from netdissect.layers.binding import bind_port, explorable
from netdissect.layers.riptide import bits, octets
from netdissect.layers.riptide.bits import *  # noqa: F403 - the public names are the package's
from netdissect.layers.riptide.common import RiptideMessage
from netdissect.layers.riptide.frames import (
    FRAMES,
    RiptideFrame,
    RiptideFrame20,
    RiptideFrame21dev,
    message_layer,
)
from netdissect.layers.riptide.octets import *  # noqa: F403
from netdissect.model.annotations import code_rows
from netdissect.wire.bits import BitString

__all__ = [  # noqa: PLE0604 - the lists of the two modules are strings
    "BitString",
    "RiptideFrame",
    "RiptideFrame20",
    "RiptideFrame21dev",
    "bind_riptide",
    *bits.__all__,
    *octets.__all__,
]

CODES = code_rows("riptide")

DEFAULT_PORT = 7777
"""All demos and guides. Source: docs/protocols/riptide.md section 5."""


def root(payload: bytes, request: Any) -> type[Layer]:
    """Return the layer that reads `payload`: a message, or a TCP frame that holds one."""
    if request.transport == "tcp" and not request.unframed:
        return FRAMES.get(request.dialect, RiptideFrame)
    return message_layer(payload, request.dialect)


def wrap(packet: Any, request: Any) -> Any:
    """Return what carries a message: in a stream it stands behind its length."""
    if request.transport != "tcp":
        return packet
    frame = FRAMES.get(request.dialect, RiptideFrame)
    return frame(data=packet) if isinstance(packet, RiptideMessage) else None


DIALECTS = ("riptide-2.2", "riptide-2.1", "riptide-2.1dev", "riptide-2.0")
RARE = ("riptide-2.1dev",)
"""Dialects that were never released."""
_BYTES_FIRST = ("riptide-2.0", "riptide-2.1dev", "riptide-2.2")
_BITS_FIRST = ("riptide-2.2", "riptide-2.0", "riptide-2.1dev")
_OCTETS_FROM = 3
_HEARTBEAT_20, _DISCONNECT_20 = 5, 6
_HEARTBEAT_OCTETS = 4


def likely(data: bytes, transport: str) -> tuple[str, ...]:
    """Return the dialects that differ, that first of which the first bytes look most.

    In whole bytes a type is followed by numbers that are rarely above 4095; in bits, four of the
    next number stand in the first byte and four of the one after in the third. 2.1 reads as 2.2.
    Over TCP a length has two bytes in 2.0 and four since.
    """
    if transport == "tcp":
        return ("riptide-2.2",) if data[2:4] in (b"", b"\0", b"\0\0") else ("riptide-2.0",)
    if len(data) < _OCTETS_FROM or data[0] not in octets.BYTE_LAYERS_20:
        return _BITS_FIRST
    if data[0] in (_HEARTBEAT_20, _DISCONNECT_20):
        # Fixed sizes in bytes; in bits, a Disconnect and a Notify.
        return _BYTES_FIRST if len(data) == _HEARTBEAT_OCTETS else _BITS_FIRST
    return _BYTES_FIRST if data[2] >> 4 == 0 else _BITS_FIRST


def bind_riptide(port: int = DEFAULT_PORT, dialect: str | None = None) -> None:
    """Let Scapy dissect UDP from and to `port` as Riptide, and TCP as its frames.

    Without a dialect each datagram decides; short ones fit several, which `candidates` names.
    """
    bind_port("riptide", port, dialect, DIALECTS, ("udp", "tcp"))


bind = bind_riptide


_PASSED_OVER = ("data", "padding")
READERS: list[tuple[type[Layer], tuple[str, ...]]] = [
    (layer, _PASSED_OVER)
    for layer in (
        *octets.BYTE_LAYERS_20.values(),
        octets.INVALID_20,
        *octets.BYTE_LAYERS_21DEV.values(),
        *bits.BIT_LAYERS.values(),
        bits.RiptideInvalid,
    )
]
"""Layers whose derived readers `protocols/riptide.py` calls: headers only."""
WORDS: list[type[Layer]] = [bits.RiptideAck, bits.RiptideNotify, bits.RiptideInvalid]
"""Those of what comes all the time."""

explorable("riptide", globals(), __all__)
