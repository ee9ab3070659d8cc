# SPDX-License-Identifier: GPL-2.0-or-later
# scapy.contrib.description = kNet
# scapy.contrib.status = loads

"""Scapy layers of kNet: datagrams of every dialect, messages over TCP, and the published document.

`KnetDatagram(packet_id=3, messages=[KnetMessage(content=KnetPingRequest(ping_id=1))])` is a
datagram. Classes without a version in their name belong to knet-2.x.
"""

from __future__ import annotations

from typing import Any

from netdissect.layers.base import Layer
from netdissect.layers.binding import bind_port, explorable
from netdissect.layers.knet import contents, datagrams, spec, streams
from netdissect.layers.knet.contents import *  # noqa: F403 - the public names are the package's
from netdissect.layers.knet.datagrams import *  # noqa: F403
from netdissect.layers.knet.spec import *  # noqa: F403
from netdissect.layers.knet.streams import *  # noqa: F403
from netdissect.model.annotations import code_rows
from netdissect.model.packets import Direction
from netdissect.wire.knet import NULL_CONNECT, PORTS, SPECIFICATION

__all__ = [  # noqa: PLE0604 - the lists of the modules are strings
    "bind_knet",
    *contents.__all__,
    *datagrams.__all__,
    *spec.__all__,
    *streams.__all__,
]

CODES = code_rows("knet")


def datagram_layer(dialect: str) -> type[Layer]:
    """Return the layer of the datagrams with messages in a dialect."""
    if dialect == SPECIFICATION:
        return spec.KnetSpecDatagram
    return datagrams.DATAGRAMS.get(dialect, datagrams.KnetDatagram)


def parses(payload: bytes, dialect: str) -> bool:
    """Return whether `payload` is a valid datagram with messages."""
    packet = datagram_layer(dialect)(payload)
    return packet.fault is None and all(
        message.fault is None and message.content.fault is None
        for message in packet.getfieldval("messages")
    )


def in_stream(request: Any) -> bool:
    """Return whether the bytes are from a TCP stream, according to transport or dialect."""
    return bool(request.transport == "tcp" or request.dialect == "knet-tcp")


def root(payload: bytes, request: Any) -> type[Layer]:
    """Return the layer that reads `payload`.

    The first datagram of a client is its connect datagram. If the position in the connection is
    unknown, eight zeros are one, and so is printable text that is no datagram with messages.
    """
    if in_stream(request):
        return streams.STREAMS[request.dialect][1 if request.unframed else 0]
    if not payload:
        return datagrams.KnetEmpty
    if request.direction != Direction.S2C and request.dialect != SPECIFICATION:
        hints = request.hints
        first = _is_text(payload) if hints is None else hints.is_new
        connects = payload == NULL_CONNECT or (hints is not None and hints.expects_connect)
        if connects or (first and not parses(payload, request.dialect)):
            return datagrams.KnetConnect
    return datagram_layer(request.dialect)


def wrap(packet: Any, request: Any) -> Any:
    """Return a datagram or stream with a message; None if the dialect does not have the message."""
    return (_in_stream if request.transport == "tcp" else _in_datagram)(request.dialect, packet)


def _in_datagram(dialect: str, packet: Any) -> Any:
    header = datagram_layer(dialect)
    message = header().get_field("messages").item
    document = header is spec.KnetSpecDatagram
    if isinstance(packet, contents.KnetContent) and document:
        carrier = header(packet_id=1, messages=[message(content=packet)])
        (read,) = header(bytes(carrier)).messages
        return carrier if type(read.content) is type(packet) else None
    if type(packet) is contents.KnetSpecPacketAck:
        return None
    if isinstance(packet, contents.KnetContent):
        carried = message(reliable=1, in_order=1, content=packet)
        return header(reliable=1, in_order=1, packet_id=1, messages=[carried])
    return packet if type(packet) in (header, datagrams.KnetConnect) else None


def _in_stream(dialect: str, packet: Any) -> Any:
    stream = streams.STREAMS[dialect][0]
    message = stream().get_field("messages").item
    if isinstance(packet, contents.KnetContent):
        return stream(messages=[message(content=packet)])
    return stream(messages=[packet]) if type(packet) is message else None


def _is_text(payload: bytes) -> bool:
    """Return whether the bytes are printable text that is longer than a header."""
    try:
        return len(payload) > 3 and payload.decode("utf-8").isprintable()  # noqa: PLR2004 - the header without a base
    except UnicodeDecodeError:
        return False


DIALECTS = ("knet-2.x", "knet-2010", "knet-urho3d", "knet-tundra", SPECIFICATION)
RARE = ("knet-2010",)
"""Dialects that few programs speak."""
ONE_LAYOUT = frozenset(datagrams.DATAGRAMS.values())
"""Layers that differ only in the names of messages."""


def likely(_data: bytes, _transport: str) -> tuple[str, ...]:
    """Return the dialects that programs speak: all but that of the document."""
    return DIALECTS[:-1]


def bind_knet(port: int = PORTS[0], dialect: str | None = None) -> None:
    """Let Scapy dissect UDP at `port` as kNet datagrams, and TCP as kNet's stream."""
    bind_port("knet", port, dialect, DIALECTS, ("udp", "tcp"))


bind = bind_knet


_UNREAD = ("content_length_low", "content_length_high")
READERS: list[tuple[type[Layer], tuple[str, ...]]] = [
    (datagrams.KnetMessage, _UNREAD),
    (datagrams.KnetDatagram, ()),
    (datagrams.Knet2010Message, _UNREAD),
    (datagrams.Knet2010Datagram, ()),
    (contents.KnetPacketAck, ()),
    (contents.KnetSpecPacketAck, ()),
    (spec.KnetSpecMessage, _UNREAD),
    (spec.KnetSpecHeader, ()),
]
"""(layer, fields to skip) for the derived readers that `protocols/knet` calls. All dialects after
2010 share one layout.
"""
RULES: list[type[Layer]] = [
    spec.KnetSpecDatagram, contents.KnetWrongSize, contents.KnetDisconnect,
]  # fmt: skip
"""Layers of which `protocols/knet` needs the soft rules alone: other readers read them."""

explorable("knet", globals(), __all__)
