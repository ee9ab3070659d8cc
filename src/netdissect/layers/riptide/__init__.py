# SPDX-License-Identifier: GPL-2.0-or-later
# scapy.contrib.description = Riptide 2.0 to 2.2
# scapy.contrib.status = loads

"""Scapy layers of Riptide: every message of riptide-2.0, 2.1dev, 2.1 and 2.2, over UDP and TCP.

Classes without a version in their name belong to 2.1 and 2.2, the releases in use.
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
from netdissect.wire.riptide import PORTS

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


def root(payload: bytes, request: Any) -> type[Layer]:
    """Return the layer that reads `payload`: a message, or over TCP a frame with a message."""
    if request.transport == "tcp" and not request.unframed:
        return FRAMES.get(request.dialect, RiptideFrame)
    return message_layer(payload, request.dialect)


def wrap(packet: Any, request: Any) -> Any:
    """Return a message with its framing, which only TCP has; None if it is no message."""
    if request.transport != "tcp":
        return packet
    frame = FRAMES.get(request.dialect, RiptideFrame)
    return frame(data=packet) if isinstance(packet, RiptideMessage) else None


DIALECTS = ("riptide-2.2", "riptide-2.1", "riptide-2.1dev", "riptide-2.0")
RARE = ("riptide-2.1dev",)
"""Dialects that were never released."""
_BYTES_FIRST = ("riptide-2.0", "riptide-2.1dev", "riptide-2.2")
_BITS_FIRST = ("riptide-2.2", "riptide-2.0", "riptide-2.1dev")
_LEAST_OCTETS = 3
"""Minimum length in bytes from which to tell the two layouts apart."""
_HEARTBEAT_20, _DISCONNECT_20 = 5, 6
"""Types of 2.0."""
_HEARTBEAT_OCTETS = 4
"""Length in bytes of a Heartbeat of 2.0."""


def likely(data: bytes, transport: str) -> tuple[str, ...]:
    """Return the dialects to try, the likeliest first. 2.2 stands for 2.1 as well.

    In the layout of whole bytes, the number behind the type is rarely above 4095: the high four
    bits of the third byte are zero. In the bit layout they belong to the next number. Over TCP, the
    length before a message has two bytes in 2.0 and four since then.
    """
    if transport == "tcp":
        return ("riptide-2.2",) if data[2:4] in (b"", b"\0", b"\0\0") else ("riptide-2.0",)
    if len(data) < _LEAST_OCTETS or data[0] not in octets.BYTE_LAYERS_20:
        return _BITS_FIRST
    if data[0] in (_HEARTBEAT_20, _DISCONNECT_20):
        # These have a fixed size in 2.0. In the bit layout they are a Disconnect and a Notify.
        return _BYTES_FIRST if len(data) == _HEARTBEAT_OCTETS else _BITS_FIRST
    return _BYTES_FIRST if data[2] >> 4 == 0 else _BITS_FIRST


def bind_riptide(port: int = PORTS[0], dialect: str | None = None) -> None:
    """Let Scapy dissect UDP at `port` as Riptide messages, and TCP as Riptide frames.

    Without a dialect each datagram decides. A short one may fit several: see `candidates`.
    """
    bind_port("riptide", port, dialect, DIALECTS, ("udp", "tcp"))


bind = bind_riptide


_SKIPPED = ("data", "padding")
READERS: list[tuple[type[Layer], tuple[str, ...]]] = [
    (layer, _SKIPPED)
    for layer in (
        *octets.BYTE_LAYERS_20.values(),
        octets.INVALID_20,
        *octets.BYTE_LAYERS_21DEV.values(),
        *bits.BIT_LAYERS.values(),
        bits.RiptideInvalid,
    )
]
"""(layer, fields to skip) for the derived readers that `protocols/riptide` calls."""
WORDS: list[type[Layer]] = [bits.RiptideAck, bits.RiptideNotify, bits.RiptideInvalid]
"""Layers of the most frequent messages: each also has a reader that returns machine integers."""

explorable("riptide", globals(), __all__)
