"""kNet: messages stand in datagrams, or behind their length in a stream."""

from __future__ import annotations

from typing import Any

from netdissect.layers import knet as layers

__all__ = ["wrap"]


def wrap(dialect: str, transport: str, packet: Any) -> Any:
    """Return what carries a message in one dialect, None where the dialect does not have it."""
    return (_in_stream if transport == "tcp" else _in_datagram)(dialect, packet)


def _in_datagram(dialect: str, packet: Any) -> Any:
    header = layers.datagram_layer(dialect)
    message = header().get_field("messages").item
    document = header is layers.KnetSpecDatagram
    if isinstance(packet, layers.KnetContent) and document:
        carrier = header(packet_id=1, messages=[message(content=packet)])
        (again,) = header(bytes(carrier)).messages
        return carrier if type(again.content) is type(packet) else None
    if type(packet) is layers.KnetSpecPacketAck:
        return None
    if isinstance(packet, layers.KnetContent):
        carried = message(reliable=1, in_order=1, content=packet)
        return header(reliable=1, in_order=1, packet_id=1, messages=[carried])
    return packet if type(packet) in (header, layers.KnetConnect) else None


def _in_stream(dialect: str, packet: Any) -> Any:
    stream = layers.STREAMS[dialect][0]
    message = stream().get_field("messages").item
    if isinstance(packet, layers.KnetContent):
        return stream(messages=[message(content=packet)])
    return stream(messages=[packet]) if type(packet) is message else None
