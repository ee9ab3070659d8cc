"""Scapy layers of EOUDP (Exodia On UDP): the dialects of its documents and of its programs.

A datagram is a header and a content: `EoudpLate() / EoudpEvent(key=265, pressed=1)`. The header
takes its command and its size from the content when they are not given.
"""

from __future__ import annotations

from typing import Any

from scapy.packet import bind_bottom_up

from netdissect.layers.base import Layer
from netdissect.layers.eoudp import contents, headers
from netdissect.layers.eoudp.codes import CODES
from netdissect.layers.eoudp.contents import *  # noqa: F403 - the public names are the package's
from netdissect.layers.eoudp.documents import LAYERS as DOCUMENT_LAYERS
from netdissect.layers.eoudp.headers import *  # noqa: F403

__all__ = [  # noqa: PLE0604 - the lists of the two modules are strings
    "CODES",
    "DOCUMENT_LAYERS",
    "READERS",
    "bind",
    "root",
    *contents.__all__,
    *headers.__all__,
]

DEFAULT_PORT = 8082
"""Port of the server. Source: engine `Network/Network`, default port."""


def root(_payload: bytes, request: Any) -> type[Layer]:
    """Return the header of the dialect; the finisher reads the content behind it."""
    return headers.header_layer(request.dialect)


def bind(port: int = DEFAULT_PORT) -> None:
    """Let Scapy dissect UDP from and to `port` as exodia-late, the last releases."""
    from scapy.layers.inet import UDP  # noqa: PLC0415 - slow import, wanted only here

    for direction in ("sport", "dport"):
        bind_bottom_up(UDP, headers.EoudpLate, {direction: port})


READERS: list[tuple[type[Layer], tuple[str, ...]]] = [
    *((layer, ("padding",)) for layer in headers.HEADERS.values()),
    *(
        (layer, ())
        for layer in (
            contents.EoudpPair,
            contents.EoudpPacketInfo,
            contents.EoudpAck,
            contents.EoudpConnectAccept,
            contents.EoudpConnectAcceptText,
            contents.EoudpEvent,
            contents.EoudpDeleteEntity,
            contents.EoudpDeleteEntity32,
        )
    ),
    *(
        (layer, ("data",))
        for layer in (
            contents.EoudpComponentOf,
            contents.EoudpComponentOf32,
            contents.EoudpDeleteComponent,
            contents.EoudpDeleteComponent32,
        )
    ),
    (contents.EoudpString, ()),
    (contents.EoudpSystemLoad, ()),
]
"""Layers whose derived readers `protocols/eoudp` calls; the documents' sets are read by walking."""
