"""Scapy layers of Netplay (nichnet/netplay): frames of bin1 and bin2, chunks of bin3, text."""

from __future__ import annotations

from typing import Any

from scapy.packet import bind_bottom_up

from netdissect.layers.base import Layer
from netdissect.layers.netplay.codes import CODES
from netdissect.layers.netplay.frames import (
    NetplayChunk,
    NetplayFrame,
    NetplayShortFrame,
    chunks,
)
from netdissect.layers.netplay.streams import (
    NetplayChunkStream,
    NetplayOctets,
    NetplayStream,
    NetplayTextStream,
)
from netdissect.layers.netplay.text import NetplayText

__all__ = [
    "CODES",
    "READERS",
    "NetplayChunk",
    "NetplayChunkStream",
    "NetplayFrame",
    "NetplayOctets",
    "NetplayShortFrame",
    "NetplayStream",
    "NetplayText",
    "NetplayTextStream",
    "bind",
    "chunks",
    "root",
]

DEFAULT_PORT = 8080
"""What the sample programs offer; the library itself has none.

Source: docs/protocols/netplay.md section 1.
"""


def root(payload: bytes, request: Any) -> type[Layer]:
    """Return the layer that holds a piece of stream; the finisher cuts it into messages."""
    del payload, request
    return NetplayOctets


def bind(port: int = DEFAULT_PORT) -> None:
    """Let Scapy dissect TCP from and to `port` as frames of bin1 and bin2."""
    from scapy.layers.inet import TCP  # noqa: PLC0415 - slow import, wanted only here

    for direction in ("sport", "dport"):
        bind_bottom_up(TCP, NetplayStream, {direction: port})


READERS: list[tuple[type[Layer], tuple[str, ...]]] = [
    (NetplayFrame, ("body",)),
    (NetplayShortFrame, ("octets",)),
    (NetplayChunk, ("data",)),
    (NetplayText, ()),
]
"""Layers whose derived readers `protocols/netplay` calls."""
